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
    /// A kernel image.
    Image(PathBuf),
}

impl KernelSpec {
    /// Reads `debian:7.2`, `debian-image:7.2` or `image:FILE`.
    pub fn parse(text: &str) -> Outcome<Self> {
        let forms = "debian:7.2 (the newest 7.2.x), debian:7.2.13 (exactly), debian-image:7.2 (prebuilt), image:FILE";
        match text.split_once(':') {
            Some(("debian", version)) if Version::parse(version).is_some() => Ok(Self::Debian(version.to_string())),
            Some(("debian-image", version)) if Version::parse(version).is_some() => {
                Ok(Self::DebianImage(version.to_string()))
            }
            Some(("debian" | "debian-image", version)) => {
                Err(Fault::input(format!("`{version}` is not a kernel version such as 7.2 or 7.2.13")))
            }
            Some(("image", path)) if !path.is_empty() => Ok(Self::Image(path.into())),
            _ => Err(Fault::input(format!("`{text}` names no kernel")).help(forms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named_by_source() {
        assert_eq!(KernelSpec::parse("debian:7.2"), Ok(KernelSpec::Debian("7.2".into())));
        assert_eq!(KernelSpec::parse("debian-image:6.12"), Ok(KernelSpec::DebianImage("6.12".into())));
        assert_eq!(KernelSpec::parse("image:/a:b"), Ok(KernelSpec::Image("/a:b".into())));
        for bad in ["debian:", "debian:7", "debian-image:x", "debian:7.x", "debian:7.2;rm", "7.2", "image:", "vms:7.2"]
        {
            assert!(KernelSpec::parse(bad).is_err(), "{bad}");
        }
    }
}
