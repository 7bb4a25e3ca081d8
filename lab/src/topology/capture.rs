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
    /// Nodes cut something or are not in order.
    #[error(
        "node {node} has the CPUs {cpus}, which is not a run of whole cores; the language says nodes in equal runs"
    )]
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

/// CPU models of QEMU by (family, model) of Intel processors (arch/x86/include/asm/intel-family.h).
const MODELS: &[((&str, &str), &str)] = &[
    (("6", "85"), "Skylake-Server"),
    (("6", "106"), "Icelake-Server"),
    (("6", "143"), "SapphireRapids"),
    (("6", "173"), "GraniteRapids"),
    (("6", "175"), "SierraForest"),
    (("6", "221"), "ClearwaterForest"),
];

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
    let units = [
        // Where levels coincide, the first of this order is how people say it.
        (Level::Core, "core", cores),
        (Level::Package, "package", packages),
        (Level::Die, "die", dies),
        (Level::Module, "module", modules),
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
    let outermost = caches(seen, &order, &units, &mut line)?;
    nodes(seen, &order, core, count, &mut line)?;
    last_level(seen, &order, &units, outermost, &mut line);
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
    let key = (seen.model.family.as_str(), seen.model.model.as_str());
    match MODELS.iter().find(|(known, _)| *known == key && seen.model.vendor == "GenuineIntel") {
        Some((_, qemu)) => line(format!("qemu = \"{qemu}\"")),
        None => {
            line(format!("# QEMU has no model of its own for {}; this one boots everywhere.", seen.model.name.trim()));
            line("qemu = \"max\"".into());
            line(String::new());
            return;
        }
    }
    line(format!("family = {}\nmodel = {}\n", key.0, key.1));
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
    let mut outermost = Level::Core;
    // A level 4 cache is a memory-side one; the language ends at 3.
    for ((level, kind), found) in by_kind.into_iter().filter(|((level, _), _)| *level <= 3) {
        let shared = groups(order, found.iter().map(|cache| &cache.shared));
        let unit = units.iter().find(|(_, _, sets)| *sets == shared);
        let (unit, name) = unit.map(|(level, name, _)| (*level, *name)).ok_or_else(|| CaptureError::Cache {
            level,
            group: shared.first().map(CpuSet::to_string).unwrap_or_default(),
        })?;
        outermost = outermost.max(unit);
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
    Ok(outermost)
}

fn nodes(
    seen: &Observation,
    order: &Order,
    core: u32,
    cpus: u32,
    line: &mut impl FnMut(String),
) -> Result<(), CaptureError> {
    let with_cpus: Vec<_> = seen.nodes.iter().filter(|node| !node.cpus.is_empty()).collect();
    let mut sets: Vec<(CpuSet, u32, usize)> = Vec::new();
    for node in &with_cpus {
        let place = seen.nodes.iter().position(|other| other.node == node.node).unwrap_or(0);
        sets.push((order.map(&node.cpus), node.node, place));
    }
    sets.sort();
    let per_node = cpus / sets.len().max(1) as u32;
    for (n, (set, node, _)) in (0u32..).zip(&sets) {
        if *set != CpuSet::range(n * per_node, (n + 1) * per_node) || !per_node.is_multiple_of(core) {
            return Err(CaptureError::Nodes { node: *node, cpus: set.to_string() });
        }
    }
    line("\n[nodes]".into());
    let memoryless = seen.nodes.len() - with_cpus.len();
    if memoryless > 0 {
        line(format!("# {memoryless} node(s) without CPUs are left out: the language does not say them yet."));
    }
    line(format!("count = {}", sets.len().max(1)));
    let least = (256 + 2 * u64::from(cpus)).div_ceil(sets.len().max(1) as u64).max(128);
    let real: Vec<String> = with_cpus.iter().map(|node| format!("{} MiB", node.memory_kib / 1024)).collect();
    line(format!("# The machine's own nodes have {}; a guest needs little.", real.join(", ")));
    line(format!("guest_memory = \"{least}M\""));
    let cell = |from: usize, to: usize| seen.nodes[from].distances.get(to).copied().unwrap_or(10).to_string();
    let row =
        |from: usize| format!("[{}]", sets.iter().map(|(_, _, to)| cell(from, *to)).collect::<Vec<_>>().join(", "));
    let rows: Vec<String> = sets.iter().map(|(_, _, from)| row(*from)).collect();
    let rows = if rows.is_empty() { vec!["[10]".to_string()] } else { rows };
    line(format!("distances = [\n    {},\n]", rows.join(",\n    ")));
    Ok(())
}

fn last_level(
    seen: &Observation,
    order: &Order,
    units: &[(Level, &'static str, BTreeSet<CpuSet>)],
    outermost: Level,
    line: &mut impl FnMut(String),
) {
    let name = |level: Level| units.iter().find(|(l, _, _)| *l == level).map_or("node", |(_, name, _)| name);
    let llcs = groups(order, seen.cpus.iter().map(|cpu| &cpu.llc));
    let nodes = groups(order, seen.nodes.iter().map(|node| &node.cpus).filter(|cpus| !cpus.is_empty()));
    let flags = seen.cpus.iter().any(|cpu| cpu.domains.iter().any(|domain| !domain.flags.is_empty()));
    let of_cache = units.iter().find(|(level, _, _)| *level == outermost).map(|(_, _, sets)| sets);
    line("\n[scheduler]".into());
    let split = of_cache.is_some_and(|sets| sets.len() < nodes.len());
    match (flags, split) {
        // The scheduler's own word.
        (true, _) if Some(&llcs) == of_cache => line(format!("llc = \"{}\"", name(outermost))),
        (true, _) if llcs == nodes => line("llc = \"node\"".into()),
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
    use super::super::{Topology, parse, scale};
    use super::*;
    use topolab_wire::Domain;

    fn built_in(text: &str, by: u32) -> Topology {
        scale(&parse("t", text).expect("built in"), by).expect("a scale")
    }

    /// Everything but names and memory, which a capture chooses itself.
    fn essence(t: &Topology) -> impl PartialEq + std::fmt::Debug {
        let nodes: Vec<CpuSet> = t.nodes.iter().map(|node| node.cpus.clone()).collect();
        (t.cpu.clone(), t.shape, t.caches.clone(), nodes, t.distances.clone(), t.llc)
    }

    #[test]
    fn a_faithful_guest_gives_back_its_declaration() {
        for (text, by) in [
            (include_str!("../../../topologies/cwf-snc3.toml"), 12),
            (include_str!("../../../topologies/gnr-2s-snc3.toml"), 20),
            (include_str!("../../../topologies/epyc-nps4.toml"), 4),
            (include_str!("../../../topologies/power-like.toml"), 5),
            (include_str!("../../../topologies/smoke.toml"), 1),
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
