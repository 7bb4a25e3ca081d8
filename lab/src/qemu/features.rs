//! Which QEMU is here and what it can do, asked of the binary itself by a dry run: property lists and version texts lie
//! (QEMU 10.0 lists smp-cache for Arm's virt machine, which then rejects it).

use super::argv::{Machine, PSERIES_CAPABILITIES, binary, dump_argv};
use super::device_tree::edit;
use crate::fault::{Fault, Outcome, Trying};
use crate::paths::on_path;
use crate::topology::Arch;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A QEMU binary that was found and tried.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Qemu {
    /// The binary.
    pub path: PathBuf,
    /// What `--version` says, without the copyright.
    pub version: String,
    /// Whether its board takes what the lab builds on: q35 with smp-cache, which declared caches need, virt, pseries.
    pub board: Result<(), String>,
}

/// Finds the architecture's QEMU and tries it.
pub fn find(arch: Arch) -> Outcome<Qemu> {
    let program = binary(arch);
    let path = on_path(program).ok_or_else(|| {
        Fault::lab(format!("{program} is not installed")).help(format!("`topolab doctor --fix -a {arch}` installs it"))
    })?;
    let output = Command::new(&path).arg("--version").output().trying(program)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.lines().next().unwrap_or_default().trim_start_matches("QEMU emulator version ").to_string();
    let capabilities: Vec<String> =
        PSERIES_CAPABILITIES.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let board = match arch {
        Arch::X86_64 => "q35,smp-cache.0.cache=l2,smp-cache.0.topology=core".to_string(),
        Arch::Aarch64 => "virt,gic-version=3,acpi=off".to_string(),
        Arch::Ppc64le => format!("pseries,{}", capabilities.join(",")),
    };
    let board = dry_run(&path, &["-machine", &board])?;
    Ok(Qemu { path, version, board })
}

impl Qemu {
    /// Refuses a QEMU whose board cannot be the declared machines.
    pub fn require_board(&self, arch: Arch) -> Outcome<()> {
        let Err(words) = &self.board else { return Ok(()) };
        let lacks = match arch {
            Arch::X86_64 => "it cannot declare caches",
            Arch::Aarch64 => "its virt board has no GICv3",
            Arch::Ppc64le => "its pseries board lacks the capabilities that a TCG guest needs",
        };
        Err(Fault::lab(format!("QEMU {} is too old: {lacks}", self.version)).detail(words).help(format!(
            "QEMU 10.0 or newer is needed; `topolab doctor --fix -a {arch}` installs the backport of Debian 12"
        )))
    }
}

/// The device tree that QEMU makes for a machine, edited to be the declared one.
pub fn device_tree(qemu: &Qemu, machine: &Machine) -> Outcome<Vec<u8>> {
    let folder = tempfile::Builder::new().prefix("topolab-").tempdir().trying("a temporary folder")?;
    let raw = folder.path().join("dtb");
    let output = Command::new(&qemu.path)
        .args(dump_argv(machine, &raw))
        .stdin(Stdio::null())
        .output()
        .trying(qemu.path.display())?;
    match output.status.success() {
        true => edit(&std::fs::read(&raw).trying(raw.display())?, &machine.topology),
        false => Err(Fault::lab(format!("QEMU refused to describe {}", machine.topology.name))
            .detail(String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Starts QEMU stopped with these words and lets it quit; the inner error is QEMU's own words.
fn dry_run(path: &Path, words: &[&str]) -> Outcome<Result<(), String>> {
    let mut command = Command::new(path);
    command.args(["-S", "-display", "none", "-nodefaults", "-accel", "tcg", "-qmp", "stdio"]).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().trying(path.display())?;
    if let Some(mut stdin) = child.stdin.take() {
        use std::io::Write;
        // A QEMU that refuses its options is gone before it reads; its status says so.
        let _ = stdin.write_all(b"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"quit\"}\n");
    }
    let output = child.wait_with_output().trying(path.display())?;
    Ok(match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    })
}
