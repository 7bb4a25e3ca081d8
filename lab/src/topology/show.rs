//! A topology as text, for people.

use super::model::{Arch, Level, Topology, size_text};
use std::fmt::Write;
use topolab_wire::{CacheKind, CpuSet};

/// Describes a machine in a dozen lines.
pub fn show(t: &Topology) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!("{}: {}", t.name, t.title));
    let s = t.shape;
    line(format!(
        "  shape   {} package(s) × {} die(s) × {} module(s) × {} core(s) × {} thread(s) = {} CPUs",
        s.packages,
        s.dies,
        s.modules,
        s.cores,
        s.threads,
        s.cpus()
    ));
    for (arch, cpu) in &t.cpu {
        line(format!("  cpu     {arch}: {}", cpu_text(*arch, &cpu.qemu)));
    }
    for cache in &t.caches {
        let kind = match cache.kind {
            CacheKind::Data => "data",
            CacheKind::Instruction => "instruction",
            CacheKind::Unified => "unified",
        };
        let units = t.units(cache.shared_by).len();
        line(format!(
            "  L{}      {kind}, {}, one per {} ({units})",
            cache.level,
            size_text(cache.size_kib),
            cache.shared_by
        ));
    }
    for (n, node) in t.nodes.iter().enumerate() {
        let distances: Vec<String> = t.distances[n].iter().map(u32::to_string).collect();
        line(format!(
            "  node {n}  CPUs {}, {} MiB in a guest, distances {}",
            node.cpus,
            node.memory_mib,
            distances.join(" ")
        ));
    }
    let llcs: Vec<String> = t.llcs().iter().map(CpuSet::to_string).collect();
    let per = if t.llc == Level::Node { "node".to_string() } else { t.llc.to_string() };
    line(format!("  LLC     one per {per} in the scheduler's eyes: {}", abbreviated(&llcs)));
    for loss in &t.losses {
        line(format!("  scaled  {loss}"));
    }
    out
}

fn cpu_text(arch: Arch, qemu: &str) -> String {
    match arch {
        Arch::X86_64 => format!("{qemu} (q35)"),
        Arch::Aarch64 => format!("{qemu} (virt)"),
        Arch::Ppc64le => format!("{qemu} (pseries)"),
    }
}

fn abbreviated(items: &[String]) -> String {
    match items.len() {
        0..=8 => items.join(" | "),
        n => format!("{} | {} | … | {} ({n})", items[0], items[1], items[n - 1]),
    }
}
