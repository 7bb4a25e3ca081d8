//! What a trial needs of the host and of its machine: memory, and patience.

use crate::bundle::Runs;
use crate::fault::{Fault, Outcome, Trying};
use crate::guest::Deadlines;
use crate::image::Image;
use crate::paths::available_memory;
use crate::plan::PlannedBundle;
use crate::qemu::Accel;
use crate::topology::Topology;
use topolab_wire::{Clock, Setting};

/// Memory of QEMU itself beside the guest's, in MiB, and what each vCPU adds (measured at 24 to 288 vCPUs).
const QEMU_MIB: u64 = 200;
const QEMU_MIB_PER_CPU: u64 = 4;

/// Largest program tree that travels in the initramfs on the real clock: it costs its size twice while the kernel unpacks it, and
/// saves the programs' pages from coming over virtiofs in the middle of a run.
const SMALL_TREE: u64 = 24 << 20;
/// Memory that a kernel with its agent leaves to nobody, in MiB, and what each CPU adds (measured with the lean kernel).
const KERNEL_MIB: u64 = 200;
const KERNEL_MIB_PER_CPU: u64 = 2;

/// Whether a bundle's programs travel in the initramfs.
pub(super) fn in_initramfs(image: &Image, clock: Clock) -> bool {
    match clock {
        // virtiofs answers when the host is ready, so nothing may come over it while the clock counts instructions.
        Clock::Virtual => true,
        Clock::Real => image.bytes <= SMALL_TREE,
    }
}

/// Refuses a machine whose memory does not hold the kernel, the programs and what they need.
pub fn require_memory(
    topology: &Topology,
    planned: &PlannedBundle,
    image: Option<&Image>,
    clock: Clock,
) -> Outcome<()> {
    let carried = image.filter(|image| in_initramfs(image, clock)).map_or(0, |image| (2 * image.bytes) >> 20);
    let kernel = KERNEL_MIB + KERNEL_MIB_PER_CPU * u64::from(topology.shape.cpus());
    let (programs, declared) = (planned.bundle.memory_mib, topology.memory_mib());
    let needed = kernel + carried + programs;
    match declared >= needed {
        true => Ok(()),
        false => Err(Fault::input(format!(
            "bundle {} needs {needed} MiB on {}, which declares {declared} MiB",
            planned.bundle.name, topology.name
        ))
        .detail(format!(
            "{kernel} MiB for the kernel, {carried} MiB for the initramfs, {programs} MiB for the programs"
        ))
        .help("give its nodes more memory, or take a larger part of the machine")),
    }
}

/// Patience that a healthy guest never needs, before its work: an emulated CPU takes about two seconds to bring up under the
/// virtual clock, and both cores may be busy with something else.
pub fn patience(topology: &Topology, accel: Accel) -> Deadlines {
    let cpus = u64::from(topology.shape.cpus());
    let boot_s = match accel {
        Accel::Kvm => 60 + cpus,
        Accel::Tcg => 120 + 8 * cpus,
    };
    Deadlines { boot_s, total_s: boot_s + 300, decisive: true }
}

/// Seconds of wall time that the ordered work may take beyond that. Deadlines are in guest time, which the real clock keeps; under the
/// virtual one the CPUs share one host thread, so a second of theirs may cost one for every CPU.
pub(super) fn work_s(planned: &PlannedBundle, topology: &Topology, clock: Clock, reps: u32) -> u64 {
    let (runs, cpus) = (u64::from(reps), u64::from(topology.shape.cpus()));
    match &planned.bundle.runs {
        Runs::Program(program) => {
            let ready: u64 = program.services.iter().map(|service| service.step.deadline_s + 10).sum();
            let prepare: u64 = program.prepare.iter().map(|step| step.deadline_s).sum();
            let guest = prepare + (runs + u64::from(program.warmup)) * (program.measured.deadline_s + 10 + ready);
            match clock {
                Clock::Real => guest,
                Clock::Virtual => guest.saturating_mul(cpus.clamp(4, 64)),
            }
        }
        Runs::Model(_) => {
            let number = |name: &str| match planned.values.get(name) {
                Some(Setting::Number(value)) => u64::try_from(*value).unwrap_or(0),
                Some(Setting::Word(_)) | None => 0,
            };
            // A message of a model costs the host up to a millisecond.
            let seconds = number("duration_ms").div_ceil(1000).max(1);
            let messages =
                number("loops").saturating_mul(number("groups").max(1)).saturating_mul(number("fds").max(1).pow(2));
            runs * (60 + 5 * cpus * seconds + messages / 1000)
        }
    }
}

/// Refuses a guest that the host's memory cannot hold, and says how many fit.
pub fn guests_that_fit(topology: &Topology) -> Outcome<usize> {
    let needed = topology.memory_mib() + QEMU_MIB + QEMU_MIB_PER_CPU * u64::from(topology.shape.cpus());
    let available = available_memory()? >> 20;
    match available / needed {
        0 => Err(Fault::lab(format!(
            "too little memory to boot {}: {needed} MiB are needed, {available} MiB are available",
            topology.name
        ))
        .help("scale the machine down with @1/N, or end other programs")),
        n => usize::try_from(n).trying("memory"),
    }
}
