//! Unified diffs as `git diff` and `diff -u` write them: which files, which hunks, and whether each hunk has the lines that its
//! header announces (GNU diffutils manual, "Detailed Description of Unified Format").

use std::collections::BTreeSet;
use std::path::{Component, Path};

/// A hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Line of the header in the text, from 0.
    pub(super) at: usize,
    /// Old lines announced.
    pub(super) old: usize,
    /// New lines announced.
    pub(super) new: usize,
    /// Its lines in the text, from 0, as far as they look like a hunk's or the counts ask for them.
    pub(super) body: std::ops::Range<usize>,
    /// Old and new lines found.
    pub(super) found: (usize, usize),
    /// Lines that begin with none of blank, plus, minus and backslash.
    pub(super) odd: Vec<usize>,
}

impl Hunk {
    /// Whether it has what its header announces, and nothing else.
    pub(super) fn is_sound(&self) -> bool {
        self.odd.is_empty() && self.found == (self.old, self.new)
    }
}

/// A diff's hunks and files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Diff {
    /// Line at which the first file begins.
    pub(super) begins: Option<usize>,
    /// Line behind the last one that belongs to the diff.
    pub(super) ends: usize,
    /// Hunks, in order.
    pub(super) hunks: Vec<Hunk>,
    /// Files named by any of the headers, relative to the tree.
    pub(super) files: BTreeSet<String>,
    /// Files that are to become symbolic links.
    pub(super) links: BTreeSet<String>,
    /// Whether a binary file is among them.
    pub(super) binary: bool,
}

/// Where a hunk's old and new lines are announced: `@@ -8185,6 +8185,56 @@`.
fn header(line: &str) -> Option<(usize, usize)> {
    let rest = line.strip_prefix("@@ -")?;
    let (ranges, _) = rest.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let count = |range: &str| -> Option<usize> {
        match range.split_once(',') {
            None => range.parse::<usize>().ok().map(|_| 1),
            Some((start, count)) => start.parse::<usize>().ok().and(count.parse().ok()),
        }
    };
    Some((count(old)?, count(new)?))
}

/// A line that begins a file's part, or ends the patch of a mail.
fn is_boundary(lines: &[&str], at: usize) -> bool {
    let line = lines[at];
    line.starts_with("diff --git ")
        || line.starts_with("@@ -")
        || line == "-- "
        // b4's footer, which has the same dashes as a message's end.
        || (line == "---" && lines.get(at + 1).is_some_and(|next| next.starts_with("base-commit: ")))
        || (line.starts_with("--- ") && lines.get(at + 1).is_some_and(|next| next.starts_with("+++ ")))
}

impl Diff {
    /// Reads a text's diff.
    pub(super) fn parse(text: &str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let mut diff = Self::default();
        let mut at = 0;
        while at < lines.len() {
            let line = lines[at];
            let names = line.starts_with("--- ") && lines.get(at + 1).is_some_and(|next| next.starts_with("+++ "));
            if line.starts_with("diff --git ") || names {
                diff.begins.get_or_insert(at);
            }
            if diff.begins.is_none() {
                at += 1;
                continue;
            }
            match header(line) {
                Some((old, new)) => {
                    let hunk = Self::hunk(&lines, at, old, new);
                    at = hunk.body.end;
                    diff.ends = at;
                    diff.hunks.push(hunk);
                }
                None => {
                    if diff
                        .names(line, names || (at > 0 && line.starts_with("+++ ") && lines[at - 1].starts_with("--- ")))
                    {
                        diff.ends = at + 1;
                    }
                    at += 1;
                }
            }
        }
        diff
    }

    /// The hunk whose header is at a line. As long as the counts ask for lines they are taken, whatever they look like; then what
    /// still looks like a hunk's line is counted as too much.
    fn hunk(lines: &[&str], at: usize, old: usize, new: usize) -> Hunk {
        let (mut seen, mut odd, mut here) = ((0, 0), Vec::new(), at + 1);
        while here < lines.len() && !is_boundary(lines, here) {
            let (line, full) = (lines[here], seen.0 >= old && seen.1 >= new);
            match line.as_bytes().first() {
                // "No newline at end of file".
                Some(b'\\') => {}
                _ if full && (line.is_empty() || !line.starts_with([' ', '+', '-'])) => break,
                Some(b'+') => seen.1 += 1,
                Some(b'-') if full && line.starts_with("---") => break,
                Some(b'-') => seen.0 += 1,
                Some(b' ') => seen = (seen.0 + 1, seen.1 + 1),
                // An empty context line whose blank was stripped is one all the same, to git as to patch(1).
                None => seen = (seen.0 + 1, seen.1 + 1),
                Some(_) => {
                    odd.push(here);
                    seen = (seen.0 + 1, seen.1 + 1);
                }
            }
            here += 1;
        }
        Hunk { at, old, new, body: at + 1..here, found: seen, odd }
    }

