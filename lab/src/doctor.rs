//! `topolab doctor`: what this machine has and lacks for the lab's work, each lack with the command that mends it.

use crate::bench;
use crate::cancel::Cancel;
use crate::fault::{Fault, Outcome, Trying};
use crate::image;
use crate::kernel;
use crate::paths::{CacheDir, available_memory, free_bytes, on_path};
use crate::qemu;
use crate::topology::Arch;
use duct::cmd;

/// Disk for one kernel source, two builds and an image.
const DISK_MIB: u64 = 6 << 10;
/// Memory for the first example's two guests side by side.
const MEMORY_MIB: u64 = 3 << 10;
/// Debian packages that the lab's work needs beyond a base system: QEMU, a kernel build, and apt's own tools.
const PACKAGES: &[&str] = &[
    "gcc",
    "make",
    "flex",
    "bison",
    "bc",
    "git",
    "xz-utils",
    "binutils",
    "cpio",
    "libelf-dev",
    "libc6-dev",
    "ca-certificates",
];

/// QEMU's package for an architecture; taken from the release's backports where the release's own is too old.
fn qemu_package(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "qemu-system-x86",
        Arch::Aarch64 => "qemu-system-arm",
        Arch::Ppc64le => "qemu-system-ppc",
    }
}

/// How one thing stands.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// What was looked at.
    pub what: String,
    /// Whether the lab can work with it.
    pub state: State,
    /// What was found.
    pub found: String,
    /// How to mend it.
    pub mend: Option<String>,
}

/// Whether the lab can work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Yes.
    Good,
    /// Yes, but less well.
    Limited,
    /// No.
    Bad,
}

fn check(what: &str, state: State, found: impl Into<String>, mend: Option<String>) -> Check {
    Check { what: what.into(), state, found: found.into(), mend }
}

/// Looks at everything.
pub fn examine(cache: &CacheDir) -> Outcome<Vec<Check>> {
    let mut checks = vec![toolchain(), archive(), qemu_check(Arch::X86_64)];
    checks.extend([Arch::Aarch64, Arch::Ppc64le].map(foreign));
    checks.push(kvm(cache)?);
    checks.push(space(
        "disk",
        free_bytes(cache.root())? >> 20,
        DISK_MIB,
        "the cache's file system; --cache DIR puts it elsewhere",
    ));
    checks.push(space("memory", available_memory()? >> 20, MEMORY_MIB, "available; scale machines down with @1/N"));
    checks.push(check("cache", State::Good, cache.root().display().to_string(), None));
    Ok(checks)
}

/// Whether the lab can work with what was found.
pub fn fit(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.state != State::Bad)
}

fn toolchain() -> Check {
    let missing = kernel::missing_programs();
    match missing.is_empty() {
        true => {
            let version = kernel::compiler_version().unwrap_or_default();
            check("kernel build", State::Good, version, None)
        }
        false => {
            let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
            let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
            let mend = format!("apt-get install {}", packages.join(" "));
            check("kernel build", State::Bad, format!("missing: {}", names.join(" ")), Some(mend))
        }
    }
}

fn archive() -> Check {
    match on_path("apt-get").and(on_path("dpkg-deb")) {
        Some(_) => check("Debian archive", State::Good, "apt-get and dpkg-deb, for kernel sources and programs", None),
        None => check("Debian archive", State::Limited, "no apt here: only -k image:FILE and modelled bundles", None),
    }
}

/// Guests of another architecture: a bonus, so their absence is no fault of the machine.
fn foreign(arch: Arch) -> Check {
    let check = qemu_check(arch);
    match (check.state, image::agent_digest(arch)) {
        (State::Good, Ok(_)) => check,
        (State::Good | State::Limited, Err(fault)) => {
            Check { state: State::Limited, found: fault.message, mend: fault.help, ..check }
        }
        (State::Bad | State::Limited, _) => Check { state: State::Limited, ..check },
    }
}

fn qemu_check(arch: Arch) -> Check {
    let what = format!("QEMU {arch}");
    let mend = || {
        let package = qemu_package(arch);
        Some(format!("topolab doctor --fix -a {arch}, or apt-get install -t RELEASE-backports {package}"))
    };
    match qemu::find(arch) {
        Err(fault) => check(&what, State::Bad, fault.message, mend()),
        Ok(found) => match &found.board {
            Ok(()) => check(&what, State::Good, format!("{}, declares caches", found.version), None),
            Err(words) => {
                let first = words.lines().next().unwrap_or_default();
                check(&what, State::Bad, format!("{} is too old: {first}", found.version), mend())
            }
        },
    }
}

