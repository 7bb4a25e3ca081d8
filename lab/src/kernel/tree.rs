//! The lab's own work tree of a source, where series are applied with git.
//!
//! Its repository holds only the files that some series touches, so that it costs milliseconds instead of a commit of
//! 90,000 files; `git am` needs no more, and a checkout changes the time stamps of just these files, which keeps every
//! other object of the last build.

use super::debian::Source;
use super::patch::{Patch, Series};
use crate::digest;
use crate::fault::{Fault, FaultKind, Outcome, Trying};
use duct::cmd;
use std::path::{Path, PathBuf};

/// The tree with the series applied. Held under the source's lock by the caller.
pub(super) fn apply(source: &Source, series: &[Series]) -> Outcome<PathBuf> {
    let tree = source.tree();
    let git = Git { tree: tree.clone() };
    let wanted = digest::hex(
        &series.iter().map(|s| s.content()).collect::<Vec<_>>().iter().map(String::as_bytes).collect::<Vec<_>>(),
    );
    let applied = tree.join(".git/topolab-applied");
    if std::fs::read_to_string(&applied).ok().as_deref() == Some(&wanted) {
        return Ok(tree);
    }
    let _ = std::fs::remove_file(&applied);
    git.to_pristine(series)?;
    for one in series {
        for patch in &one.patches {
            if let Err(fault) = git.am(patch) {
                git.to_pristine(&[])?;
                return Err(fault);
            }
        }
    }
    std::fs::write(&applied, &wanted).trying(applied.display())?;
    Ok(tree)
}

struct Git {
    tree: PathBuf,
}

impl Git {
    /// Runs git on this tree alone: no configuration but its own, no repository found by accident, fixed names and dates.
    fn run(&self, words: &[&str]) -> Outcome<Result<String, String>> {
        let mut git = cmd("git", words).dir(&self.tree).stdin_null().stdout_capture().stderr_capture().unchecked();
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
            git = git.env_remove(name);
        }
        for (name, value) in [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "topolab"),
            ("GIT_AUTHOR_EMAIL", "topolab@localhost"),
            ("GIT_COMMITTER_NAME", "topolab"),
            ("GIT_COMMITTER_EMAIL", "topolab@localhost"),
            ("LC_ALL", "C"),
        ] {
            git = git.env(name, value);
        }
        let git = git.env("GIT_DIR", self.tree.join(".git")).env("GIT_WORK_TREE", &self.tree);
        let output = git.run().trying("git")?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Ok(match output.status.success() {
            true => Ok(out.into_owned()),
            false => Err(format!("{}{}", err, out)),
        })
    }

    fn must(&self, words: &[&str]) -> Outcome<String> {
        self.run(words)?.map_err(|said| {
            Fault::lab(format!("git {} failed in the lab's kernel tree", words.join(" "))).detail(said.trim())
        })
    }

    /// Back to the source as it was unpacked, with the files of `series` under version control.
    fn to_pristine(&self, series: &[Series]) -> Outcome<()> {
        if !self.tree.join(".git").is_dir() {
            self.must(&["init", "-q", "-b", "pristine"])?;
            self.must(&["config", "core.autocrlf", "false"])?;
            self.must(&["config", "gc.auto", "0"])?;
            std::fs::write(self.tree.join(".git/info/exclude"), "*\n").trying("git exclude")?;
            self.must(&["commit", "-q", "--allow-empty", "-m", "pristine"])?;
        }
        // A killed run may have left a half-applied series; the lock says that no other run is at work here.
        let _ = std::fs::remove_file(self.tree.join(".git/index.lock"));
        let _ = self.run(&["am", "--abort"])?;
        self.must(&["checkout", "-q", "-f", "pristine"])?;
        let exists = |file: &String| self.tree.join(file).symlink_metadata().is_ok_and(|m| m.is_file());
        let files: Vec<String> = series.iter().flat_map(Series::files).filter(exists).collect();
        if !files.is_empty() {
            let mut add = vec!["add", "-f", "--"];
            add.extend(files.iter().map(String::as_str));
            self.must(&add)?;
            self.must(&["commit", "-q", "--amend", "--allow-empty", "-m", "pristine"])?;
        }
        self.must(&["checkout", "-q", "-f", "--detach", "pristine"])?;
        Ok(())
    }

    fn am(&self, patch: &Patch) -> Outcome<()> {
        let path = std::path::absolute(&patch.path).trying(patch.path.display())?;
        let text = path.to_string_lossy();
        let applied = match patch.is_mail() {
            true => self.run(&["am", "-q", "--3way", "--keep-non-patch", &text])?,
            false => match self.run(&["apply", "--index", &text])? {
                Ok(_) => self.run(&["commit", "-q", "-m", "a bare diff"])?,
                Err(said) => Err(said),
            },
        };
        let Err(said) = applied else { return Ok(()) };
        let _ = self.run(&["am", "--abort"])?;
        Err(self.explain(patch, &text, &said))
    }

    /// Which hunk of which file, and what the tree has there.
    fn explain(&self, patch: &Patch, path: &str, said: &str) -> Fault {
        let check = self.run(&["apply", "--check", "--verbose", path]).ok().and_then(Result::err).unwrap_or_default();
        let fault = Fault::new(FaultKind::Apply, format!("{} does not apply", patch.path.display()));
        let failed = check.lines().find_map(|line| line.strip_prefix("error: patch failed: ")?.rsplit_once(':'));
        let Some((file, line)) = failed else {
            return fault.detail(if check.trim().is_empty() { said.trim() } else { check.trim() });
        };
        let at: usize = line.parse().unwrap_or(1);
        let (number, expects) = hunk(&patch.text, file, at);
        fault
            .detail(format!(
                "{file}: hunk {number} fails at line {at}\nthe patch expects:\n{}\nthe tree has:\n{}",
                indented(expects.iter().map(String::as_str)),
                indented(lines_at(&self.tree.join(file), at, expects.len().max(3)).iter().map(String::as_str)),
            ))
            .help("the series may be made for another kernel version; rebase it, or name that version with -k")
    }
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
        let series = Series::read(&patch).expect("series");
        let source = Source { folder: folder.path().into(), identity: "i".into(), version: "7.2.13".into() };
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
        let (keep, source, series) = scene("two");
        let bare = keep.path().join("0001-bare.patch");
        let text = series.patches[0].text.clone();
        std::fs::write(&bare, &text[text.find("diff --git").expect("a diff")..]).expect("a file");
        let next = keep.path().join("0002-next.patch");
        let text = text.replace("-two\n+TWO", "-TWO\n+Two");
        std::fs::write(&next, text).expect("a file");
        let both = [Series::read(&bare).expect("bare"), Series::read(&next).expect("mail")];
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
}