    /// Takes what a header line says of files; whether it was a header.
    fn names(&mut self, line: &str, pair: bool) -> bool {
        let mut add = |name: &str| {
            let name = name.split('\t').next().unwrap_or(name).trim_end();
            if name == "/dev/null" || name.is_empty() {
                return;
            }
            let inside = name.strip_prefix("a/").or_else(|| name.strip_prefix("b/")).unwrap_or(name);
            self.files.insert(inside.to_string());
        };
        if let Some(both) = line.strip_prefix("diff --git ") {
            // Both names are the same but for renames, which say theirs again.
            if let Some((old, new)) = both.split_once(" b/") {
                add(old);
                add(&format!("b/{new}"));
            }
            return true;
        }
        if pair && let Some(name) = line.strip_prefix("--- ").or_else(|| line.strip_prefix("+++ ")) {
            add(name);
            return true;
        }
        for word in ["rename from ", "rename to ", "copy from ", "copy to "] {
            if let Some(name) = line.strip_prefix(word) {
                // These carry no prefix of their own.
                self.files.insert(name.trim_end().to_string());
                return true;
            }
        }
        if line.starts_with("GIT binary patch") || (line.starts_with("Binary files ") && line.ends_with(" differ")) {
            self.binary = true;
            return true;
        }
        // A symbolic link's mode (git, Documentation/gitformat-index.txt, "120000").
        let link = ["new file mode 120000", "new mode 120000"].contains(&line.trim_end());
        if link && let Some(last) = self.files.iter().next_back().cloned() {
            self.links.insert(last);
        }
        [
            "new file mode",
            "deleted file mode",
            "old mode",
            "new mode",
            "similarity index",
            "dissimilarity index",
            "index ",
        ]
        .iter()
        .any(|word| line.starts_with(word))
    }

    /// The files that a patch may not name: outside the tree, in its repository, or links.
    pub(super) fn hostile(&self) -> Option<(&str, &'static str)> {
        if let Some(link) = self.links.iter().next() {
            return Some((link, "makes a symbolic link, through which later files could leave the tree"));
        }
        let outside = self.files.iter().find(|file| leaves_the_tree(file))?;
        Some((outside, "lies outside the kernel tree"))
    }
}

fn leaves_the_tree(file: &str) -> bool {
    let odd = |component: Component<'_>| match component {
        // Some file systems take no notice of case.
        Component::Normal(part) => part.eq_ignore_ascii_case(".git"),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => true,
    };
    Path::new(file).components().any(odd) || file.contains(['\0', '"', '\\'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "words\n---\n f.c | 3 +-\n\ndiff --git a/k/f.c b/k/f.c\nindex 1..2 100644\n--- a/k/f.c\n+++ b/k/f.c\n@@ -1,3 +1,4 @@ int x\n one\n-two\n+zwei\n+drei\n\n@@ -9 +10 @@\n-a\n+b\n-- \n2.47\n";

    #[test]
    fn a_sound_diff_is_sound() {
        let diff = Diff::parse(DIFF);
        assert_eq!(diff.files.iter().collect::<Vec<_>>(), ["k/f.c"]);
        assert_eq!(diff.hunks.len(), 2);
        assert!(diff.hunks.iter().all(Hunk::is_sound), "{:?}", diff.hunks);
        assert_eq!((diff.begins, diff.ends), (Some(4), 17));
        assert_eq!(diff.hostile(), None);
    }

    #[test]
    fn lost_lines_and_lost_blanks_are_seen() {
        let lost = Diff::parse(&DIFF.replace("\n-two\n", "\n"));
        assert_eq!((lost.hunks[0].found, lost.hunks[0].is_sound()), ((2, 4), false));
        let odd = Diff::parse(&DIFF.replace("\n one\n", "\none\n"));
        assert_eq!((odd.hunks[0].odd.len(), odd.hunks[0].found), (1, (3, 4)));
        let more = Diff::parse(&DIFF.replace("\n-a\n+b\n", "\n-a\n+b\n+c\n"));
        assert!(!more.hunks[1].is_sound());
    }

    #[test]
    fn files_that_leave_the_tree_are_hostile() {
        for bad in ["../f.c", "k/../../f.c", ".git/config", "k/.GIT/x", "/etc/passwd"] {
            let text = match bad.starts_with('/') {
                true => DIFF.replace("+++ b/k/f.c", &format!("+++ {bad}")),
                false => DIFF.replace("+++ b/k/f.c", &format!("+++ b/{bad}")),
            };
            assert!(Diff::parse(&text).hostile().is_some(), "{bad}");
        }
        let link = DIFF.replace("index 1..2 100644", "new file mode 120000\nindex 0..2");
        assert!(Diff::parse(&link).hostile().is_some_and(|(_, why)| why.contains("symbolic link")));
        let renamed = "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to ../y\n";
        assert!(Diff::parse(renamed).hostile().is_some());
    }
}
