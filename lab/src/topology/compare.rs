//! Declared against observed, level by level (DESIGN §4).

use super::model::{Arch, Level, Topology, size_text};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use topolab_wire::{CacheKind, Cpu, CpuSet, Observation};

/// How a row came out.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", tag = "finding", content = "why")]
pub enum Finding {
    /// The guest sees what is declared.
    Same,
    /// The guest sees something else.
    Differs,
    /// This architecture or QEMU cannot show it; the reason.
    NotExpressible(String),
}

/// One compared thing.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// What: `cpus`, `modules`, `L2 sharing`, `node 1 distances`, …
    pub what: String,
    /// As declared.
    pub declared: String,
    /// As observed.
    pub observed: String,
    /// How it came out.
    #[serde(flatten)]
    pub finding: Finding,
}

/// All rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Comparison {
    /// In the order from CPUs to scheduler.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Whether nothing differs.
    pub fn matches(&self) -> bool {
        self.differing().next().is_none()
    }

    /// The rows that differ.
    pub fn differing(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.finding == Finding::Differs)
    }

    fn add(&mut self, what: impl Into<String>, declared: String, observed: String) {
        let finding = if declared == observed { Finding::Same } else { Finding::Differs };
        self.rows.push(Row { what: what.into(), declared, observed, finding });
    }

    fn add_inexpressible(&mut self, what: String, declared: String, observed: String, why: &str) {
        let finding = if declared == observed { Finding::Same } else { Finding::NotExpressible(why.into()) };
        self.rows.push(Row { what, declared, observed, finding });
    }
}

/// A family of CPU sets as text: how many, and which.
fn groups<'a>(sets: impl IntoIterator<Item = &'a CpuSet>) -> String {
    // Ordered by first CPU, so that the same groups are the same text.
    let distinct: BTreeSet<(Option<u32>, &CpuSet)> = sets.into_iter().map(|set| (set.first(), set)).collect();
    let shown: Vec<String> = distinct.iter().map(|(_, set)| set.to_string()).collect();
    match shown.len() {
        0..=8 => shown.join(" | "),
        n => format!("{n} × … {} | {} … {}", shown[0], shown[1], shown[n - 1]) + &digest(&shown),
    }
}

/// Long families are abbreviated for people; the digest keeps two different ones different.
fn digest(shown: &[String]) -> String {
    let hash = Sha256::digest(shown.join("|"));
    format!(" #{:02x}{:02x}", hash[0], hash[1])
}

/// Holds a guest's observation against its topology.
pub fn compare(topology: &Topology, arch: Arch, seen: &Observation) -> Comparison {
    let mut rows = Comparison::default();
    rows.add("CPUs online", topology.present().to_string(), seen.online.to_string());
    if let Some(cpu) = topology.cpu.get(&arch) {
        for (what, declared, observed) in
            [("CPU family", cpu.family, &seen.model.family), ("CPU model", cpu.model, &seen.model.model)]
        {
            if let Some(declared) = declared {
                rows.add(what, declared.to_string(), decimal(observed));
            }
        }
        if let Some(name) = &cpu.name {
            let named = seen.model.name.starts_with(name.as_str());
            rows.add("CPU name", name.clone(), if named { name.clone() } else { seen.model.name.clone() });
        }
    }
    let by = |field: fn(&Cpu) -> &CpuSet| groups(seen.cpus.iter().map(field));
    for (what, level, observed) in
        [("packages", Level::Package, by(|cpu| &cpu.package)), ("cores", Level::Core, by(|cpu| &cpu.core))]
    {
        rows.add(what, groups(&topology.present_units(level)), observed);
    }
    dies_and_modules(topology, arch, seen, &mut rows);
    caches(topology, arch, seen, &mut rows);
    undeclared_caches(topology, seen, &mut rows);
    nodes(topology, seen, &mut rows);
    last_level(topology, arch, seen, &mut rows);
    domains(topology, seen, &mut rows);
    placement(topology, arch, seen, &mut rows);
    rows
}

