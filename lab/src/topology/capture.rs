//! From what a kernel sees back to a declaration. What the language cannot say is refused by name; what had to be inferred
//! carries a comment. Pure: the reading is the agent's (`topolab_agent::observe`).

use super::model::{Level, size_text};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use topolab_wire::{Cache, CacheKind, Cpu, CpuSet, Observation};

/// Why a machine has no declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// No CPU was seen.
    #[error("no online CPU was found in this tree")]
    Nothing,
    /// Units of a level differ in size.
    #[error("the {level}s have {sizes} CPUs; the language says machines whose {level}s are equal")]
    Uneven {
        /// The level.
        level: &'static str,
        /// The sizes that occur.
        sizes: String,
    },
    /// A node cuts a core.
    #[error("node {node} has the CPUs {cpus}, which cuts cores; the language says nodes of whole cores")]
    Nodes {
        /// The node.
        node: u32,
        /// Its CPUs.
        cpus: String,
    },
    /// A cache is shared by no unit.
    #[error("the L{level} is shared by groups such as {group}, which are neither cores, modules, dies nor packages")]
    Cache {
        /// The level.
        level: u32,
        /// A group.
        group: String,
    },
}

/// CPU models of QEMU by (vendor, family, model): Intel's (arch/x86/include/asm/intel-family.h) and Arm's parts
/// (arch/arm64/include/asm/cputype.h).
const MODELS: &[((&str, &str, &str), &str)] = &[
    (("GenuineIntel", "6", "85"), "Skylake-Server"),
    (("GenuineIntel", "6", "106"), "Icelake-Server"),
    (("GenuineIntel", "6", "143"), "SapphireRapids"),
    (("GenuineIntel", "6", "173"), "GraniteRapids"),
    (("GenuineIntel", "6", "175"), "SierraForest"),
    (("GenuineIntel", "6", "221"), "ClearwaterForest"),
    (("0x41", "8", "0xd08"), "cortex-a72"),
    (("0x41", "8", "0xd0b"), "cortex-a76"),
    (("0x41", "8", "0xd0c"), "neoverse-n1"),
    (("0x41", "8", "0xd40"), "neoverse-v1"),
    (("0x41", "8", "0xd49"), "neoverse-n2"),
];
/// CPU models of QEMU by how a POWER kernel's name of the CPU begins (arch/powerpc/kernel/cpu_specs_book3s_64.h).
const POWERS: &[(&str, &str)] = &[("POWER10", "power10"), ("POWER9", "power9"), ("POWER8", "power8")];

/// The CPUs renumbered so that threads, cores, modules, dies and packages follow each other, as guests number them.
struct Order(BTreeMap<u32, u32>);

impl Order {
    fn new(seen: &Observation) -> Self {
        let node = |cpu: u32| seen.nodes.iter().position(|node| node.cpus.contains(cpu));
        let key = |c: &&Cpu| (c.package.first(), node(c.cpu), c.die.first(), c.cluster.first(), c.core.first(), c.cpu);
        let mut cpus: Vec<&Cpu> = seen.cpus.iter().collect();
        cpus.sort_by_key(key);
        Self((0..).zip(&cpus).map(|(place, cpu)| (cpu.cpu, place)).collect())
    }

    fn map(&self, set: &CpuSet) -> CpuSet {
        set.iter().filter_map(|cpu| self.0.get(&cpu).copied()).collect()
    }

    fn is_identity(&self) -> bool {
        self.0.iter().all(|(from, to)| from == to)
    }
}

/// The distinct sets, renumbered.
fn groups<'a>(order: &Order, sets: impl Iterator<Item = &'a CpuSet>) -> BTreeSet<CpuSet> {
    sets.map(|set| order.map(set)).collect()
}

/// The one size of a level's units.
fn equal(level: &'static str, units: &BTreeSet<CpuSet>) -> Result<u32, CaptureError> {
    let sizes: BTreeSet<usize> = units.iter().map(CpuSet::len).collect();
    match (sizes.len(), sizes.first()) {
        (1, Some(size)) if *size > 0 => Ok(*size as u32),
        _ => {
            let sizes = sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" and ");
            Err(CaptureError::Uneven { level, sizes })
        }
    }
}

