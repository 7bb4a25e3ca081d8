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
    /// Lines behind it that look like more of its context.
    pub(super) left_over: usize,
}

impl Hunk {
    /// Whether it has as many lines as its header announces.
    pub(super) fn is_complete(&self) -> bool {
        self.found == (self.old, self.new)
    }

    /// Whether it has what its header announces, and nothing else.
    pub(super) fn is_sound(&self) -> bool {
        self.odd.is_empty() && self.is_complete()
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
    /// Files that are, or are to become, symbolic links.
    pub(super) links: BTreeSet<String>,
    /// Lines of headers that promise content which is not there.
    pub(super) hollow: Vec<usize>,
    /// Whether a binary file is among them.
    pub(super) binary: bool,
    /// Whether it says no more of a binary file than that it differs, or is a merge's combined diff: git applies neither.
    pub(super) unusable: bool,
    /// Whether its paths have no first part to strip (`diff.noprefix`, `-p0`).
    pub(super) bare_paths: bool,
    /// The file whose headers are being read, and the line that promises content.
    current: String,
    promise: Option<usize>,
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

/// A line that ends a hunk which still lacks lines: whatever else looks like a header may be content, a removed `-- x`.
fn cuts_short(lines: &[&str], at: usize) -> bool {
    let (line, next) = (lines[at], |n: usize| lines.get(at + n).copied().unwrap_or_default());
    line.starts_with("diff --git ")
        || header(line).is_some()
        || (line.starts_with("--- ") && next(1).starts_with("+++ ") && header(next(2)).is_some())
        // A mail's signature, and b4's footer.
        || (line == "-- " && lines.len() - at <= 4)
        || (line == "---" && next(1).starts_with("base-commit: "))
}

impl Diff {
    /// Reads a text's diff.
    pub(super) fn parse(text: &str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let mut diff = Self::default();
        let mut at = 0;
        while at < lines.len() {
            let line = lines[at];
            let pair = line.starts_with("--- ") && lines.get(at + 1).is_some_and(|next| next.starts_with("+++ "));
            let combined = line.starts_with("diff --cc ") || line.starts_with("diff --combined ");
            if line.starts_with("diff --git ") || pair || combined {
                diff.begins.get_or_insert(at);
                // A file's own names come behind its index line.
                let promised = diff.promise.take().filter(|at| !pair || lines[*at].starts_with("--- "));
                diff.hollow.extend(promised);
                diff.unusable |= combined;
            }
            if diff.begins.is_none() {
                at += 1;
                continue;
            }
            if let Some((old, new)) = header(line) {
                let hunk = Self::hunk(&lines, at, old, new);
                diff.promise = None;
                at = hunk.body.end;
                diff.ends = at;
                diff.hunks.push(hunk);
            } else if pair {
                diff.pair(line, lines[at + 1]);
                diff.promise = Some(at);
                at += 2;
                diff.ends = at;
            } else if line.starts_with("GIT binary patch") {
                (diff.binary, diff.promise) = (true, None);
                let over = |line: &&str| line.starts_with("diff --git ") || *line == "-- ";
                at += lines[at..].iter().take_while(|line| !over(line)).count();
                diff.ends = at;
            } else {
                if diff.extended(line, at) {
                    diff.ends = at + 1;
                }
                at += 1;
            }
        }
        diff.hollow.extend(diff.promise.take());
        diff
    }

    /// The hunk whose header is at a line. As long as the counts ask for lines they are taken, whatever they look like; then what
    /// is added all the same is counted as too much. What else follows is none of the hunk's, as to git: a signature may be `--`.
    fn hunk(lines: &[&str], at: usize, old: usize, new: usize) -> Hunk {
        let (mut seen, mut odd, mut here) = ((0, 0), Vec::new(), at + 1);
        while here < lines.len() && (seen.0 < old || seen.1 < new) && !cuts_short(lines, here) {
            match lines[here].as_bytes().first() {
                // "No newline at end of file".
                Some(b'\\') => {}
                Some(b'+') => seen.1 += 1,
                Some(b'-') => seen.0 += 1,
                // An empty context line whose blank was stripped is one all the same, to git as to patch(1).
                Some(b' ') | None => seen = (seen.0 + 1, seen.1 + 1),
                Some(_) => {
                    odd.push(here);
                    seen = (seen.0 + 1, seen.1 + 1);
                }
            }
            here += 1;
        }
        let full = seen.0 >= old && seen.1 >= new;
        while let Some(line) = lines.get(here).filter(|line| full && (line.starts_with('+') || line.starts_with('\\')))
        {
            seen.1 += usize::from(line.starts_with('+'));
            here += 1;
        }
        let left_over = lines[here..].iter().take_while(|line| full && line.starts_with(' ')).count();
        Hunk { at, old, new, body: at + 1..here, found: seen, odd, left_over }
    }

    /// Takes the two names of a file. As with -p1 their first part is none of the path.
    fn pair(&mut self, old: &str, new: &str) {
        let name = |line: &str| {
            line.get(4..).unwrap_or_default().split('\t').next().unwrap_or_default().trim_end().to_string()
        };
        let (old, new) = (name(old), name(new));
        let prefixed = |name: &str| ["a/", "b/", "./"].iter().any(|prefix| name.starts_with(prefix));
        self.bare_paths |= old == new && old != "/dev/null" && !prefixed(&old) && !old.starts_with('/');
        for name in [old, new] {
            self.add(&name);
        }
    }

    fn add(&mut self, name: &str) {
        if name == "/dev/null" || name.is_empty() {
            return;
        }
        let inside = match name.split_once('/') {
            // An absolute path keeps its slash, and is hostile.
            Some((first, rest)) if !self.bare_paths && !first.is_empty() => rest,
            Some(_) | None => name,
        };
        self.current = inside.to_string();
        self.files.insert(inside.to_string());
    }

    /// Takes one of git's extended headers; whether it was one (git, Documentation/diff-generate-patch.txt).
    fn extended(&mut self, line: &str, at: usize) -> bool {
        if let Some(both) = line.strip_prefix("diff --git ") {
            // Both names are the same but for renames, which say theirs again. Twice the same text has no prefixes.
            let half = both.len() / 2;
            let twice = both.is_char_boundary(half) && both.get(..half) == both.get(half + 1..);
            match both.split_once(" b/") {
                Some((old, new)) => {
                    self.add(old);
                    self.add(&format!("b/{new}"));
                }
                None if twice => {
                    self.bare_paths = true;
                    let name = both.get(..half).unwrap_or_default().to_string();
                    self.add(&name);
                }
                None => {
                    let names: Vec<String> = both.split(' ').map(str::to_string).collect();
                    names.iter().for_each(|name| self.add(name));
                }
            }
            return true;
        }
        for word in ["rename from ", "rename to ", "copy from ", "copy to "] {
            if let Some(name) = line.strip_prefix(word) {
                // These carry no prefix of their own.
                self.files.insert(name.trim_end().to_string());
                return true;
            }
        }
        if line.starts_with("Binary files ") && line.ends_with(" differ") {
            (self.binary, self.unusable, self.promise) = (true, true, None);
            return true;
        }
        // A symbolic link's mode (git, Documentation/gitformat-index.txt, "120000").
        if line.trim_end().ends_with(" 120000") && !line.starts_with("old mode") && !line.starts_with("deleted") {
            self.links.insert(self.current.clone());
        }
        if line.starts_with("index ") && !line.contains("e69de29") {
            self.promise = Some(at);
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
            return Some((link, "is a symbolic link, through which other files could leave the tree"));
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
    fn what_git_takes_is_taken() {
        let signed = DIFF.replace("-- \n2.47", "--Andy");
        assert!(Diff::parse(&signed).hunks.iter().all(Hunk::is_sound));
        let dashes = "--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,2 @@\n x\n--- old\n+++ new\n";
        assert!(Diff::parse(dashes).hunks.iter().all(Hunk::is_sound));
        let binary = "diff --git a/l.png b/l.png\nindex 1..2 100644\nGIT binary patch\nliteral 3\nKcmZQz\n\nliteral 0\nHcmV?d00001\n\n";
        let read = Diff::parse(binary);
        assert_eq!(
            (read.ends, read.binary, read.unusable, read.hollow.len()),
            (binary.lines().count(), true, false, 0)
        );
        let quilt = DIFF
            .replace("diff --git a/k/f.c b/k/f.c\nindex 1..2 100644\n", "")
            .replace("a/k", "linux-7.2.orig/k")
            .replace("b/k", "linux-7.2/k");
        assert_eq!(Diff::parse(&quilt).files.iter().collect::<Vec<_>>(), ["k/f.c"]);
    }

    #[test]
    fn paths_without_prefixes_and_headers_without_content_are_seen() {
        let bare = DIFF.replace("a/k", "k").replace("b/k", "k");
        let read = Diff::parse(&bare);
        assert!(read.bare_paths && !Diff::parse(DIFF).bare_paths);
        assert_eq!(read.files.iter().collect::<Vec<_>>(), ["k/f.c"]);
        let cut = &DIFF[..DIFF.find("@@").expect("a hunk")];
        assert_eq!(Diff::parse(cut).hollow.len(), 1);
        let index = &DIFF[..DIFF.find("--- a").expect("names")];
        assert_eq!(Diff::parse(index).hollow.len(), 1);
        assert!(Diff::parse("diff --cc k/f.c\n").unusable);
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
