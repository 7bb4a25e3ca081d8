//! The only speller of QEMU command lines: a resolved machine in, words out.

use super::options::Opt;
use crate::topology::{Arch, Level, Topology};
use std::path::{Path, PathBuf};
use topolab_wire::{CacheKind, Clock};

/// How the guest's instructions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Accel {
    /// Hardware virtualisation.
    Kvm,
    /// Emulation: one host thread per vCPU on the real clock, one for all under the virtual clock.
    Tcg,
}

/// A virtiofs share as the guest's device sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Tag to mount by.
    pub tag: String,
    /// The vhost-user socket.
    pub socket: PathBuf,
}

/// Everything that decides a command line.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The declared machine.
    pub topology: Topology,
    /// Its architecture.
    pub arch: Arch,
    /// How it runs.
    pub accel: Accel,
    /// Its clock.
    pub clock: Clock,
    /// Seed of the guest's entropy under the virtual clock.
    pub seed: u64,
    /// Kernel image.
    pub kernel: PathBuf,
    /// Initramfs.
    pub initrd: PathBuf,
    /// Words after the lab's own on the kernel's command line.
    pub append: Vec<String>,
    /// File for the console.
    pub console: PathBuf,
    /// Socket for QMP.
    pub qmp: PathBuf,
    /// Shares.
    pub shares: Vec<Share>,
}

/// The QEMU program of an architecture.
pub fn binary(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "qemu-system-x86_64",
        Arch::Aarch64 => "qemu-system-aarch64",
        Arch::Ppc64le => "qemu-system-ppc64",
    }
}

/// The words after the program's name.
pub fn argv(machine: &Machine) -> Vec<String> {
    let mut options = vec![Opt::flag("nodefaults"), Opt::first("display", "none"), Opt::flag("no-reboot")];
    // Stopped until the monitor has shaken hands: what the monitor does while the guest runs wakes QEMU's main loop, and which
    // of its threads runs a due timer then depends on the host (qemu_timer_notify_cb kicks the first CPU from any but its own).
    options.push(Opt::flag("S"));
    // Threads with names: people find a vCPU in top by its own, and so does the turnstile.
    options.push(Opt::pairs("name").with("guest", "topolab").with("debug-threads", "on"));
    options.extend(machine_options(machine));
    options.extend(accel_options(machine));
    options.extend(memory_options(&machine.topology));
    options.push(Opt::verbatim("kernel", text(&machine.kernel)));
    options.push(Opt::verbatim("initrd", text(&machine.initrd)));
    options.push(Opt::verbatim("append", append(machine)));
    options.push(Opt::first("chardev", "file").with("id", "console").with("path", text(&machine.console)));
    options.push(Opt::first("serial", "chardev:console"));
    let qmp = Opt::first("chardev", "socket").with("id", "qmp").with("path", text(&machine.qmp));
    options.push(qmp.with("server", "on").with("wait", "off"));
    options.push(Opt::pairs("mon").with("chardev", "qmp").with("mode", "control"));
    for (n, share) in machine.shares.iter().enumerate() {
        options.push(Opt::first("chardev", "socket").with("id", format!("fs{n}")).with("path", text(&share.socket)));
        options
            .push(Opt::first("device", "vhost-user-fs-pci").with("chardev", format!("fs{n}")).with("tag", &share.tag));
    }
    options.iter().flat_map(Opt::words).collect()
}

/// Paths come from the lab itself, which refuses those that are not UTF-8 before it gets here.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// q35 with its caches, CPU model and counts.
fn machine_options(machine: &Machine) -> Vec<Opt> {
    let topology = &machine.topology;
    let many = topology.shape.cpus() > 255;
    let mut board = Opt::first("machine", "q35");
    if many && machine.accel == Accel::Kvm {
        // Interrupt remapping needs the I/O APIC in QEMU (QEMU manual, intel-iommu with KVM).
        board = board.with("kernel-irqchip", "split");
    }
    for (n, (cache, level)) in caches(topology).into_iter().enumerate() {
        board = board.with(format!("smp-cache.{n}.cache"), cache).with(format!("smp-cache.{n}.topology"), level);
    }
    let model = topology.cpu.get(&machine.arch).map_or("max", |cpu| cpu.qemu.as_str());
    let mut cpu = Opt::first("cpu", model);
    if machine.accel == Accel::Tcg {
        // Emulated MWAIT is a spin when several vCPUs share a thread; HLT is not (target/i386/tcg/misc_helper.c).
        cpu = cpu.with("monitor", "off");
    }
    let s = topology.shape;
    let smp = Opt::first("smp", s.cpus().to_string())
        .with("sockets", s.packages)
        .with("dies", s.dies)
        .with("modules", s.modules)
        .with("cores", s.cores)
        .with("threads", s.threads);
    let mut options = vec![board, cpu, smp];
    if many {
        // Beyond 8-bit APIC ids, interrupts need remapping (QEMU manual, intel-iommu).
        options.push(Opt::first("device", "intel-iommu").with("intremap", "on").with("eim", "on"));
    }
    options
}

