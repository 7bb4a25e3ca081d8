//! The compiler, which is part of a kernel's key, and the programs that a kernel build needs.

use crate::fault::{Fault, Outcome, Trying};
use crate::qemu::on_path;
use duct::cmd;

/// Programs that a kernel build calls (Documentation/process/changes.rst), with the Debian package that has each.
pub const REQUIRED_PROGRAMS: &[(&str, &str)] = &[
    ("gcc", "gcc"),
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("git", "git"),
    ("xz", "xz-utils"),
    ("ld", "binutils"),
    ("cpio", "cpio"),
];

/// A compiler and its linker, by what they say of themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// First lines of their `--version`.
    pub version: String,
}

impl Compiler {
    /// The host's GCC.
    pub fn find() -> Outcome<Self> {
        let missing = missing_programs();
        if !missing.is_empty() {
            let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
            let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
            return Err(Fault::lab(format!("a kernel build needs {}, not found here", programs.join(", ")))
                .help(format!("apt-get install {}, or `topolab doctor --fix`", packages.join(" "))));
        }
        let text = cmd!("gcc", "--version").stderr_null().read().trying("gcc --version")?;
        let linker = cmd!("ld", "--version").stderr_null().read().trying("ld --version")?;
        let first = |text: &str| text.lines().next().unwrap_or_default().to_string();
        Ok(Self { version: format!("{}, {}", first(&text), first(&linker)) })
    }
}

/// What a kernel build needs and does not find, as (program, package). Headers count by the file that includes them.
pub fn missing_programs() -> Vec<(&'static str, &'static str)> {
    let mut missing: Vec<_> =
        REQUIRED_PROGRAMS.iter().copied().filter(|(program, _)| on_path(program).is_none()).collect();
    // objtool reads ELF through libelf's headers.
    if !std::path::Path::new("/usr/include/gelf.h").exists() {
        missing.push(("gelf.h", "libelf-dev"));
    }
    missing
}