/// A number as the kernel prints it, in decimal: arm64 prints parts in hexadecimal.
fn decimal(text: &str) -> String {
    let hex = text.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    hex.map_or_else(|| text.to_string(), |number| number.to_string())
}

/// Levels that not every architecture has.
fn dies_and_modules(topology: &Topology, arch: Arch, seen: &Observation, rows: &mut Comparison) {
    let by = |field: fn(&Cpu) -> &CpuSet| groups(seen.cpus.iter().map(field));
    let silent = |field: fn(&Cpu) -> &CpuSet| seen.cpus.iter().all(|cpu| field(cpu).is_empty());
    let none = || "nothing".to_string();
    let declared = groups(&topology.present_units(Level::Die));
    match (silent(|cpu| &cpu.die), topology.shape.dies > 1) {
        (false, _) if arch == Arch::Ppc64le && by(|cpu| &cpu.die) == groups(&topology.present_units(Level::Node)) => {
            // arch/powerpc/include/asm/topology.h, `cpu_cpu_mask`.
            let why = "a powerpc kernel takes the node for the die";
            rows.add_inexpressible("dies".into(), declared, by(|cpu| &cpu.die), why);
        }
        (false, _) => rows.add("dies", declared, by(|cpu| &cpu.die)),
        (true, true) if arch == Arch::Aarch64 => {
            rows.add_inexpressible("dies".into(), declared, none(), "this architecture has no dies")
        }
        (true, false) if arch == Arch::Aarch64 => {}
        (true, _) => rows.add("dies", declared, none()),
    }
    // A machine whose modules are its cores or its dies has no module level, and kernels disagree on what to print then.
    if topology.shape.cores == 1 || topology.shape.modules == 1 {
        return;
    }
    let declared = groups(&topology.present_units(Level::Module));
    let observed = by(|cpu| &cpu.cluster);
    // An x86 kernel's cluster is whoever shares an L2 (arch/x86/kernel/smpboot.c, `match_l2c`).
    let l2 = topology.l2_unit();
    let narrow = arch == Arch::X86_64 && l2 < Level::Module && observed == groups(&topology.present_units(l2));
    match silent(|cpu| &cpu.cluster) {
        false if narrow => {
            let why = "an x86 kernel takes the sharers of the L2 for the cluster";
            rows.add_inexpressible("modules".into(), declared, observed, why);
        }
        false => rows.add("modules", declared, observed),
        true if arch == Arch::Ppc64le => {
            rows.add_inexpressible("modules".into(), declared, none(), "this architecture has no clusters")
        }
        true => rows.add("modules", declared, none()),
    }
}

/// The scheduler's view of caches, without the CPUs that have no domains.
fn last_level(topology: &Topology, arch: Arch, seen: &Observation, rows: &mut Comparison) {
    let apart = topology.apart();
    let shared = |unit: Level| -> Vec<CpuSet> {
        let alone = apart.iter().map(|cpu| CpuSet::range(cpu, cpu + 1));
        let rest = topology.present_units(unit).into_iter().map(|set| set.difference(&apart));
        rest.filter(|set| !set.is_empty()).chain(alone).collect()
    };
    let what = "scheduler's LLC";
    let (declared, observed) = (groups(&shared(topology.llc)), groups(seen.cpus.iter().map(|cpu| &cpu.llc)));
    // powerpc's scheduler takes the CPUs that share the L2 (arch/powerpc/kernel/smp.c, `shared_cache_mask`).
    let l2 = topology.l2_unit();
    match arch {
        Arch::Ppc64le if l2 != topology.llc && groups(&shared(l2)) == observed => {
            let why = "a powerpc kernel takes the sharers of the L2";
            rows.add_inexpressible(what.into(), declared, observed, why);
        }
        Arch::Ppc64le | Arch::Aarch64 | Arch::X86_64 => rows.add(what, declared, observed),
    }
}