/// The caches in the order and the words that QEMU wants (qapi/machine-common.json, `CacheLevelAndType` and
/// `CpuTopologyLevel`).
fn caches(topology: &Topology) -> Vec<(&'static str, &'static str)> {
    let name = |level: u32, kind: CacheKind| match (level, kind) {
        (1, CacheKind::Data) => Some("l1d"),
        (1, CacheKind::Instruction) => Some("l1i"),
        (2, CacheKind::Unified) => Some("l2"),
        (3, CacheKind::Unified) => Some("l3"),
        (_, _) => None,
    };
    let unit = |level: Level| match level {
        Level::Thread | Level::Core => "core",
        Level::Module => "module",
        Level::Die => "die",
        Level::Node | Level::Package => "socket",
    };
    topology.caches.iter().filter_map(|c| name(c.level, c.kind).map(|name| (name, unit(c.shared_by)))).collect()
}

fn accel_options(machine: &Machine) -> Vec<Opt> {
    match (machine.accel, machine.clock) {
        (Accel::Kvm, _) => vec![Opt::first("accel", "kvm")],
        (Accel::Tcg, Clock::Real) => vec![Opt::first("accel", "tcg").with("thread", "multi")],
        (Accel::Tcg, Clock::Virtual) => vec![
            Opt::first("accel", "tcg").with("thread", "single"),
            // One nanosecond an instruction; idle time passes at once.
            Opt::pairs("icount").with("shift", 0).with("sleep", "off"),
            Opt::pairs("rtc").with("base", "2026-01-01").with("clock", "vm"),
            Opt::first("seed", (machine.seed & 0xffff_ffff).to_string()),
        ],
    }
}

/// Shared memory in every node: vhost-user needs to map it.
fn memory_options(topology: &Topology) -> Vec<Opt> {
    let mut options = vec![Opt::first("m", format!("{}M", topology.memory_mib()))];
    for (n, node) in topology.nodes.iter().enumerate() {
        let backend = Opt::first("object", "memory-backend-memfd").with("id", format!("mem{n}"));
        options.push(backend.with("size", format!("{}M", node.memory_mib)).with("share", "on"));
        let mut numa = Opt::first("numa", "node").with("nodeid", n).with("memdev", format!("mem{n}"));
        for range in node.cpus.to_string().split(',') {
            numa = numa.with("cpus", range);
        }
        options.push(numa);
    }
    for (from, row) in topology.distances.iter().enumerate() {
        for (to, distance) in row.iter().enumerate().filter(|(to, _)| *to != from) {
            options.push(Opt::first("numa", "dist").with("src", from).with("dst", to).with("val", distance));
        }
    }
    options
}

/// The kernel's command line.
fn append(machine: &Machine) -> String {
    let mut words = vec![
        "console=ttyS0",
        "panic=-1",
        "oops=panic",
        "printk.devkmsg=on",
        "log_buf_len=4M",
        "sched_verbose",
        "nokaslr",
    ];
    // One CPU after the other: parallel bring-up of emulated CPUs spins for minutes (24 CPUs: 45 s against 8.5 s).
    words.extend(["cpuhp.parallel=0", "mitigations=off", "nowatchdog"]);
    match (machine.accel, machine.clock) {
        (Accel::Kvm, _) => {}
        (Accel::Tcg, Clock::Real) => words.extend(["tsc=reliable", "lpj=5000000"]),
        // Nothing is left to calibrate: the instruction clock is 1 GHz by definition.
        (Accel::Tcg, Clock::Virtual) => {
            words.extend(["tsc=reliable", "tsc_early_khz=1000000", "lpj=1000000", "no_timer_check", "idle=halt"])
        }
    }
    words.iter().copied().chain(machine.append.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it to the letter.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A command line that a person can paste into a shell.
pub fn paste(program: &str, words: &[String]) -> String {
    let mut out = program.to_string();
    for word in words {
        // An option begins a line, its value follows it.
        out.push_str(if word.starts_with('-') { " \\\n  " } else { " " });
        out.push_str(&quote(word));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::load;

    fn machine(topology: &str, accel: Accel, clock: Clock) -> Machine {
        Machine {
            topology: load(topology).expect("a built-in topology"),
            arch: Arch::X86_64,
            accel,
            clock,
            seed: 42,
            kernel: "/k/bzImage".into(),
            initrd: "/k/initrd".into(),
            append: vec!["extra=1".into()],
            console: "/r/a,b/console".into(),
            qmp: "/s/qmp".into(),
            shares: vec![Share { tag: "results".into(), socket: "/s/fs0".into() }],
        }
    }

    #[test]
    fn golden_command_lines() {
        for (name, topology, accel, clock) in [
            ("cwf_scaled_virtual", "cwf-snc3@1/12", Accel::Tcg, Clock::Virtual),
            ("cwf_full_real", "cwf-snc3", Accel::Tcg, Clock::Real),
            ("smoke_kvm", "smoke", Accel::Kvm, Clock::Real),
        ] {
            let machine = machine(topology, accel, clock);
            insta::assert_snapshot!(name, paste(binary(machine.arch), &argv(&machine)));
        }
    }

    #[test]
    fn pasted_words_survive_a_shell() {
        let words = vec!["-append".to_string(), "a b".into(), "it's".into(), String::new()];
        assert_eq!(paste("qemu", &words), "qemu \\\n  -append 'a b' 'it'\\''s' ''");
    }
}
