//! How a user names a kernel.

use super::version::Version;
use crate::fault::{Fault, Outcome};
use std::path::PathBuf;

/// Where a kernel comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelSpec {
    /// Debian's linux-source package: `7.2` for the newest 7.2.x, or an exact `7.2.13`.
    Debian(String),
    /// Debian's prebuilt cloud kernel of this version.
    DebianImage(String),
    /// A commit of a git repository.
    Git {
        /// The user's repository.
        folder: PathBuf,
        /// What `git rev-parse` understands.
        revision: String,
    },
    /// A source tree as it stands, changes and all.
    Tree(PathBuf),
    /// A tarball of a source tree.
    Tar(PathBuf),
    /// A kernel image.
    Image(PathBuf),
}

/// The forms, for help texts.
pub const FORMS: &str = "debian:7.2 (the newest 7.2.x), debian:7.2.13 (exactly), debian-image:7.2 (prebuilt), git:DIR@REV, \
    tree:DIR (as it stands), tar:FILE, image:FILE";

impl KernelSpec {
    /// Reads one of the forms.
    pub fn parse(text: &str) -> Outcome<Self> {
        let version = |text: &str| match Version::parse(text) {
            Some(_) => Ok(text.to_string()),
            None => Err(Fault::input(format!("`{text}` is not a kernel version such as 7.2 or 7.2.13"))),
        };
        match text.split_once(':') {
            Some(("debian", text)) => version(text).map(Self::Debian),
            Some(("debian-image", text)) => version(text).map(Self::DebianImage),
            Some(("git", place)) if !place.is_empty() => Ok(git(place)),
            Some(("tree", path)) if !path.is_empty() => Ok(Self::Tree(path.into())),
            Some(("tar", path)) if !path.is_empty() => Ok(Self::Tar(path.into())),
            Some(("image", path)) if !path.is_empty() => Ok(Self::Image(path.into())),
            _ => Err(Fault::input(format!("`{text}` names no kernel")).help(FORMS)),
        }
    }
}

/// `DIR@REV`. Either part may have an @ of its own: the first one that ends the name of a folder separates them, or else the
/// last one. Without any, HEAD is meant.
fn git(place: &str) -> KernelSpec {
    let ats = || place.match_indices('@').map(|(at, _)| at);
    let at = ats().find(|at| PathBuf::from(&place[..*at]).is_dir()).or_else(|| ats().next_back());
    let (folder, revision) = at.map_or((place, "HEAD"), |at| (&place[..at], &place[at + 1..]));
    let revision = if revision.is_empty() { "HEAD" } else { revision };
    KernelSpec::Git { folder: folder.into(), revision: revision.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named_by_source() {
        assert_eq!(KernelSpec::parse("debian:7.2"), Ok(KernelSpec::Debian("7.2".into())));
        assert_eq!(KernelSpec::parse("debian-image:6.12"), Ok(KernelSpec::DebianImage("6.12".into())));
        assert_eq!(KernelSpec::parse("image:/a:b"), Ok(KernelSpec::Image("/a:b".into())));
        assert_eq!(KernelSpec::parse("tar:x.tar.xz"), Ok(KernelSpec::Tar("x.tar.xz".into())));
        assert_eq!(KernelSpec::parse("tree:."), Ok(KernelSpec::Tree(".".into())));
        for bad in
            ["debian:", "debian:7", "debian-image:x", "debian:7.x", "debian:7.2;rm", "7.2", "image:", "vms:7.2", "git:"]
        {
            assert!(KernelSpec::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_commit_is_behind_the_folder() {
        let parsed = |text: &str| match KernelSpec::parse(text) {
            Ok(KernelSpec::Git { folder, revision }) => (folder.display().to_string(), revision),
            other => panic!("{other:?}"),
        };
        assert_eq!(parsed("git:/nowhere/linux@v7.2-rc4"), ("/nowhere/linux".into(), "v7.2-rc4".into()));
        assert_eq!(parsed("git:/nowhere/linux"), ("/nowhere/linux".into(), "HEAD".into()));
        let folder = tempfile::tempdir().expect("a folder");
        let odd = folder.path().join("a@b");
        std::fs::create_dir(&odd).expect("a folder");
        let said = format!("git:{}@HEAD@{{1}}", odd.display());
        assert_eq!(parsed(&said), (odd.display().to_string(), "HEAD@{1}".into()));
    }
}