/// Capacities, isolation and interrupts, where they are declared.
fn placement(topology: &Topology, arch: Arch, seen: &Observation, rows: &mut Comparison) {
    if !topology.capacities.is_empty() {
        let text = |values: Vec<(u32, Option<u32>)>| {
            let known: BTreeSet<Option<u32>> = values.iter().map(|(_, capacity)| *capacity).collect();
            let with = |wanted: Option<u32>| -> CpuSet {
                values.iter().filter(|(_, capacity)| *capacity == wanted).map(|(cpu, _)| *cpu).collect()
            };
            let word = |capacity: Option<u32>| capacity.map_or("?".to_string(), |value| value.to_string());
            known.into_iter().map(|c| format!("{}: {}", word(c), with(c))).collect::<Vec<_>>().join(" | ")
        };
        let present = topology.present();
        let declared = (0..).zip(topology.capacities.iter().map(|value| Some(*value)));
        let declared = text(declared.filter(|(cpu, _)| present.contains(*cpu)).collect());
        let observed = text(seen.cpus.iter().map(|cpu| (cpu.cpu, cpu.capacity)).collect());
        let plain = seen.cpus.iter().all(|cpu| matches!(cpu.capacity, None | Some(1024)));
        match arch {
            Arch::X86_64 | Arch::Ppc64le if !plain => rows.add("capacities", declared, observed),
            Arch::Aarch64 => rows.add("capacities", declared, observed),
            Arch::X86_64 | Arch::Ppc64le => {
                let why = "only a device tree can give a guest capacities, and this architecture's kernel reads none";
                rows.add_inexpressible("capacities".into(), declared, observed, why);
            }
        }
    }
    let wanted = &topology.placement;
    if !wanted.isolated.is_empty() {
        // Newer kernels count partitions among the isolated CPUs (kernel/cgroup/cpuset.c); those have a row of their own.
        let observed = seen.isolated.difference(&wanted.partition);
        rows.add("isolated at boot", wanted.isolated.to_string(), observed.to_string());
    }
    if !wanted.partition.is_empty() {
        // The file counts those of the boot too (kernel/cgroup/cpuset.c, `isolated_cpus`).
        let observed = seen.partitioned.difference(&wanted.isolated);
        rows.add("isolated by cpuset", wanted.partition.to_string(), observed.to_string());
    }
    if let Some(node) = wanted.irq_node {
        let declared = topology.nodes.get(node as usize).map(|node| node.cpus.to_string()).unwrap_or_default();
        rows.add("interrupts", declared, seen.irq_affinity.to_string());
    }
}

fn caches(topology: &Topology, arch: Arch, seen: &Observation, rows: &mut Comparison) {
    for cache in &topology.caches {
        let letter = match cache.kind {
            CacheKind::Data => "d",
            CacheKind::Instruction => "i",
            CacheKind::Unified => "",
        };
        let name = format!("L{}{letter}", cache.level);
        let found = |cpu: &'_ Cpu| cpu.caches.iter().find(|c| c.level == cache.level && c.kind == cache.kind).cloned();
        let observed: Vec<_> = seen.cpus.iter().filter_map(found).collect();
        let mut shared = groups(observed.iter().map(|c| &c.shared));
        if observed.len() != seen.cpus.len() {
            shared.push_str(&format!(" (on {} of {} CPUs)", observed.len(), seen.cpus.len()));
        }
        let (what, declared) = (format!("{name} sharing"), groups(&topology.present_units(cache.shared_by)));
        let alone = || groups(&topology.present_units(Level::Thread));
        match arch {
            // A level 1 cache is a property of the CPU's own node in a device tree (drivers/base/cacheinfo.c).
            Arch::Aarch64 if cache.level == 1 && topology.shape.threads > 1 && shared == alone() => {
                let why = "a device tree gives every thread a level 1 cache of its own";
                rows.add_inexpressible(what, declared, shared, why);
            }
            Arch::Ppc64le
                if cache.level > 1
                    && topology.shape.thread_groups > 1
                    && cache.shared_by > Level::Group
                    && shared == groups(&topology.present_units(Level::Group)) =>
            {
                // One property for both (arch/powerpc/kernel/smp.c, THREAD_GROUP_SHARE_L2_L3).
                let why = "the small cores of a POWER core share L2 and L3 alike";
                rows.add_inexpressible(what, declared, shared, why);
            }
            Arch::X86_64 | Arch::Aarch64 | Arch::Ppc64le => rows.add(what, declared, shared),
        }
        let sizes: BTreeSet<String> = observed.iter().map(|c| c.size_kib.map_or("?".into(), size_text)).collect();
        let (what, sizes) = (format!("{name} size"), sizes.into_iter().collect::<Vec<_>>().join(" "));
        let declared = size_text(cache.size_kib);
        // These sizes are written into the device tree; pseries' L1 is the CPU model's.
        match arch {
            Arch::Aarch64 => rows.add(what, declared, sizes),
            Arch::Ppc64le if cache.level > 1 => rows.add(what, declared, sizes),
            Arch::X86_64 | Arch::Ppc64le => {
                rows.add_inexpressible(what, declared, sizes, "QEMU's CPU model fixes cache sizes")
            }
        }
    }
}

