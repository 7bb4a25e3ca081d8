//! An unpacked kernel source: where it is, what it is to the byte, and how its own state is found again under a series.

use crate::fault::{Fault, Outcome};
use std::path::{Path, PathBuf};

/// Disk for what a source arrives in, its tree (1.7 GiB), and one build.
pub(super) const DISK: u64 = 4 << 30;

/// How a tree's own state is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// It was unpacked once; only files that series touch are under version control.
    Unpacked,
    /// It is a work tree of this commit.
    Commit(String),
}

/// An unpacked source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    /// Folder with `tree`, and builds beside it.
    pub(super) folder: PathBuf,
    /// What it is, to the byte.
    pub(super) identity: String,
    /// Kernel version, `7.2.13`.
    pub(super) version: String,
    /// How tables name it.
    pub(super) name: String,
    /// Where its state comes from.
    pub(super) origin: Origin,
}

impl Source {
    /// The kernel tree.
    pub(super) fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }
}

/// The version that a kernel's Makefile gives in its first lines: `7.2.13`, `7.3.0-rc4`.
pub(super) fn version_of(makefile: &str, place: &Path) -> Outcome<String> {
    let value = |name: &str| {
        let line =
            makefile.lines().take(20).find(|line| line.split('=').next().is_some_and(|key| key.trim() == name))?;
        line.split_once('=').map(|(_, value)| value.trim().to_string())
    };
    let no_kernel = || {
        Fault::input(format!("{} is no kernel source: its Makefile names no VERSION and PATCHLEVEL", place.display()))
    };
    let version = value("VERSION").ok_or_else(no_kernel)?;
    let patch_level = value("PATCHLEVEL").ok_or_else(no_kernel)?;
    let sub_level = value("SUBLEVEL").filter(|level| !level.is_empty()).unwrap_or_else(|| "0".into());
    Ok(format!("{version}.{patch_level}.{sub_level}{}", value("EXTRAVERSION").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_makefile_says_the_version() {
        let text = "# SPDX\nVERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 0\nEXTRAVERSION = -rc4\nNAME = x\n";
        assert_eq!(version_of(text, Path::new("k")).as_deref(), Ok("7.3.0-rc4"));
        assert!(
            version_of("all:\n\techo\n", Path::new("k")).is_err_and(|fault| fault.message.contains("no kernel source"))
        );
    }
}
