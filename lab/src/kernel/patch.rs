//! Patch series as files: a folder of `*.patch` in order of name, or one file.

use crate::fault::{Fault, Outcome};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// One patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Patch {
    /// Its file.
    pub(super) path: PathBuf,
    /// Its text.
    pub(super) text: String,
}

/// A series, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// Its folder's or file's name.
    pub name: String,
    pub(super) patches: Vec<Patch>,
}

impl Series {
    /// Reads a series. Nothing is applied yet, but paths that leave the tree are refused here.
    pub fn read(path: &Path) -> Outcome<Self> {
        let wrong = |e: std::io::Error| Fault::input(format!("patch {}: {e}", path.display()));
        let name =
            path.file_name().map(|n| n.to_string_lossy().trim_end_matches(".patch").to_string()).unwrap_or_default();
        let mut files = vec![path.to_path_buf()];
        if std::fs::metadata(path).map_err(wrong)?.is_dir() {
            let entries = std::fs::read_dir(path).map_err(wrong)?;
            files =
                entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "patch")).collect();
            files.sort();
        }
        if files.is_empty() {
            return Err(Fault::input(format!("{}: no *.patch in this folder", path.display())));
        }
        let patches = files.into_iter().map(Patch::read).collect::<Outcome<Vec<_>>>()?;
        Ok(Self { name, patches })
    }

    /// Files that the series touches, relative to the tree.
    pub(super) fn files(&self) -> BTreeSet<String> {
        self.patches.iter().flat_map(|patch| touched(&patch.text)).collect()
    }

    /// What decides the patched tree: the diffs alone, so that a reworded message is the same kernel.
    pub(super) fn content(&self) -> String {
        self.patches.iter().map(|patch| diff_part(&patch.text)).collect()
    }
}

impl Patch {
    /// Whether it is a mail, as `git format-patch` writes it, and not a bare diff.
    pub(super) fn is_mail(&self) -> bool {
        let head =
            |line: &str| line.starts_with("From ") || line.starts_with("From: ") || line.starts_with("Subject: ");
        self.text.lines().take_while(|line| !line.starts_with("diff --git ") && !line.starts_with("--- a/")).any(head)
    }

    fn read(path: PathBuf) -> Outcome<Self> {
        let text =
            std::fs::read_to_string(&path).map_err(|e| Fault::input(format!("patch {}: {e}", path.display())))?;
        let files = touched(&text);
        if files.is_empty() {
            return Err(Fault::input(format!("{}: no patch in this file", path.display()))
                .detail(text.lines().take(5).collect::<Vec<_>>().join("\n"))
                .help("a patch has `--- a/FILE` and `+++ b/FILE` lines, as `git format-patch` writes them"));
        }
        if let Some(hostile) = files.iter().find(|file| leaves_the_tree(file)) {
            return Err(Fault::input(format!(
                "{}: the patch writes outside the kernel tree: `{hostile}`",
                path.display()
            )));
        }
        Ok(Self { path, text })
    }
}

/// The `a/` and `b/` paths of a diff.
fn touched(text: &str) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for line in text.lines() {
        let moved =
            ["rename from ", "rename to ", "copy from ", "copy to "].iter().find_map(|word| line.strip_prefix(word));
        files.extend(moved.map(str::to_string));
        let named = line.strip_prefix("--- ").or_else(|| line.strip_prefix("+++ "));
        let Some(name) = named.map(|n| n.split('\t').next().unwrap_or(n).trim_end()) else { continue };
        if let Some(file) = name.strip_prefix("a/").or_else(|| name.strip_prefix("b/")) {
            files.insert(file.to_string());
        } else if name.starts_with('/') && name != "/dev/null" {
            files.insert(name.to_string());
        }
    }
    files
}

fn leaves_the_tree(file: &str) -> bool {
    let path = Path::new(file);
    let odd = |component: Component<'_>| !matches!(component, Component::Normal(part) if part != ".git");
    path.components().any(odd) || file.contains(['\0', '"'])
}

/// From the first diff line on, without the mail signature.
fn diff_part(text: &str) -> String {
    let from = text.find("\ndiff --git ").map(|at| at + 1).or_else(|| text.find("--- a/")).unwrap_or(0);
    let body = &text[from..];
    body[..body.rfind("\n-- \n").map_or(body.len(), |at| at + 1)].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "Subject: x\n\nbody\n---\n f | 2 +-\n\ndiff --git a/k/f.c b/k/f.c\n--- a/k/f.c\n+++ b/k/f.c\n@@ -1 +1 @@\n-a\n+b\n-- \n2.47.3\n";

    fn series(text: &str) -> Outcome<Series> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("0001-x.patch"), text).expect("a file");
        Series::read(folder.path())
    }

    #[test]
    fn a_reworded_message_is_the_same_content() {
        let (one, other) =
            (series(PATCH).expect("one"), series(&PATCH.replace("body", "better words")).expect("other"));
        assert_eq!(one.content(), other.content());
        assert_eq!(one.files().into_iter().collect::<Vec<_>>(), ["k/f.c"]);
        assert_ne!(one.content(), series(&PATCH.replace("+b", "+c")).expect("changed").content());
    }

    #[test]
    fn paths_that_leave_the_tree_are_refused() {
        for hostile in ["../f.c", "k/../../f.c", ".git/config", "/etc/passwd"] {
            let text = if hostile.starts_with('/') {
                PATCH.replace("+++ b/k/f.c", "+++ /etc/passwd")
            } else {
                PATCH.replace("b/k/f.c\n@@", &format!("b/{hostile}\n@@"))
            };
            assert_ne!(text, PATCH);
            let fault = series(&text).expect_err(hostile);
            assert!(fault.message.contains("outside the kernel tree"), "{fault}");
        }
    }

    #[test]
    fn a_file_without_a_patch_is_said_to_be_one() {
        assert!(series("Subject: [PATCH 0/2] only words\n\nno diff here\n").is_err());
    }
}