/// Caches that the guest shows and nobody declared.
fn undeclared_caches(topology: &Topology, seen: &Observation, rows: &mut Comparison) {
    let shown: BTreeSet<_> = seen.cpus.iter().flat_map(|cpu| &cpu.caches).map(|c| (c.level, c.kind)).collect();
    for (level, kind) in shown {
        if !topology.caches.iter().any(|c| c.level == level && c.kind == kind) {
            rows.add(format!("L{level} {kind:?}").to_lowercase(), "none".into(), "present".into());
        }
    }
}

/// Share of a node's memory that a kernel may keep for itself before it counts the rest: page structures, its image and the
/// initramfs.
const KEPT_BY_THE_KERNEL: f64 = 0.25;

/// The kernel's node for each declared one. Linux may renumber nodes, so those with CPUs are found by them; nodes of memory only
/// keep their order among themselves.
fn places(topology: &Topology, seen: &Observation) -> Vec<Option<usize>> {
    let mut bare = seen.nodes.iter().enumerate().filter(|(_, node)| node.cpus.is_empty()).map(|(at, _)| at);
    let present = topology.present();
    // A node whose CPUs are all off is one of memory only to the kernel.
    let running = |node: &super::model::NodeDecl| node.cpus.intersection(&present);
    let place = |node: &super::model::NodeDecl| match running(node) {
        none if none.is_empty() => bare.next(),
        cpus => seen.nodes.iter().position(|other| other.cpus == cpus),
    };
    topology.nodes.iter().map(place).collect()
}

fn nodes(topology: &Topology, seen: &Observation, rows: &mut Comparison) {
    let sets = |all: Vec<&CpuSet>| {
        let bare = all.iter().filter(|cpus| cpus.is_empty()).count();
        let more = if bare == 0 { String::new() } else { format!(" | {bare} of memory only") };
        groups(all.into_iter().filter(|cpus| !cpus.is_empty())) + &more
    };
    let present = topology.present();
    let declared: Vec<CpuSet> = topology.nodes.iter().map(|node| node.cpus.intersection(&present)).collect();
    rows.add("nodes", sets(declared.iter().collect()), sets(seen.nodes.iter().map(|node| &node.cpus).collect()));
    let order = places(topology, seen);
    for (n, node) in topology.nodes.iter().enumerate() {
        let declared = format!("{}M", node.memory_mib);
        let kib = order[n].map_or(0, |at| seen.nodes[at].memory_kib);
        let least = node.memory_mib as f64 * 1024.0 * (1.0 - KEPT_BY_THE_KERNEL);
        let fits = kib as f64 >= least && kib <= node.memory_mib * 1024;
        rows.add(format!("node {n} memory"), declared.clone(), if fits { declared } else { format!("{}M", kib >> 10) });
    }
    for (n, declared) in topology.distances.iter().enumerate() {
        let cell = |to: &Option<usize>| match (order[n], to) {
            (Some(from), Some(to)) => seen.nodes[from].distances.get(*to).map_or("?".into(), u32::to_string),
            (None, _) | (_, None) => "?".to_string(),
        };
        let observed: Vec<String> = order.iter().map(cell).collect();
        let declared: Vec<String> = declared.iter().map(u32::to_string).collect();
        rows.add(format!("node {n} distances"), declared.join(" "), observed.join(" "));
    }
    // The kernel shows each memory's best path (drivers/acpi/numa/hmat.c, `hmat_update_target_attrs`).
    let targets: BTreeSet<u32> = topology.paths.iter().map(|path| path.to).collect();
    for target in targets {
        let best = topology.nearest_path(target);
        let text = |ns: Option<u32>, mib: Option<u64>| {
            let word = |value: Option<u64>| value.map_or("?".to_string(), |value| value.to_string());
            format!("{} ns, {} MiB/s", word(ns.map(u64::from)), word(mib))
        };
        let declared = text(best.map(|path| path.latency_ns), best.map(|path| path.bandwidth_mib));
        let found = order.get(target as usize).copied().flatten().map(|at| &seen.nodes[at]);
        let observed = text(found.and_then(|node| node.latency_ns), found.and_then(|node| node.bandwidth_mib));
        rows.add(format!("node {target} path"), declared, observed);
    }
}

