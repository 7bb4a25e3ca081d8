//! The lab's own work tree of a source, where series are applied with git.
//!
//! The repository of an unpacked source holds only the files that some series touches, so that it costs milliseconds instead of a
//! commit of 90,000 files; `git am` needs no more, and a checkout changes the time stamps of just these files, which keeps every
//! other object of the last build. That of a commit has all of it, and borrows its objects.

use super::git::{Git, lend};
use super::source::{Origin, Source};
use crate::digest;
use crate::fault::{Fault, FaultKind, Outcome, Trying};
use crate::patch::{Patch, Series};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

/// How a patch went on.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Applied {
    /// Its title.
    pub title: String,
    /// What was not exact: hunks that moved, context that had to be ignored, a merge.
    pub notes: Vec<String>,
}

impl Applied {
    /// What was not exact about any of these, each behind its patch's title.
    pub(crate) fn said(applied: &[Self]) -> Vec<String> {
        applied.iter().flat_map(|one| one.notes.iter().map(move |note| format!("{}: {note}", one.title))).collect()
    }
}

/// Lines of context that are given up at most, as patch(1) does by default.
const MOST_FUZZ: u32 = 2;

/// The tree with the series applied. Held under the source's lock by the caller.
pub(super) fn apply(source: &Source, series: &[Series]) -> Outcome<Vec<Applied>> {
    let tree = source.tree();
    let git = Git::ours(&tree);
    let content: Vec<String> = series.iter().map(Series::content).collect();
    let mut parts: Vec<&[u8]> = vec![source.identity.as_bytes()];
    parts.extend(content.iter().map(String::as_bytes));
    let wanted = digest::hex(&parts);
    let memo = tree.join(".git/topolab-applied");
    if let Ok(text) = std::fs::read_to_string(&memo)
        && let Some((key, notes)) = text.split_once('\n')
        && key == wanted
        && let Ok(applied) = serde_json::from_str(notes)
    {
        return Ok(applied);
    }
    let _ = std::fs::remove_file(&memo);
    to_pristine(&git, source, series)?;
    let applied = match series.iter().flat_map(|one| &one.patches).map(|patch| am(&git, &tree, patch)).collect() {
        Ok(applied) => applied,
        Err(fault) => {
            to_pristine(&git, source, &[])?;
            return Err(fault);
        }
    };
    let notes = serde_json::to_string(&applied).trying("JSON")?;
    std::fs::write(&memo, format!("{wanted}\n{notes}")).trying(memo.display())?;
    Ok(applied)
}

/// Tries a series on a copy of the files that it touches: the tree keeps its time stamps, and the last build its objects. Held
/// under the source's lock by the caller.
pub(super) fn try_on(source: &Source, series: &Series) -> Outcome<Vec<Applied>> {
    let folder = tempfile::Builder::new().prefix("topolab-apply-").tempdir().trying("a temporary folder")?;
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree).trying(tree.display())?;
    let (git, theirs) = (Git::ours(&tree), Git::ours(&source.tree()));
    git.begin()?;
    let borrowed = source.tree().join(".git/objects");
    if borrowed.is_dir() {
        lend(&tree.join(".git/objects"), &borrowed)?;
    }
    let revision = match &source.origin {
        Origin::Unpacked => "pristine",
        Origin::Commit(commit) => commit,
    };
    for file in series.files() {
        let (from, to) = (source.tree().join(&file), tree.join(&file));
        let parent = to.parent().unwrap_or(&tree);
        // A file that is not under version control yet is as it was unpacked.
        let known = match borrowed.is_dir() {
            true => theirs.run(&["cat-file", "-e", &format!("{revision}:{file}")])?.is_ok(),
            false => false,
        };
        if known {
            std::fs::create_dir_all(parent).trying(parent.display())?;
            theirs.write(&["cat-file", "blob", &format!("{revision}:{file}")], &to)?;
            continue;
        }
        // The series that is applied there just now may have made it.
        let made = borrowed.is_dir() && theirs.run(&["cat-file", "-e", &format!("HEAD:{file}")])?.is_ok();
        if !made && source.origin == Origin::Unpacked && from.symlink_metadata().is_ok_and(|m| m.is_file()) {
            std::fs::create_dir_all(parent).trying(parent.display())?;
            std::fs::copy(&from, &to).trying(from.display())?;
        }
    }
    git.must(&["add", "-A", "-f", "."])?;
    git.must(&["commit", "-q", "--allow-empty", "-m", "pristine"])?;
    series.patches.iter().map(|patch| am(&git, &tree, patch)).collect()
}

