//! What QEMU's board of each architecture would refuse, said with its place in the file.

use super::super::model::{Arch, Topology};
use super::super::rules::TopologyError;
use super::super::schema::File;
use super::{Checked, span};
use std::ops::Range;

/// Most CPUs of Arm's virt board.
const MOST_ARM_CPUS: u32 = 512;
/// What pseries gives out memory in.
const POWER_BLOCK_MIB: u64 = 256;
/// The first cache size that a cell of a device tree cannot say.
const MOST_CACHE_KIB: u64 = 4 << 20;

/// Refuses what a board would.
pub(super) fn boards(topology: &Topology, file: &File) -> Checked<()> {
    let refuse =
        |board: &'static str, why: String, at: Range<usize>| Err(TopologyError::Board { board, why, at: span(at) });
    let shape = topology.shape;
    let power = topology.cpu.keys().all(|arch| *arch == Arch::Ppc64le);
    if shape.thread_groups > 1 && (!power || shape.thread_groups == shape.threads) {
        let why = "only a POWER core has thread groups, of two threads at least".to_string();
        return refuse("the board", why, file.shape.span());
    }
    for arch in topology.cpu.keys() {
        match arch {
            Arch::X86_64 => {}
            // hw/arm/virt.c, `max_cpus`: the redistributors of GICv3.
            Arch::Aarch64 if shape.cpus() > MOST_ARM_CPUS => {
                let why = format!("it takes {MOST_ARM_CPUS} CPUs, not {}", shape.cpus());
                return refuse("Arm's virt board", why, file.shape.span());
            }
            Arch::Aarch64 => {
                // A device tree's `cache-size` is one cell of 32 bits (Devicetree Specification 0.4, 3.8).
                if let Some(cache) = topology.caches.iter().find(|cache| cache.size_kib >= MOST_CACHE_KIB) {
                    let why = format!("a device tree cannot say an L{} of 4G or more", cache.level);
                    let written = file.cache.iter().find(|c| *c.get_ref().level.get_ref() == cache.level);
                    return refuse("Arm's virt board", why, written.unwrap_or(&file.cache[0]).span());
                }
            }
            // The firmware's script finds the CPUs by the name that their model gives them.
            Arch::Ppc64le if topology.cpu.get(arch).is_some_and(|cpu| cpu.qemu != "power10") => {
                return refuse(
                    "pseries",
                    "caches and thread groups are known for power10 only".into(),
                    file.cpu.span(),
                );
            }
            Arch::Ppc64le => {
                if !matches!(shape.threads, 1 | 2 | 4 | 8) {
                    let why = format!("a POWER core has 1, 2, 4 or 8 threads, not {}", shape.threads);
                    return refuse("pseries", why, file.shape.get_ref().threads.span());
                }
                // A device tree chains caches by `next-level-cache`, and powerpc's small cores share both or none.
                let has = |level: u32| topology.caches.iter().any(|cache| cache.level == level);
                if has(3) && !has(2) {
                    let why = "an L3 needs an L2 below it".to_string();
                    return refuse("pseries", why, file.shape.span());
                }
                // hw/ppc/spapr.c, `spapr_validate_node_memory`.
                if let Some(node) = topology.nodes.iter().find(|n| !n.memory_mib.is_multiple_of(POWER_BLOCK_MIB)) {
                    let why = format!("nodes have multiples of {POWER_BLOCK_MIB} MiB, not {}", node.memory_mib);
                    return refuse("pseries", why, file.nodes.span());
                }
            }
        }
        if *arch != Arch::X86_64 && !topology.paths.is_empty() {
            return refuse(
                "this board",
                "memory paths are a matter of ACPI, which only q35 has".into(),
                file.nodes.span(),
            );
        }
    }
    Ok(())
}