/// The domains that must be there: SMT for threads, CLS for modules inside an LLC, MC for an LLC wider than both, NUMA
/// above nodes. Which name the widest domain inside a node carries depends on the kernel, so only presence is compared.
fn domains(topology: &Topology, seen: &Observation, rows: &mut Comparison) {
    // A CPU has a domain of a level when another one that is scheduled shares that level with it.
    let apart = topology.apart();
    let scheduled = topology.present().difference(&apart);
    let with_company = |level: Level| -> CpuSet {
        let units = topology.present_units(level).into_iter().map(|unit| unit.intersection(&scheduled));
        units.filter(|unit| unit.len() > 1).flat_map(|unit| unit.iter().collect::<Vec<_>>()).collect()
    };
    let nodes = topology.present_units(Level::Node);
    let several = nodes.iter().filter(|node| !node.intersection(&scheduled).is_empty()).count() > 1;
    let numa = if several { scheduled.clone() } else { CpuSet::default() };
    let word = |cpus: &CpuSet| match cpus {
        none if none.is_empty() => "none".to_string(),
        all if *all == seen.online => "every CPU".to_string(),
        some => some.to_string(),
    };
    let has = |name: &str| -> CpuSet {
        let with = seen.cpus.iter().filter(|cpu| cpu.domains.iter().any(|domain| domain.name == name));
        with.map(|cpu| cpu.cpu).collect()
    };
    // A powerpc kernel's SMT level is the small core; elsewhere the group is the core.
    rows.add("SMT domains", word(&with_company(Level::Group)), word(&has("SMT")));
    rows.add("NUMA domains", word(&numa), word(&has("NUMA")));
    if !apart.is_empty() {
        let free = seen.cpus.iter().filter(|cpu| cpu.domains.is_empty()).map(|cpu| cpu.cpu).collect::<CpuSet>();
        // The last one that is scheduled has nobody to share a domain with.
        let lone = if scheduled.len() == 1 { scheduled.clone() } else { CpuSet::default() };
        rows.add("CPUs without domains", apart.union(&lone).to_string(), free.to_string());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{parse, scale};
    use super::*;
    use topolab_wire::{Cache, CpuModel, Domain, Node};

    fn machine() -> Topology {
        let full = parse("cwf-snc3", include_str!("../../../topologies/cwf-snc3.toml")).expect("the example");
        scale(&full, 12).expect("1/12")
    }

    /// The observation of a guest that is the machine.
    pub(crate) fn faithful(t: &Topology) -> Observation {
        let unit =
            |level: Level, cpu: u32| t.units(level).into_iter().find(|set| set.contains(cpu)).unwrap_or_default();
        let cpus = (0..t.shape.cpus()).map(|cpu| Cpu {
            cpu,
            package: unit(Level::Package, cpu),
            die: unit(Level::Die, cpu),
            cluster: unit(Level::Module, cpu),
            core: unit(Level::Core, cpu),
            capacity: None,
            caches: t
                .caches
                .iter()
                .map(|c| Cache {
                    level: c.level,
                    kind: c.kind,
                    size_kib: Some(c.size_kib),
                    shared: unit(c.shared_by, cpu),
                })
                .collect(),
            domains: vec![Domain { name: "NUMA".into(), span: CpuSet::range(0, t.shape.cpus()), flags: vec![] }],
            llc: unit(t.llc, cpu),
        });
        Observation {
            version: 1,
            arch: "x86_64".into(),
            release: "7.2".into(),
            cmdline: String::new(),
            model: model(t),
            possible: CpuSet::range(0, t.shape.cpus()),
            online: CpuSet::range(0, t.shape.cpus()),
            isolated: CpuSet::default(),
            partitioned: CpuSet::default(),
            irq_affinity: CpuSet::default(),
            firmware: topolab_wire::Firmware::default(),
            cpus: cpus.collect(),
            nodes: t
                .nodes
                .iter()
                .zip(&t.distances)
                .enumerate()
                .map(|(n, (node, distances))| Node {
                    node: n as u32,
                    cpus: node.cpus.clone(),
                    memory_kib: node.memory_mib * 1024 - 4096,
                    latency_ns: None,
                    bandwidth_mib: None,
                    distances: distances.clone(),
                })
                .collect(),
        }
    }

    fn model(t: &Topology) -> CpuModel {
        let cpu = &t.cpu[&Arch::X86_64];
        let text = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
        CpuModel {
            vendor: "GenuineIntel".into(),
            family: text(cpu.family),
            model: text(cpu.model),
            name: String::new(),
        }
    }

    fn differing(seen: &Observation) -> Vec<String> {
        compare(&machine(), Arch::X86_64, seen).differing().map(|row| row.what.clone()).collect()
    }

    #[test]
    fn a_faithful_guest_matches_and_each_lie_is_named() {
        let good = faithful(&machine());
        assert_eq!(differing(&good), [""; 0]);

        let mut lie = good.clone();
        lie.cpus[3].llc = CpuSet::range(0, 16);
        assert_eq!(differing(&lie), ["scheduler's LLC"]);

        let mut lie = good.clone();
        lie.nodes[0].distances = vec![10, 21, 17];
        assert_eq!(differing(&lie), ["node 0 distances"]);

        let mut lie = good.clone();
        lie.online = CpuSet::range(0, 23);
        assert_eq!(differing(&lie), ["CPUs online"]);

        let mut lie = good.clone();
        lie.cpus.iter_mut().for_each(|cpu| cpu.caches[2].shared = CpuSet::range(0, 24));
        assert_eq!(differing(&lie), ["L2 sharing"]);

        let mut lie = good.clone();
        lie.nodes[1].memory_kib /= 2;
        assert_eq!(differing(&lie), ["node 1 memory"]);

        let mut lie = good.clone();
        lie.cpus[5].caches.pop();
        assert_eq!(differing(&lie), ["L3 sharing"]);

        let mut lie = good;
        lie.model.model = "143".into();
        assert_eq!(differing(&lie), ["CPU model"]);
    }

    #[test]
    fn a_renumbered_node_is_the_same_node() {
        let mut seen = faithful(&machine());
        seen.nodes.swap(0, 2);
        for node in &mut seen.nodes {
            node.distances.reverse();
        }
        assert_eq!(differing(&seen), [""; 0]);
    }

    #[test]
    fn a_cache_size_that_the_cpu_model_fixes_is_not_a_mismatch() {
        let mut seen = faithful(&machine());
        seen.cpus.iter_mut().for_each(|cpu| cpu.caches[3].size_kib = Some(16 << 10));
        let compared = compare(&machine(), Arch::X86_64, &seen);
        assert!(compared.matches());
        assert!(
            compared
                .rows
                .iter()
                .any(|row| row.what == "L3 size" && row.observed == "16M" && row.finding != Finding::Same)
        );
    }
}