/// Back to the source's own state; of an unpacked one, with the files of `series` under version control.
fn to_pristine(git: &Git, source: &Source, series: &[Series]) -> Outcome<()> {
    let tree = source.tree();
    // A killed run may have left a half-applied series; the lock says that no other run is at work here.
    let _ = std::fs::remove_file(tree.join(".git/index.lock"));
    match &source.origin {
        Origin::Commit(commit) => {
            let _ = git.run(&["am", "--abort"])?;
            git.must(&["checkout", "-q", "-f", "--detach", commit])?;
            git.must(&["clean", "-q", "-ffdx"])?;
            Ok(())
        }
        Origin::Unpacked => {
            if !tree.join(".git").is_dir() {
                git.begin()?;
                std::fs::write(tree.join(".git/info/exclude"), "*\n").trying("git exclude")?;
                git.must(&["commit", "-q", "--allow-empty", "-m", "pristine"])?;
            }
            let _ = git.run(&["am", "--abort"])?;
            git.must(&["checkout", "-q", "-f", "pristine"])?;
            let exists = |file: &String| tree.join(file).symlink_metadata().is_ok_and(|m| m.is_file());
            let files: BTreeSet<String> = series.iter().flat_map(Series::files).filter(exists).collect();
            if !files.is_empty() {
                let mut add = vec!["add", "-f", "--"];
                add.extend(files.iter().map(String::as_str));
                git.must(&add)?;
                git.must(&["commit", "-q", "--amend", "--allow-empty", "-m", "pristine"])?;
            }
            git.must(&["checkout", "-q", "-f", "--detach", "pristine"])?;
            Ok(())
        }
    }
}

/// Applies one patch: exactly, else by a merge where its blobs are known, else with less context, which is said.
fn am(git: &Git, tree: &Path, patch: &Patch) -> Outcome<Applied> {
    let mut file = tempfile::Builder::new().prefix("topolab-mail-").tempfile().trying("a temporary file")?;
    file.write_all(&patch.mail()).trying("a temporary file")?;
    let path = file.path().display().to_string();
    let applied = |notes: Vec<String>| Ok(Applied { title: patch.title.clone(), notes });
    let check = |fuzz: Option<&str>| {
        let mut words = vec!["apply", "--check", "--verbose"];
        words.extend(fuzz);
        words.push(&path);
        git.words_of(&words)
    };
    let exact = check(None)?;
    let head = || git.must(&["rev-parse", "HEAD"]);
    let before = head()?;
    let said = match git.run(&["am", "-q", "--3way", "--keep-non-patch", "--keep-cr", &path])? {
        // A merge that finds nothing to do succeeds, and makes no commit.
        Ok(_) if head()? == before => {
            return Err(Fault::new(FaultKind::Apply, format!("{} is in this tree already", patch.label))
                .help("a kernel from before it is the base: name that version with -k"));
        }
        Ok(_) => {
            let notes = match &exact {
                Ok(words) => moved(words),
                Err(_) => vec!["merged, since its context differs (git am --3way)".to_string()],
            };
            return applied(notes);
        }
        Err(said) => said,
    };
    let _ = git.run(&["am", "--abort"])?;
    for fuzz in 1..=MOST_FUZZ {
        // git counts the context that must match, patch(1) that which need not; three lines are usual.
        let context = format!("-C{}", 3 - fuzz);
        if let Ok(words) = check(Some(&context))? {
            if git.run(&["am", "-q", "--keep-non-patch", "--keep-cr", &context, &path])?.is_ok() {
                let mut notes = vec![format!("fuzz {fuzz}: {fuzz} of its context lines differ in the tree")];
                notes.extend(moved(&words));
                return applied(notes);
            }
            let _ = git.run(&["am", "--abort"])?;
        }
    }
    Err(explain(git, tree, patch, &path, &said))
}

