//! Which accelerator works here. Opening /dev/kvm proves nothing (a paravirtual hypervisor opens it and lets a stock guest
//! die in early boot), so KVM counts only after a guest has booted on it.

use super::argv::{Accel, Machine, argv};
use super::features::Qemu;
use super::process::{Launch, start};
use crate::fault::{Outcome, Trying};
use std::path::Path;
use std::time::{Duration, Instant};
use topolab_wire::Marker;

/// How long the probe's guest may take to say hello: with hardware virtualisation two CPUs need about a second.
const PROBE_DEADLINE: Duration = Duration::from_secs(20);

/// What the probe found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Probe {
    /// Whether a guest booted.
    pub works: bool,
    /// One line: that it booted, or why it did not.
    pub reason: String,
}

/// Boots `machine` on KVM to the agent's hello. `memo` keeps the answer for this boot of the host and this QEMU.
pub fn probe_kvm(qemu: &Qemu, machine: &Machine, scratch: &Path, memo: &Path) -> Outcome<Probe> {
    let identity = identity(qemu);
    if let Some(known) = remembered(memo, &identity) {
        return Ok(known);
    }
    let probe = match std::fs::File::options().read(true).write(true).open("/dev/kvm") {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => no("this machine has no /dev/kvm"),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            no("/dev/kvm may not be opened by this user; join the group kvm")
        }
        Err(e) => no(&format!("/dev/kvm: {e}")),
        Ok(_) => {
            let tried = boot(qemu, machine, Accel::Kvm, scratch)?;
            // A kernel that emulation does not boot either says nothing about KVM, and is not remembered.
            if !tried.works && !boot(qemu, machine, Accel::Tcg, scratch)?.works {
                return Ok(no(&format!("{}; nor does this kernel boot emulated", tried.reason)));
            }
            tried
        }
    };
    let json = serde_json::to_vec(&(&identity, &probe)).trying("the probe as JSON")?;
    std::fs::write(memo, json).trying(memo.display())?;
    Ok(probe)
}

/// The remembered answer, when it is about this boot and this QEMU.
pub fn remembered(memo: &Path, identity: &str) -> Option<Probe> {
    let (known, probe): (String, Probe) = serde_json::from_slice(&std::fs::read(memo).ok()?).ok()?;
    (known == identity).then_some(probe)
}

/// The host's boot and the QEMU that an answer is about. A user who joins the group kvm logs in anew, with another set of
/// groups.
pub fn identity(qemu: &Qemu) -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let user = nix::unistd::geteuid();
    let groups = nix::unistd::getgroups().unwrap_or_default();
    format!("{} {} {} {user} {groups:?}", boot.trim(), qemu.path.display(), qemu.version)
}

fn no(reason: &str) -> Probe {
    Probe { works: false, reason: reason.to_string() }
}

fn boot(qemu: &Qemu, machine: &Machine, accel: Accel, scratch: &Path) -> Outcome<Probe> {
    let machine = Machine { accel, ..machine.clone() };
    let _ = std::fs::remove_file(&machine.console);
    let stderr = scratch.join("kvm.stderr");
    let words = argv(&machine);
    let launch =
        Launch { program: &qemu.path, words: &words, monitor: &machine.qmp, stderr: &stderr, clock: machine.clock };
    let mut running = match start(launch) {
        Ok(running) => running,
        Err(fault) => return Ok(no(&one_line(&fault.to_string()))),
    };
    let begun = Instant::now();
    loop {
        let console = std::fs::read(&machine.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        if console.lines().any(|line| matches!(Marker::parse(line), Some(Marker::Hello(_)))) {
            return Ok(Probe { works: true, reason: "a guest booted on KVM".into() });
        }
        if let Some(end) = running.ended()? {
            return Ok(no(&format!("a guest died on KVM: {}", one_line(&format!("{end:?}")))));
        }
        if running.paused_by_error() {
            let said = std::fs::read_to_string(&stderr).unwrap_or_default();
            let word = said.lines().find(|line| line.contains("KVM")).unwrap_or("KVM reported an internal error");
            return Ok(no(&format!("a guest died on KVM: {word}")));
        }
        if begun.elapsed() > PROBE_DEADLINE {
            return Ok(no(&format!("a guest on KVM said nothing for {} s", PROBE_DEADLINE.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