/// KVM is judged by booting, so it needs a kernel: the newest one of the cache, or nothing is claimed.
fn kvm(cache: &CacheDir) -> Outcome<Check> {
    let emulate = "guests are emulated: deterministic runs and placement work, wall-clock timing is no evidence";
    let Ok(qemu) = qemu::find(Arch::X86_64) else {
        return Ok(check("KVM", State::Limited, "not tried, since there is no QEMU", None));
    };
    let probe = match (bench::known_probe(&qemu, cache), kernel::cached(cache)?.first()) {
        (Some(known), _) => known,
        (None, Some(kernel)) => bench::probe(&qemu, kernel, cache)?,
        (None, None) => {
            let mend = Some("topolab kernel build debian:7.2, then topolab doctor".to_string());
            return Ok(check(
                "KVM",
                State::Limited,
                "not tried: there is no kernel in the cache to boot on it yet",
                mend,
            ));
        }
    };
    Ok(match probe.works {
        true => check("KVM", State::Good, probe.reason, None),
        false => check("KVM", State::Limited, format!("{}; {emulate}", probe.reason), None),
    })
}

fn space(what: &str, found: u64, needed: u64, where_: &str) -> Check {
    // What a step really needs is checked before it begins; a warm cache needs little.
    let state = if found >= needed { State::Good } else { State::Limited };
    let mend = (state == State::Limited).then(|| format!("{needed} MiB are comfortable: {where_}"));
    check(what, state, format!("{found} MiB free"), mend)
}

/// Installs what is missing, as root or through sudo, and says each command before it runs.
pub fn fix(arches: &[Arch], cancel: &Cancel) -> Outcome<()> {
    let missing: Vec<&str> = PACKAGES.iter().copied().filter(|package| !installed(package)).collect();
    if !missing.is_empty() {
        as_root(&["apt-get", "update", "-q"])?;
        let words: Vec<&str> =
            ["apt-get", "install", "-q", "-y", "--no-install-recommends"].into_iter().chain(missing).collect();
        as_root(&words)?;
    }
    cancel.check()?;
    let crosses: Vec<&str> =
        arches.iter().filter_map(|arch| kernel::cross_package(*arch)).filter(|p| !installed(p)).collect();
    if !crosses.is_empty() {
        as_root(&["apt-get", "update", "-q"])?;
        as_root(&[&["apt-get", "install", "-q", "-y", "--no-install-recommends"], crosses.as_slice()].concat())?;
    }
    cancel.check()?;
    let unusable = |arch: &&Arch| !qemu::find(**arch).is_ok_and(|qemu| qemu.board.is_ok());
    let missing: Vec<&str> = arches.iter().filter(unusable).map(|arch| qemu_package(*arch)).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => install_qemu(&missing),
    }
}

/// Installs QEMU from the release's backports, through a list of its own: the system's sources stay as they are, and no
/// other release is seen, so that nothing else is upgraded.
fn install_qemu(packages: &[&str]) -> Outcome<()> {
    let folder = tempfile::Builder::new().prefix("topolab-apt-").tempdir().trying("a temporary folder")?;
    // apt's own user must be able to enter it.
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).trying("a temporary folder")?;
    let (sources, backports) = crate::apt::backports_source()?;
    let parts = folder.path().join("parts");
    let lists = folder.path().join("lists/partial");
    for path in [&parts, &lists] {
        std::fs::create_dir_all(path).trying(path.display())?;
    }
    std::fs::write(parts.join("topolab.sources"), sources).trying(parts.display())?;
    let options = [
        "-o".to_string(),
        "Dir::Etc::sourcelist=/dev/null".into(),
        "-o".into(),
        format!("Dir::Etc::sourceparts={}", parts.display()),
        "-o".into(),
        format!("Dir::State::lists={}", folder.path().join("lists").display()),
    ];
    let run = |words: &[&str]| {
        let all: Vec<&str> =
            ["apt-get"].into_iter().chain(options.iter().map(String::as_str)).chain(words.iter().copied()).collect();
        as_root(&all)
    };
    let outcome = run(&["update", "-q"]).and_then(|()| {
        run(&[&["install", "-q", "-y", "--no-install-recommends", "-t", &backports], packages].concat())
    });
    // The lists belong to root, so root removes them.
    let removed = as_root(&["rm", "-rf", &folder.path().display().to_string()]);
    outcome.and(removed)
}

fn installed(package: &str) -> bool {
    let status = cmd!("dpkg-query", "-W", "-f", "${Status}", package).stderr_null().read();
    status.is_ok_and(|status| status == "install ok installed")
}

fn as_root(words: &[&str]) -> Outcome<()> {
    let root = nix::unistd::geteuid().is_root();
    // sudo drops the environment, so what debconf must know goes behind it.
    let before: &[&str] = if root { &["env"] } else { &["sudo", "env"] };
    let all: Vec<&str> = [before, &["DEBIAN_FRONTEND=noninteractive"], words].concat();
    // Said whatever else is quiet: nobody's root does anything unsaid.
    eprintln!("running: {}", all.join(" "));
    let output = cmd(all[0], &all[1..]).stdout_to_stderr().unchecked().run().trying(all[0])?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Fault::lab(format!("`{}` failed ({})", all.join(" "), output.status))),
    }
}