/// `Hunk #1 succeeded at 8190 (offset 5 lines).`, with the file that git named before.
fn moved(words: &str) -> Vec<String> {
    let mut file = "";
    let mut notes = Vec::new();
    for line in words.lines() {
        if let Some(name) = line.strip_prefix("Checking patch ") {
            file = name.trim_end_matches("...");
        } else if line.starts_with("Hunk #") && line.contains("offset") {
            notes.push(format!("{file}: {}", line.trim_end_matches('.').replace("Hunk #", "hunk ")));
        }
    }
    notes
}

/// Which hunk of which file, and what the tree has there.
fn explain(git: &Git, tree: &Path, patch: &Patch, path: &str, said: &str) -> Fault {
    let check = git.words_of(&["apply", "--check", "--verbose", path]).ok().and_then(Result::err).unwrap_or_default();
    let fault = Fault::new(FaultKind::Apply, format!("{} does not apply", patch.label));
    let failed = check.lines().find_map(|line| line.strip_prefix("error: patch failed: ")?.rsplit_once(':'));
    let Some((file, line)) = failed else {
        return fault.detail(if check.trim().is_empty() { said.trim() } else { check.trim() });
    };
    let at: usize = line.parse().unwrap_or(1);
    let (number, expects) = hunk(&patch.diff, file, at);
    fault
        .detail(format!(
            "{file}: hunk {number} fails at line {at}\nthe patch expects:\n{}\nthe tree has:\n{}",
            indented(expects.iter().map(String::as_str)),
            indented(lines_at(&tree.join(file), at, expects.len().max(3)).iter().map(String::as_str)),
        ))
        .help("the series may be made for another kernel version; rebase it, or name that version with -k")
}

fn indented<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

/// The number of the hunk of `file` that starts at old line `at`, and the old lines that it expects.
fn hunk(text: &str, file: &str, at: usize) -> (usize, Vec<String>) {
    let (mut current, mut number, mut found) = (false, 0, None);
    let mut expects = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("--- a/") {
            current = name.trim_end() == file;
            number = 0;
        } else if let Some(header) = line.strip_prefix("@@ -").filter(|_| current) {
            number += 1;
            let start = header.split([',', ' ']).next().and_then(|n| n.parse::<usize>().ok());
            if found.is_none() && start == Some(at) {
                found = Some(number);
            }
        } else if current
            && found == Some(number)
            && (line.starts_with(' ') || line.starts_with('-'))
            && !line.starts_with("-- ")
        {
            expects.push(line[1..].to_string());
        }
    }
    (found.unwrap_or(number), expects)
}

