//! The compiler, which is part of a kernel's key, and the programs that a kernel build needs.

use crate::fault::{Fault, Outcome, Trying};
use crate::paths::on_path;
use crate::topology::Arch;
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

/// Which compiler a kernel is built with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Toolchain {
    /// GCC and GNU binutils.
    #[default]
    Gcc,
    /// Clang, LLD and the LLVM tools (Documentation/kbuild/llvm.rst).
    Clang,
}

/// A compiler and its linker, by what they say of themselves, and how make is told to use them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compiler {
    /// First lines of their `--version`.
    pub(super) version: String,
    /// Words for make.
    pub(super) words: Vec<String>,
    /// Whether ccache stands in front of it; the result is the same (ccache(1)), so that it is no part of a key.
    pub(super) cached: bool,
}

/// What kbuild calls an architecture (`arch/`).
pub(super) fn kbuild_name(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "x86_64",
        Arch::Aarch64 => "arm64",
        Arch::Ppc64le => "powerpc",
    }
}

/// The GNU name that cross tools begin with, and Debian's package of the compiler; none on the architecture itself.
fn cross(arch: Arch) -> (&'static str, &'static str) {
    let little = cfg!(target_endian = "little");
    match arch {
        Arch::X86_64 if cfg!(target_arch = "x86_64") => ("", "gcc"),
        Arch::X86_64 => ("x86_64-linux-gnu-", "gcc-x86-64-linux-gnu"),
        Arch::Aarch64 if cfg!(target_arch = "aarch64") => ("", "gcc"),
        Arch::Aarch64 => ("aarch64-linux-gnu-", "gcc-aarch64-linux-gnu"),
        Arch::Ppc64le if cfg!(target_arch = "powerpc64") && little => ("", "gcc"),
        Arch::Ppc64le => ("powerpc64le-linux-gnu-", "gcc-powerpc64le-linux-gnu"),
    }
}

/// Debian's package of the cross compiler for an architecture's kernels, where one is needed.
pub fn cross_package(arch: Arch) -> Option<&'static str> {
    let (prefix, package) = cross(arch);
    (!prefix.is_empty()).then_some(package)
}

impl Compiler {
    /// Finds the compiler for an architecture.
    pub(super) fn find(toolchain: Toolchain, arch: Arch) -> Outcome<Self> {
        let missing = missing_programs();
        if !missing.is_empty() {
            let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
            let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
            return Err(Fault::lab(format!("a kernel build needs {}, not found here", programs.join(", ")))
                .help(format!("apt-get install {}, or `topolab doctor --fix`", packages.join(" "))));
        }
        let cached = on_path("ccache").is_some();
        let front = if cached { "ccache " } else { "" };
        let mut words = vec![format!("ARCH={}", kbuild_name(arch))];
        let (compiler, linker) = match toolchain {
            Toolchain::Gcc => {
                let (prefix, package) = cross(arch);
                let compiler = format!("{prefix}gcc");
                if on_path(&compiler).is_none() {
                    return Err(Fault::lab(format!("a kernel for {arch} needs {compiler}, not found here"))
                        .help(format!("apt-get install {package}, or `topolab doctor --fix -a {arch}`")));
                }
                if !prefix.is_empty() {
                    words.push(format!("CROSS_COMPILE={prefix}"));
                }
                words.extend([format!("CC={front}{compiler}"), format!("HOSTCC={front}gcc")]);
                (compiler, format!("{prefix}ld"))
            }
            Toolchain::Clang => {
                let suffix = newest_clang()?;
                words.push(format!("LLVM={}", if suffix.is_empty() { "1" } else { &suffix }));
                let compiler = format!("clang{suffix}");
                words.extend([format!("CC={front}{compiler}"), format!("HOSTCC={front}{compiler}")]);
                (compiler, format!("ld.lld{suffix}"))
            }
        };
        let first = |program: &str| -> Outcome<String> {
            let text = cmd!(program, "--version").stderr_null().read().trying(format!("{program} --version"))?;
            Ok(text.lines().next().unwrap_or_default().to_string())
        };
        Ok(Self { version: format!("{}, {}", first(&compiler)?, first(&linker)?), words, cached })
    }
}

/// The suffix of the newest complete LLVM: empty, or `-19` as Debian names its versions.
fn newest_clang() -> Outcome<String> {
    let complete = |suffix: &str| {
        ["clang", "ld.lld", "llvm-ar", "llvm-nm", "llvm-objcopy", "llvm-strip", "llvm-readelf"]
            .iter()
            .all(|program| on_path(&format!("{program}{suffix}")).is_some())
    };
    let versions = (11..100u32).rev().map(|version| format!("-{version}"));
    versions.chain([String::new()]).find(|suffix| complete(suffix)).ok_or_else(|| {
        Fault::lab(
            "no complete LLVM was found: clang, ld.lld, llvm-ar, llvm-nm, llvm-objcopy, llvm-strip, llvm-readelf",
        )
        .help("apt-get install clang-19 lld-19 llvm-19, or leave out --compiler clang")
    })
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