/// Writes the declaration of an observed machine.
pub fn capture(title: &str, seen: &Observation) -> Result<String, CaptureError> {
    if seen.cpus.is_empty() {
        return Err(CaptureError::Nothing);
    }
    let order = Order::new(seen);
    let all: CpuSet = order.0.values().copied().collect();
    let whole = BTreeSet::from([all.clone()]);
    // A kernel that says nothing of a level leaves its sets empty: then the next wider one stands for it.
    let said = |field: fn(&Cpu) -> &CpuSet, wider: &BTreeSet<CpuSet>| {
        let found = groups(&order, seen.cpus.iter().map(field));
        if found.iter().any(CpuSet::is_empty) { wider.clone() } else { found }
    };
    let packages = said(|cpu| &cpu.package, &whole);
    let dies = said(|cpu| &cpu.die, &packages);
    let threads: BTreeSet<CpuSet> = all.iter().map(|cpu| CpuSet::range(cpu, cpu + 1)).collect();
    let cores = said(|cpu| &cpu.core, &threads);
    let clusters = said(|cpu| &cpu.cluster, &dies);
    // Clusters that are just the cores are no level of their own.
    let modules = if clusters == cores { dies.clone() } else { clusters };
    // What shares an L1 inside a core is a thread group.
    let inner = seen.cpus.iter().filter_map(|cpu| cpu.caches.iter().find(|cache| cache.level == 1));
    let thread_groups = groups(&order, inner.map(|cache| &cache.shared));
    let grouped = thread_groups.len() > cores.len() && thread_groups.iter().all(|group| group.len() > 1);
    let thread_groups = if grouped { thread_groups } else { cores.clone() };
    let units = [
        // Where levels coincide, the first of this order is how people say it.
        (Level::Core, "core", cores),
        (Level::Package, "package", packages),
        (Level::Die, "die", dies),
        (Level::Module, "module", modules),
        (Level::Group, "group", thread_groups),
    ];
    let mut sizes = Vec::new();
    for (_, name, sets) in &units {
        sizes.push(equal(name, sets)?);
    }
    let (core, package, die, module) = (sizes[0], sizes[1], sizes[2], sizes[3]);

    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!("# Captured from a running kernel: {} on {}.", seen.release, seen.arch));
    if !order.is_identity() {
        line("# Its CPUs are renumbered here: threads of a core follow each other, as in guests.".into());
    }
    line("schema = 1".into());
    line(format!("title = {}", quoted(title)));
    line(String::new());
    cpu_table(seen, &mut line);
    line("[shape]".into());
    let count = all.len() as u32;
    for (name, value) in [
        ("packages", count / package),
        ("dies", package / die),
        ("modules", die / module),
        ("cores", module / core),
        ("threads", core),
    ] {
        line(format!("{name} = {value}"));
    }
    if grouped {
        line(format!("thread_groups = {}", core / sizes[4]));
    }
    let outermost = caches(seen, &order, &units, &mut line)?;
    nodes(seen, &order, core, count, &mut line)?;
    last_level(seen, &order, &units, outermost, &mut line);
    capacities(seen, &order, &units, &mut line);
    placement(seen, &order, &mut line);
    Ok(out)
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

fn cpu_table(seen: &Observation, line: &mut impl FnMut(String)) {
    let arch = match seen.arch.as_str() {
        "powerpc64" | "ppc64le" => "ppc64le",
        "aarch64" => "aarch64",
        _ => "x86_64",
    };
    line(format!("[cpu.{arch}]"));
    let key = (seen.model.vendor.as_str(), seen.model.family.as_str(), seen.model.model.as_str());
    if let Some((_, qemu)) = MODELS.iter().find(|(known, _)| *known == key) {
        line(format!("qemu = \"{qemu}\"\nfamily = {}\nmodel = {}\n", key.1, key.2));
    } else if let Some((name, qemu)) = POWERS.iter().find(|(name, _)| seen.model.name.starts_with(name)) {
        line(format!("qemu = \"{qemu}\"\nname = \"{name}\"\n"));
    } else {
        line(format!("# QEMU has no model of its own for {}; this one boots everywhere.", seen.model.name.trim()));
        line("qemu = \"max\"\n".into());
    }
}

