//! The only speller of QEMU command lines: a resolved machine in, words out.

use super::forth;
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
    /// The edited device tree; Arm machines only ([`super::device_tree`]).
    pub device_tree: Option<PathBuf>,
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

/// The words that make an Arm QEMU write the device tree of this machine to `to` and quit.
pub fn dump_argv(machine: &Machine, to: &Path) -> Vec<String> {
    let mut options = vec![Opt::flag("nodefaults"), Opt::first("display", "none")];
    options.extend(machine_options(machine));
    options.extend(memory_options(machine));
    options.push(Opt::pairs("machine").with("dumpdtb", text(to)));
    options.iter().flat_map(Opt::words).collect()
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
    options.extend(memory_options(machine));
    if let Some(tree) = &machine.device_tree {
        options.push(Opt::verbatim("dtb", text(tree)));
    }
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

/// The board, the CPU model and the counts.
fn machine_options(machine: &Machine) -> Vec<Opt> {
    match machine.arch {
        Arch::X86_64 => q35(machine),
        Arch::Aarch64 => virt(machine),
        Arch::Ppc64le => pseries(machine),
    }
}

fn cpu_model(machine: &Machine) -> &str {
    machine.topology.cpu.get(&machine.arch).map_or("max", |cpu| cpu.qemu.as_str())
}

/// q35 with its caches.
fn q35(machine: &Machine) -> Vec<Opt> {
    let topology = &machine.topology;
    let many = topology.shape.cpus() > 255;
    let mut board = Opt::first("machine", "q35");
    if many && machine.accel == Accel::Kvm {
        // Interrupt remapping needs the I/O APIC in QEMU (QEMU manual, intel-iommu with KVM).
        board = board.with("kernel-irqchip", "split");
    }
    if !topology.paths.is_empty() {
        board = board.with("hmat", "on");
    }
    for (n, (cache, level)) in caches(topology).into_iter().enumerate() {
        board = board.with(format!("smp-cache.{n}.cache"), cache).with(format!("smp-cache.{n}.topology"), level);
    }
    let mut cpu = Opt::first("cpu", cpu_model(machine));
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

/// Arm's virt board. Its counts only number the CPUs: levels and caches stand in the edited device tree, which ACPI would hide.
fn virt(machine: &Machine) -> Vec<Opt> {
    let s = machine.topology.shape;
    let smp = Opt::first("smp", s.cpus().to_string())
        .with("sockets", s.packages)
        .with("clusters", s.dies * s.modules)
        .with("cores", s.cores * s.threads)
        .with("threads", 1);
    // GICv2 ends at 8 CPUs (QEMU manual, virt).
    let board = Opt::first("machine", "virt").with("gic-version", 3).with("acpi", "off");
    vec![board, Opt::first("cpu", cpu_model(machine)), smp]
}

/// POWER's paravirtual board, without the mitigations that emulation lacks. Its firmware runs a Forth script that adds caches and
/// thread groups to the device tree.
fn pseries(machine: &Machine) -> Vec<Opt> {
    let topology = &machine.topology;
    let s = topology.shape;
    let mut board = Opt::first("machine", "pseries");
    for (capability, value) in PSERIES_CAPABILITIES {
        board = board.with(*capability, value);
    }
    let smp = Opt::first("smp", s.cpus().to_string())
        .with("sockets", s.packages)
        .with("cores", s.dies * s.modules * s.cores)
        .with("threads", s.threads);
    let mut options = vec![board, Opt::first("cpu", cpu_model(machine)), smp];
    if let Some(script) = forth::script(topology) {
        options.push(Opt::verbatim("prom-env", "use-nvramrc?=true"));
        options.push(Opt::verbatim("prom-env", format!("nvramrc={script}")));
    }
    options
}

/// What emulated POWER CPUs do not have, and refuse to boot with (QEMU manual, pseries, "cap-…").
pub(super) const PSERIES_CAPABILITIES: &[(&str, &str)] =
    &[("cap-cfpc", "broken"), ("cap-sbbc", "broken"), ("cap-ibs", "broken"), ("cap-ccf-assist", "off")];

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
        Level::Thread | Level::Group | Level::Core => "core",
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

/// Shared memory in every node that has some: vhost-user needs to map it.
fn memory_options(machine: &Machine) -> Vec<Opt> {
    let topology = &machine.topology;
    let mut options = vec![Opt::first("m", format!("{}M", topology.memory_mib()))];
    for (n, node) in topology.nodes.iter().enumerate() {
        let mut numa = Opt::first("numa", "node").with("nodeid", n);
        if node.memory_mib > 0 {
            let backend = Opt::first("object", "memory-backend-memfd").with("id", format!("mem{n}"));
            options.push(backend.with("size", format!("{}M", node.memory_mib)).with("share", "on"));
            numa = numa.with("memdev", format!("mem{n}"));
        }
        match machine.arch {
            Arch::X86_64 | Arch::Aarch64 => {
                for range in node.cpus.to_string().split(',').filter(|range| !range.is_empty()) {
                    numa = numa.with("cpus", range);
                }
            }
            // pseries takes whole cores only, below.
            Arch::Ppc64le => {}
        }
        if !topology.paths.is_empty() {
            // A node with CPUs is its own; memory alone belongs to the nearest one (QEMU manual, -numa hmat-lb).
            let n = n as u32;
            let nearest = topology.nearest_path(n).filter(|_| node.cpus.is_empty());
            numa = numa.with("initiator", nearest.map_or(n, |path| path.from));
        }
        options.push(numa);
    }
    if machine.arch == Arch::Ppc64le {
        for (n, node) in topology.nodes.iter().enumerate() {
            for core in node.cpus.iter().step_by(topology.shape.threads as usize) {
                options.push(Opt::first("numa", "cpu").with("node-id", n).with("core-id", core));
            }
        }
    }
    for (from, row) in topology.distances.iter().enumerate() {
        for (to, distance) in row.iter().enumerate().filter(|(to, _)| *to != from) {
            options.push(Opt::first("numa", "dist").with("src", from).with("dst", to).with("val", distance));
        }
    }
    for path in &topology.paths {
        let fact = |what: &str| {
            let option = Opt::first("numa", "hmat-lb").with("initiator", path.from).with("target", path.to);
            option.with("hierarchy", "memory").with("data-type", format!("access-{what}"))
        };
        options.push(fact("latency").with("latency", path.latency_ns));
        options.push(fact("bandwidth").with("bandwidth", format!("{}M", path.bandwidth_mib)));
    }
    options
}

/// The kernel's command line.
fn append(machine: &Machine) -> String {
    let console = match machine.arch {
        Arch::X86_64 => "console=ttyS0",
        Arch::Aarch64 => "console=ttyAMA0",
        Arch::Ppc64le => "console=hvc0",
    };
    let mut words: Vec<String> =
        [console, "panic=-1", "oops=panic", "printk.devkmsg=on", "log_buf_len=4M", "sched_verbose", "nokaslr"]
            .map(String::from)
            .to_vec();
    let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_string()));
    match machine.arch {
        // One CPU after the other: parallel bring-up of emulated CPUs spins for minutes (24 CPUs: 45 s against 8.5 s).
        Arch::X86_64 => add(&["cpuhp.parallel=0", "mitigations=off", "nowatchdog"]),
        // 120 emulated CPUs drown in lock-up reports of each other. Their consoles cost a trap for every few bytes, and the domains of 120 CPUs are thousands of lines: those go to the log
        // alone, which the agent brings back.
        Arch::Aarch64 | Arch::Ppc64le => add(&["mitigations=off", "nowatchdog", "nmi_watchdog=0", "loglevel=4"]),
    }
    if (machine.accel, machine.clock) == (Accel::Tcg, Clock::Real) {
        // Emulated CPUs that wait for each other on a few real ones are late; that is no fault of the kernel's.
        add(&["rcupdate.rcu_cpu_stall_suppress=1", "sysctl.kernel.hung_task_timeout_secs=0"]);
    }
    match (machine.arch, machine.accel, machine.clock) {
        (_, Accel::Kvm, _) | (Arch::Aarch64 | Arch::Ppc64le, Accel::Tcg, _) => {}
        (Arch::X86_64, Accel::Tcg, Clock::Real) => add(&["tsc=reliable", "lpj=5000000"]),
        // Nothing is left to calibrate: the instruction clock is 1 GHz by definition.
        (Arch::X86_64, Accel::Tcg, Clock::Virtual) => {
            add(&["tsc=reliable", "tsc_early_khz=1000000", "lpj=1000000", "no_timer_check", "idle=halt"])
        }
    }
    let placement = &machine.topology.placement;
    if !placement.isolated.is_empty() {
        words.push(format!("isolcpus=domain,managed_irq,{}", placement.isolated));
    }
    if let Some(node) = placement.irq_node.and_then(|n| machine.topology.nodes.get(n as usize)) {
        words.push(format!("irqaffinity={}", node.cpus));
    }
    words.iter().map(String::as_str).chain(machine.append.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it to the letter.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The options that QEMU's last words are about. It names most of them itself (`qemu-system-x86_64: -smp 8: …`); where it names none,
/// as when an assertion fails, those that describe the machine are the ones to look at.
pub(super) fn blamed(words: &[String], said: &str) -> String {
    let options = || words.iter().zip(words.iter().skip(1)).filter(|(option, _)| option.starts_with('-'));
    let named = |(option, value): &(&String, &String)| {
        said.contains(&format!("{option} {value}")) || said.contains(&format!(" {option}:"))
    };
    let shown = |(option, value): (&String, &String)| format!("{option} {}", quote(value));
    let by_itself: Vec<String> = options().filter(named).map(shown).collect();
    if !by_itself.is_empty() {
        return by_itself.join("\n");
    }
    options()
        .filter(|(option, _)| ["-machine", "-cpu", "-smp"].contains(&option.as_str()))
        .map(shown)
        .collect::<Vec<_>>()
        .join("\n")
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

    fn machine(topology: &str, arch: Arch, accel: Accel, clock: Clock) -> Machine {
        Machine {
            topology: load(topology).expect("a built-in topology"),
            arch,
            accel,
            clock,
            seed: 42,
            kernel: "/k/bzImage".into(),
            initrd: "/k/initrd".into(),
            device_tree: (arch == Arch::Aarch64).then(|| "/k/machine.dtb".into()),
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
            let machine = machine(topology, Arch::X86_64, accel, clock);
            insta::assert_snapshot!(name, paste(binary(machine.arch), &argv(&machine)));
        }
    }

    /// Every built-in machine on every architecture that it names, at full size.
    #[test]
    fn every_machine_has_a_golden_command_line() {
        for name in crate::topology::names() {
            let topology = load(&name).expect("built in");
            for arch in topology.cpu.keys() {
                let machine = machine(&name, *arch, Accel::Tcg, Clock::Real);
                let golden = format!("machine_{}_{arch}", name.replace('-', "_"));
                insta::assert_snapshot!(golden, paste(binary(*arch), &argv(&machine)));
            }
        }
    }

    #[test]
    fn pasted_words_survive_a_shell() {
        let words = vec!["-append".to_string(), "a b".into(), "it's".into(), String::new()];
        assert_eq!(paste("qemu", &words), "qemu \\\n  -append 'a b' 'it'\\''s' ''");
    }

    #[test]
    fn the_option_to_blame_is_named() {
        let words: Vec<String> = ["-S", "-machine", "q35", "-cpu", "a,b", "-smp", "8"].map(str::to_string).to_vec();
        assert_eq!(blamed(&words, "qemu: -smp 8: too many"), "-smp 8");
        assert_eq!(blamed(&words, "encode_topo_cpuid1f: Assertion failed"), "-machine q35\n-cpu a,b\n-smp 8");
    }
}
