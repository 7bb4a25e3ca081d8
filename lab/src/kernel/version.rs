//! Kernel versions: numbers, never text, so that 7.2.13 is newer than 7.2.9.

/// `7.2` or `7.2.13`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(Vec<u32>);

impl Version {
    /// Two or three numbers with dots between them, or nothing.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<u32> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        matches!(parts.len(), 2 | 3).then_some(Self(parts))
    }

    /// Whether it names one release rather than the newest of a series.
    pub(super) fn is_exact(&self) -> bool {
        self.0.len() == 3
    }

    /// Whether a release is this one, or of this series.
    pub(super) fn admits(&self, release: &Self) -> bool {
        release.0.starts_with(&self.0)
    }

    /// `7.2` of `7.2.13`.
    pub(super) fn series(&self) -> String {
        self.0.iter().take(2).map(u32::to_string).collect::<Vec<_>>().join(".")
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        let v = |text: &str| Version::parse(text).expect("a version");
        assert!(v("7.2.13") > v("7.2.9") && v("10.0") > v("9.9"));
        assert!(v("7.2").admits(&v("7.2.13")) && !v("7.2").admits(&v("7.21.3")) && !v("7.2.1").admits(&v("7.2.13")));
        assert_eq!((v("7.2.13").series(), v("7.2.13").is_exact(), v("7.2").is_exact()), ("7.2".into(), true, false));
        for bad in ["", "7", "7.x", "7.2.13.4", "7..2", "-7.2"] {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
    }
}