/// Writes the caches and returns the level of the outermost one.
fn caches(
    seen: &Observation,
    order: &Order,
    units: &[(Level, &'static str, BTreeSet<CpuSet>)],
    line: &mut impl FnMut(String),
) -> Result<Level, CaptureError> {
    let mut by_kind: BTreeMap<(u32, CacheKind), Vec<&Cache>> = BTreeMap::new();
    for cache in seen.cpus.iter().flat_map(|cpu| &cpu.caches) {
        by_kind.entry((cache.level, cache.kind)).or_default().push(cache);
    }
    let mut outermost = None;
    // A level 4 cache is a memory-side one; the language ends at 3.
    for ((level, kind), found) in by_kind.into_iter().filter(|((level, _), _)| *level <= 3) {
        let shared = groups(order, found.iter().map(|cache| &cache.shared));
        let unit = units.iter().find(|(_, _, sets)| *sets == shared);
        let (unit, name) = unit.map(|(level, name, _)| (*level, *name)).ok_or_else(|| CaptureError::Cache {
            level,
            group: shared.first().map(CpuSet::to_string).unwrap_or_default(),
        })?;
        outermost = outermost.max(Some(unit));
        let kind = match kind {
            CacheKind::Data => "data",
            CacheKind::Instruction => "instruction",
            CacheKind::Unified => "unified",
        };
        line(format!("\n[[cache]]\nlevel = {level}\nkind = \"{kind}\""));
        match found.iter().find_map(|cache| cache.size_kib) {
            Some(kib) => line(format!("size = \"{}\"", size_text(kib))),
            None => line("# inferred: the kernel does not know its size\nsize = \"1M\"".into()),
        }
        line(format!("shared_by = \"{name}\""));
    }
    Ok(outermost.unwrap_or(Level::Core))
}

fn nodes(
    seen: &Observation,
    order: &Order,
    core: u32,
    cpus: u32,
    line: &mut impl FnMut(String),
) -> Result<(), CaptureError> {
    let mut sets: Vec<(CpuSet, usize)> =
        seen.nodes.iter().enumerate().map(|(place, node)| (order.map(&node.cpus), place)).collect();
    // By CPUs, nodes of memory only behind the others.
    sets.sort_by_key(|(set, place)| (set.is_empty(), set.clone(), *place));
    if sets.is_empty() {
        sets.push((CpuSet::range(0, cpus), 0));
    }
    for (set, place) in &sets {
        let inside = |first: u32| CpuSet::range(first, first + core).intersection(set).len() as u32;
        if (0..cpus).step_by(core as usize).map(inside).any(|found| found != 0 && found != core) {
            let node = seen.nodes.get(*place).map_or(0, |node| node.node);
            return Err(CaptureError::Nodes { node, cpus: set.to_string() });
        }
    }
    let per_node = cpus / sets.len() as u32;
    let run = |n: u32| CpuSet::range(n * per_node, (n + 1) * per_node);
    let equal = cpus.is_multiple_of(sets.len() as u32) && (0u32..).zip(&sets).all(|(n, (set, _))| *set == run(n));
    line("\n[nodes]".into());
    let with_memory = seen.nodes.iter().filter(|node| node.memory_kib > 0).count().max(1) as u64;
    // pseries gives out memory in blocks of 256 MiB.
    let block = if seen.arch.starts_with("p") { 256 } else { 128 };
    let least = (256 + 2 * u64::from(cpus)).div_ceil(with_memory).max(128).next_multiple_of(block);
    let real: Vec<String> =
        sets.iter().filter_map(|(_, at)| seen.nodes.get(*at)).map(|n| format!("{} MiB", n.memory_kib / 1024)).collect();
    line(format!("# The machine's own nodes have {}; a guest needs little.", real.join(", ")));
    if equal {
        line(format!("count = {}\nguest_memory = \"{least}M\"", sets.len()));
    }
    let cell = |from: usize, to: usize| {
        let distance = seen.nodes.get(from).and_then(|node| node.distances.get(to)).copied();
        distance.unwrap_or(10).to_string()
    };
    let row = |from: usize| format!("[{}]", sets.iter().map(|(_, to)| cell(from, *to)).collect::<Vec<_>>().join(", "));
    let rows: Vec<String> = sets.iter().map(|(_, from)| row(*from)).collect();
    line(format!("distances = [\n    {},\n]", rows.join(",\n    ")));
    for (set, place) in sets.iter().filter(|_| !equal) {
        line("\n[[nodes.node]]".into());
        if !set.is_empty() {
            line(format!("cpus = \"{set}\""));
        }
        if seen.nodes.get(*place).is_none_or(|node| node.memory_kib > 0) {
            line(format!("guest_memory = \"{least}M\""));
        }
    }
    for (n, (_, place)) in sets.iter().enumerate() {
        if let Some((ns, mib)) = seen.nodes.get(*place).and_then(|node| Some((node.latency_ns?, node.bandwidth_mib?))) {
            line(format!(
                "# Memory of node {n}: {ns} ns, {mib} MiB/s from its nearest CPUs; [[nodes.path]] wants every pair, which sysfs does not say."
            ));
        }
    }
    Ok(())
}

/// Capacities, where CPUs differ in them.
fn capacities(
    seen: &Observation,
    order: &Order,
    units: &[(Level, &'static str, BTreeSet<CpuSet>)],
    line: &mut impl FnMut(String),
) {
    let all: BTreeMap<u32, u32> =
        seen.cpus.iter().filter_map(|cpu| Some((*order.0.get(&cpu.cpu)?, cpu.capacity?))).collect();
    let distinct: BTreeSet<u32> = all.values().copied().collect();
    if distinct.len() < 2 {
        return;
    }
    let even = |set: &CpuSet| set.iter().filter_map(|cpu| all.get(&cpu)).collect::<BTreeSet<_>>().len() == 1;
    // The widest unit within which they are equal says it shortest.
    let candidates = units.iter().filter(|(_, _, sets)| sets.iter().all(even));
    if let Some((_, name, sets)) = candidates.min_by_key(|(_, _, sets)| sets.len()) {
        let value = |set: &CpuSet| set.first().and_then(|cpu| all.get(&cpu)).copied().unwrap_or(1024).to_string();
        let values: Vec<String> = sets.iter().map(value).collect();
        line(format!("\n[capacity]\nper = \"{name}\"\nvalues = [{}]", values.join(", ")));
    }
}

/// What is kept off CPUs now.
fn placement(seen: &Observation, order: &Order, line: &mut impl FnMut(String)) {
    let later = order.map(&seen.partitioned.difference(&seen.isolated));
    // Newer kernels count partitions among the isolated CPUs; what the command line names was so from the boot on.
    let at_boot = seen.cmdline.split_whitespace().any(|word| word.starts_with("isolcpus="));
    let (boot, later) = match at_boot {
        true => (order.map(&seen.isolated), later),
        false => (CpuSet::default(), order.map(&seen.isolated.union(&seen.partitioned))),
    };
    if boot.is_empty() && later.is_empty() {
        return;
    }
    line("\n[isolation]".into());
    for (key, set) in [("boot", boot), ("cpuset", later)].iter().filter(|(_, set)| !set.is_empty()) {
        line(format!("{key} = \"{set}\""));
    }
}

fn last_level(
    seen: &Observation,
    order: &Order,
    units: &[(Level, &'static str, BTreeSet<CpuSet>)],
    outermost: Level,
    line: &mut impl FnMut(String),
) {
    let name = |level: Level| units.iter().find(|(l, _, _)| *l == level).map_or("node", |(_, name, _)| name);
    // Isolated CPUs have no domains, and say nothing about caches.
    let apart: CpuSet = seen.cpus.iter().filter(|cpu| cpu.domains.is_empty()).map(|cpu| cpu.cpu).collect();
    let apart = if apart.len() < seen.cpus.len() { apart } else { CpuSet::default() };
    let scheduled = seen.cpus.iter().filter(|cpu| !apart.contains(cpu.cpu));
    let llcs = groups(order, scheduled.map(|cpu| &cpu.llc));
    let apart = order.map(&apart);
    let without = |sets: &BTreeSet<CpuSet>| -> BTreeSet<CpuSet> {
        sets.iter().map(|set| set.difference(&apart)).filter(|set| !set.is_empty()).collect()
    };
    let nodes = groups(order, seen.nodes.iter().map(|node| &node.cpus).filter(|cpus| !cpus.is_empty()));
    let flags = seen.cpus.iter().any(|cpu| cpu.domains.iter().any(|domain| !domain.flags.is_empty()));
    let of_cache = units.iter().find(|(level, _, _)| *level == outermost).map(|(_, _, sets)| sets);
    line("\n[scheduler]".into());
    let split = of_cache.is_some_and(|sets| sets.len() < nodes.len());
    match (flags, split) {
        // The scheduler's own word.
        (true, _) if of_cache.is_some_and(|sets| without(sets) == llcs) => {
            line(format!("llc = \"{}\"", name(outermost)))
        }
        (true, _) if llcs == without(&nodes) => line("llc = \"node\"".into()),
        // A cluster can stand for a cache that is not there (drivers/base/arch_topology.c).
        (true, _) if units.iter().any(|(level, _, sets)| *level == Level::Module && without(sets) == llcs) => {
            line("llc = \"module\"".into());
        }
        (true, false) | (false, false) => {
            line(
                "# inferred from the outermost cache: the scheduler's domains could not be read (debugfs needs root)"
                    .into(),
            );
            line(format!("llc = \"{}\"", name(outermost)));
        }
        (true, true) | (false, true) => {
            line("# inferred: nodes split the outermost cache, and no cache domain crosses a node".into());
            line("llc = \"node\"".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::compare::tests::faithful;
    use super::super::{Arch, Topology, parse, scale};
    use super::*;
    use topolab_wire::Domain;

    fn built_in(text: &str, by: u32) -> Topology {
        scale(&parse("t", text).expect("built in"), by).expect("a scale")
    }

    /// Everything but names and memory, which a capture chooses itself.
    fn essence(t: &Topology) -> impl PartialEq + std::fmt::Debug {
        let nodes: Vec<CpuSet> = t.nodes.iter().map(|node| node.cpus.clone()).collect();
        let cpu = t.cpu.get(&Arch::X86_64).cloned();
        (cpu, t.shape, t.caches.clone(), nodes, t.distances.clone(), t.llc)
    }

    #[test]
    fn a_faithful_guest_gives_back_its_declaration() {
        for (text, by) in [
            (include_str!("../../../topologies/cwf-snc3.toml"), 12),
            (include_str!("../../../topologies/gnr-2s-snc3.toml"), 20),
            (include_str!("../../../topologies/epyc-nps4.toml"), 4),
            (include_str!("../../../topologies/power-like.toml"), 5),
            (include_str!("../../../topologies/smoke.toml"), 1),
            (include_str!("../../../topologies/cxl-tiers.toml"), 1),
        ] {
            let declared = built_in(text, by);
            let mut seen = faithful(&declared);
            for cpu in &mut seen.cpus {
                cpu.domains =
                    vec![Domain { name: "MC".into(), span: cpu.llc.clone(), flags: vec!["SD_SHARE_LLC".into()] }];
            }
            let captured = capture("t", &seen).expect("a declaration");
            let again = parse("t", &captured).unwrap_or_else(|e| panic!("{e}\n{captured}"));
            assert_eq!(essence(&again), essence(&declared), "{captured}");
        }
    }

    #[test]
    fn hyperthreads_numbered_last_are_brought_together() {
        let declared = built_in(include_str!("../../../topologies/spr-2s-snc2.toml"), 15);
        let mut seen = faithful(&declared);
        // Thread t of core c is CPU c + 8 t, as firmware numbers them.
        let renumber = |cpu: u32| cpu / 2 + 8 * (cpu % 2);
        let map = |set: &CpuSet| set.iter().map(renumber).collect::<CpuSet>();
        for cpu in &mut seen.cpus {
            cpu.cpu = renumber(cpu.cpu);
            for set in [&mut cpu.package, &mut cpu.die, &mut cpu.cluster, &mut cpu.core, &mut cpu.llc] {
                *set = map(set);
            }
            cpu.caches.iter_mut().for_each(|cache| cache.shared = map(&cache.shared));
        }
        seen.nodes.iter_mut().for_each(|node| node.cpus = map(&node.cpus));
        seen.cpus.sort_by_key(|cpu| cpu.cpu);
        let captured = capture("t", &seen).expect("a declaration");
        assert!(captured.contains("renumbered"), "{captured}");
        assert_eq!(parse("t", &captured).expect("a declaration").shape, declared.shape);
    }

    #[test]
    fn what_the_language_cannot_say_is_refused_by_name() {
        let declared = built_in(include_str!("../../../topologies/smoke.toml"), 1);
        let mut seen = faithful(&declared);
        seen.cpus[0].core = CpuSet::range(0, 2);
        assert!(matches!(capture("t", &seen), Err(CaptureError::Uneven { level: "core", .. })));
        seen.cpus.clear();
        assert_eq!(capture("t", &seen), Err(CaptureError::Nothing));
    }
}