fn lines_at(path: &Path, at: usize, count: usize) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().skip(at.saturating_sub(1)).take(count).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Series {
        let read = crate::patch::read(&crate::patch::Source::Path(path.into()), crate::patch::Intake::default());
        read.and_then(Series::usable).expect("a series")
    }

    /// A source of one file, and a series of one patch that expects `old` on its second line.
    fn scene(old: &str) -> (tempfile::TempDir, Source, Series) {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = folder.path().join("tree");
        std::fs::create_dir_all(tree.join("kernel")).expect("tree");
        std::fs::write(tree.join("kernel/f.c"), "one\ntwo\nthree\n").expect("file");
        std::fs::write(tree.join("kernel/untouched.c"), "x\n").expect("file");
        let patch = folder.path().join("0001-x.patch");
        std::fs::write(
            &patch,
            format!("From: A <a@b>\nDate: Mon, 30 Nov 2026 00:00:00 +0000\nSubject: [PATCH] x\n\nbody\n---\ndiff --git a/kernel/f.c b/kernel/f.c\n--- a/kernel/f.c\n+++ b/kernel/f.c\n@@ -1,3 +1,3 @@\n one\n-{old}\n+TWO\n three\n"),
        )
        .expect("patch");
        let series = read(&patch);
        let source = Source {
            folder: folder.path().into(),
            identity: "i".into(),
            version: "7.2.13".into(),
            name: "7.2.13".into(),
            origin: Origin::Unpacked,
        };
        (folder, source, series)
    }

    #[test]
    fn a_series_goes_on_and_comes_off_and_leaves_the_rest_alone() {
        let (_keep, source, series) = scene("two");
        let read = || std::fs::read_to_string(source.tree().join("kernel/f.c")).expect("f.c");
        let before =
            std::fs::metadata(source.tree().join("kernel/untouched.c")).and_then(|m| m.modified()).expect("time");
        apply(&source, std::slice::from_ref(&series)).expect("applies");
        assert_eq!(read(), "one\nTWO\nthree\n");
        apply(&source, &[]).expect("comes off");
        assert_eq!(read(), "one\ntwo\nthree\n");
        apply(&source, &[series]).expect("applies again");
        assert_eq!(read(), "one\nTWO\nthree\n");
        let after =
            std::fs::metadata(source.tree().join("kernel/untouched.c")).and_then(|m| m.modified()).expect("time");
        assert_eq!(before, after);
    }

    #[test]
    fn a_bare_diff_applies_too_and_another_patch_after_it() {
        let (keep, source, _series) = scene("two");
        let bare = keep.path().join("0001-bare.patch");
        let text = std::fs::read_to_string(keep.path().join("0001-x.patch")).expect("the mail");
        std::fs::write(&bare, &text[text.find("diff --git").expect("a diff")..]).expect("a file");
        let next = keep.path().join("0002-next.patch");
        let text = text.replace("-two\n+TWO", "-TWO\n+Two");
        std::fs::write(&next, text).expect("a file");
        let both = [read(&bare), read(&next)];
        apply(&source, &both).expect("applies");
        assert_eq!(std::fs::read_to_string(source.tree().join("kernel/f.c")).expect("f.c"), "one\nTwo\nthree\n");
        apply(&source, &[]).expect("comes off");
        assert_eq!(std::fs::read_to_string(source.tree().join("kernel/f.c")).expect("f.c"), "one\ntwo\nthree\n");
    }

    #[test]
    fn a_conflict_names_file_hunk_and_lines_and_leaves_the_tree_clean() {
        let (_keep, source, series) = scene("zwei");
        let fault = apply(&source, &[series]).expect_err("a conflict");
        assert_eq!(fault.kind, FaultKind::Apply);
        let detail = fault.detail.unwrap_or_default();
        assert!(detail.contains("kernel/f.c: hunk 1 fails at line 1"), "{detail}");
        assert!(detail.contains("    zwei") && detail.contains("    two"), "{detail}");
        assert_eq!(std::fs::read_to_string(source.tree().join("kernel/f.c")).expect("f.c"), "one\ntwo\nthree\n");
    }

    #[test]
    fn what_is_not_exact_is_said() {
        let (keep, source, _series) = scene("two");
        let file = source.tree().join("kernel/f.c");
        let path = keep.path().join("0002-long.patch");
        let text = "--- a/kernel/f.c\n+++ b/kernel/f.c\n@@ -4,7 +4,7 @@\n 1\n 2\n one\n-two\n+TWO\n 4\n 5\n 6\n";
        std::fs::write(&path, text).expect("patch");
        let tried = |tree: &str| {
            std::fs::write(&file, tree).expect("file");
            try_on(&source, &read(&path)).map(|applied| applied[0].notes.clone())
        };
        assert_eq!(tried("a\nb\nc\n1\n2\none\ntwo\n4\n5\n6\nz\n"), Ok(vec![]));
        let moved = "kernel/f.c: hunk 1 succeeded at 6 (offset 2 lines)".to_string();
        assert_eq!(tried("a\nb\nc\nc\nc\n1\n2\none\ntwo\n4\n5\n6\nz\n"), Ok(vec![moved]));
        let fuzzy = tried("a\nb\nc\neins\n2\none\ntwo\n4\n5\n6\nz\n").expect("applies with fuzz");
        assert!(fuzzy[0].starts_with("fuzz 1: "), "{fuzzy:?}");
        assert_eq!(tried("a\nb\nc\n1\n2\none\nzwei\n4\n5\n6\nz\n").expect_err("no such line").kind, FaultKind::Apply);
        // Trying leaves the tree alone.
        assert!(std::fs::read_to_string(&file).expect("f.c").contains("zwei"));
        assert!(!source.tree().join(".git").exists());
    }
}
