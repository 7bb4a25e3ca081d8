//! Trees of files as values: one digest over names, kinds, modes and contents, and the same owner, times and modes whoever made them.

use crate::digest;
use crate::fault::{Fault, Outcome, Trying};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use walkdir::WalkDir;

/// The time of every file of an image, in seconds since 1970: 2026-01-01, as of everything else that the lab makes.
const EPOCH: u64 = 1_767_225_600;

/// Gives every file and folder the mode that its execute bit asks for, and one time.
pub(super) fn settle(tree: &Path) -> Outcome<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH);
    for entry in WalkDir::new(tree).contents_first(true) {
        let entry = entry.trying(tree.display())?;
        let path = entry.path();
        if entry.file_type().is_symlink() {
            continue;
        }
        let mode = entry.metadata().trying(path.display())?.permissions().mode();
        let wanted = if entry.file_type().is_dir() || mode & 0o111 != 0 { 0o755 } else { 0o644 };
        std::fs::set_permissions(path, PermissionsExt::from_mode(wanted)).trying(path.display())?;
        std::fs::File::open(path).and_then(|file| file.set_modified(time)).trying(path.display())?;
    }
    Ok(())
}

/// SHA-256 of a tree, and its size in bytes.
pub(super) fn measure(tree: &Path) -> Outcome<(String, u64)> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut size = 0;
    for entry in WalkDir::new(tree).sort_by_file_name() {
        let entry = entry.trying(tree.display())?;
        let path = entry.path();
        let name = path.strip_prefix(tree).unwrap_or(path).display().to_string();
        let kind = entry.file_type();
        let (word, content) = if kind.is_symlink() {
            ("link".to_string(), std::fs::read_link(path).trying(path.display())?.display().to_string())
        } else if kind.is_dir() {
            ("folder".to_string(), String::new())
        } else {
            if !kind.is_file() {
                return Err(Fault::lab(format!("{}: neither file, folder nor link", path.display())));
            }
            let bytes = std::fs::read(path).trying(path.display())?;
            size += bytes.len() as u64;
            let mode = entry.metadata().trying(path.display())?.permissions().mode() & 0o777;
            (format!("file {mode:o}"), digest::hex(&[&bytes]))
        };
        parts.push(format!("{name}\0{word}\0{content}\n").into_bytes());
    }
    Ok((digest::hex(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()), size))
}

/// Copies a file or a whole folder; links stay links.
pub(super) fn copy(from: &Path, to: &Path) -> Outcome<()> {
    for entry in WalkDir::new(from).sort_by_file_name() {
        let entry = entry.trying(from.display())?;
        let inside = entry.path().strip_prefix(from).unwrap_or(Path::new(""));
        let target = if inside.as_os_str().is_empty() { to.to_path_buf() } else { to.join(inside) };
        let kind = entry.file_type();
        if kind.is_dir() {
            std::fs::create_dir_all(&target).trying(target.display())?;
            continue;
        }
        std::fs::create_dir_all(target.parent().unwrap_or(to)).trying(target.display())?;
        if kind.is_symlink() {
            let aim = std::fs::read_link(entry.path()).trying(entry.path().display())?;
            std::os::unix::fs::symlink(aim, &target).trying(target.display())?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), &target).trying(target.display())?;
        } else {
            return Err(Fault::lab(format!("{}: neither file, folder nor link", entry.path().display())));
        }
    }
    Ok(())
}

/// A path inside a tree, with symbolic links followed as if the tree were the root; `None` when it is not there.
pub(super) fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut rest: Vec<_> = path.components().rev().map(|c| c.as_os_str().to_os_string()).collect();
    let mut here = PathBuf::new();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match part.to_str() {
            Some("/") => here = PathBuf::new(),
            Some(".") => {}
            Some("..") => {
                here.pop();
            }
            _ => {
                let next = here.join(&part);
                match std::fs::read_link(root.join(&next)) {
                    // The bound of symlink(7), MAXSYMLINKS.
                    Ok(target) if links < 40 => {
                        links += 1;
                        rest.extend(target.components().rev().map(|c| c.as_os_str().to_os_string()));
                    }
                    Ok(_) => return None,
                    Err(_) => here = next,
                }
            }
        }
    }
    let found = root.join(here);
    found.exists().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_inside_the_tree() {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(root.path().join("usr/lib")).expect("usr");
        std::fs::write(root.path().join("usr/lib/libx.so.1.2"), "x").expect("file");
        symlink("libx.so.1.2", root.path().join("usr/lib/libx.so.1")).expect("link");
        symlink("/usr/lib", root.path().join("lib")).expect("link");
        symlink("loop", root.path().join("loop")).expect("link");
        let found = |path: &str| resolve(root.path(), Path::new(path));
        assert_eq!(found("lib/libx.so.1"), Some(root.path().join("usr/lib/libx.so.1.2")));
        assert_eq!(found("usr/lib/../lib/libx.so.1.2"), Some(root.path().join("usr/lib/libx.so.1.2")));
        assert_eq!(found("lib/liby.so"), None);
        assert_eq!(found("loop"), None);
    }

    #[test]
    fn a_digest_sees_names_modes_links_and_contents_and_nothing_else() {
        let make = |content: &str, mode: u32, link: &str| {
            let root = tempfile::tempdir().expect("a folder");
            std::fs::create_dir(root.path().join("d")).expect("folder");
            let file = root.path().join("d/f");
            std::fs::write(&file, content).expect("file");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("mode");
            symlink(link, root.path().join("l")).expect("link");
            settle(root.path()).expect("settled");
            measure(root.path()).expect("measured").0
        };
        let one = make("x", 0o600, "d");
        assert_eq!(one, make("x", 0o640, "d"));
        assert_ne!(one, make("y", 0o600, "d"));
        assert_ne!(one, make("x", 0o700, "d"));
        assert_ne!(one, make("x", 0o600, "f"));
    }
}
