//! Checks a written topology rule by rule and resolves it: nodes in [`nodes`], the boards' limits in [`boards`], the rest here. The
//! rules and their words are in `rules`.

mod boards;
mod nodes;

use super::costs::{Cost, Costs};
use super::model::{Arch, CacheDecl, CpuDecl, Level, NodeDecl, Placement, Shape, Topology};
use super::rules::{MOST_CPUS, TopologyError};
use super::schema::{Cache, Capacity, File, ShapeTable};
use miette::SourceSpan;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use topolab_wire::CpuSet;

/// Smallest memory of a guest, in MiB, and what each CPU adds: a kernel with its agent boots in 256 MiB and keeps about
/// 2 MiB a CPU (measured at 24 to 288 CPUs with the lean kernel).
const LEAST_MEMORY_MIB: u64 = 256;
type Checked<T> = Result<T, TopologyError>;

fn span(range: Range<usize>) -> SourceSpan {
    (range.start, range.len()).into()
}

/// Reads and checks a topology's text.
pub fn parse(name: &str, text: &str) -> Checked<Topology> {
    let file: File = toml::from_str(text)
        .map_err(|e| TopologyError::Syntax { message: e.message().to_string(), at: e.span().map(span) })?;
    if *file.schema.get_ref() != 1 {
        return Err(TopologyError::Schema { given: *file.schema.get_ref(), at: span(file.schema.span()) });
    }
    let shape = shape(&file.shape)?;
    let caches = caches(&file.cache)?;
    let nodes = nodes::nodes(&shape, &file.nodes)?;
    let distances = nodes::distances(nodes.len() as u32, file.nodes.get_ref())?;
    let mut topology = Topology {
        name: name.to_string(),
        title: file.title.clone(),
        cpu: cpu(&file.cpu)?,
        shape,
        caches,
        nodes,
        distances,
        nodes_named: !file.nodes.get_ref().node.is_empty(),
        paths: Vec::new(),
        capacities: Vec::new(),
        placement: Placement::default(),
        costs: costs(&file)?,
        llc: *file.scheduler.llc.get_ref(),
        losses: Vec::new(),
    };
    last_level(&topology, &file.scheduler.llc)?;
    memory(&topology, span(file.nodes.span()))?;
    topology.paths = nodes::paths(&topology, file.nodes.get_ref())?;
    if let Some(capacity) = &file.capacity {
        topology.capacities = capacities(&topology, capacity)?;
    }
    topology.placement = placement(&topology, &file)?;
    boards::boards(&topology, &file)?;
    Ok(topology)
}

fn cpu(table: &Spanned<BTreeMap<String, super::schema::Cpu>>) -> Checked<BTreeMap<Arch, CpuDecl>> {
    let mut all = BTreeMap::new();
    let unknown = |given: &str| TopologyError::Arch { given: given.to_string(), at: span(table.span()) };
    for (name, cpu) in table.get_ref() {
        let arch = Arch::named(name).ok_or_else(|| unknown(name))?;
        let qemu = cpu.qemu.get_ref();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if qemu.is_empty() || !qemu.chars().all(plain) {
            return Err(TopologyError::CpuModel { given: qemu.clone(), at: span(cpu.qemu.span()) });
        }
        all.insert(arch, CpuDecl { qemu: qemu.clone(), family: cpu.family, model: cpu.model, name: cpu.name.clone() });
    }
    match all.is_empty() {
        true => Err(unknown("(none)")),
        false => Ok(all),
    }
}

fn shape(table: &Spanned<ShapeTable>) -> Checked<Shape> {
    let t = table.get_ref();
    let count = |what: &'static str, value: &Spanned<u32>| match value.get_ref() {
        0 => Err(TopologyError::ZeroCount { what, at: span(value.span()) }),
        n => Ok(*n),
    };
    let shape = Shape {
        packages: count("packages", &t.packages)?,
        dies: count("dies", &t.dies)?,
        modules: count("modules", &t.modules)?,
        cores: count("cores", &t.cores)?,
        threads: count("threads", &t.threads)?,
        thread_groups: t.thread_groups.as_ref().map_or(Ok(1), |groups| count("thread_groups", groups))?,
    };
    if let Some(groups) = &t.thread_groups
        && !shape.threads.is_multiple_of(shape.thread_groups)
    {
        let (groups, threads, at) = (shape.thread_groups, shape.threads, span(groups.span()));
        return Err(TopologyError::ThreadGroups { groups, threads, at });
    }
    let factors = [shape.packages, shape.dies, shape.modules, shape.cores, shape.threads];
    let cpus = factors.iter().fold(1u64, |product, factor| product.saturating_mul(u64::from(*factor)));
    match cpus > MOST_CPUS {
        true => Err(TopologyError::TooManyCpus { cpus, at: span(table.span()) }),
        false => Ok(shape),
    }
}

/// A size in KiB.
fn size_kib(text: &Spanned<String>) -> Checked<u64> {
    let bad = || TopologyError::Size { given: text.get_ref().clone(), at: span(text.span()) };
    let t = text.get_ref();
    let (number, unit) = t.split_at_checked(t.len().wrapping_sub(1)).ok_or_else(bad)?;
    let factor = match unit {
        "K" => 1,
        "M" => 1 << 10,
        "G" => 1 << 20,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(factor).filter(|&kib| kib > 0).ok_or_else(bad)
}

/// A size of whole MiB.
fn size_mib(text: &Spanned<String>) -> Checked<u64> {
    match size_kib(text)? {
        kib if kib.is_multiple_of(1 << 10) => Ok(kib >> 10),
        _ => Err(TopologyError::Size { given: text.get_ref().clone(), at: span(text.span()) }),
    }
}

fn caches(declared: &[Spanned<Cache>]) -> Checked<Vec<CacheDecl>> {
    use topolab_wire::CacheKind::{Data, Instruction, Unified};
    let mut all: Vec<CacheDecl> = Vec::new();
    for cache in declared {
        let c = cache.get_ref();
        let level = *c.level.get_ref();
        if !(1..=3).contains(&level) {
            return Err(TopologyError::CacheLevel { level, at: span(c.level.span()) });
        }
        let clash = |other: &CacheDecl| match (other.kind, c.kind) {
            (Data, Instruction) | (Instruction, Data) => false,
            (Unified, _) | (_, Unified) | (Data, Data) | (Instruction, Instruction) => other.level == level,
        };
        if all.iter().any(clash) {
            return Err(TopologyError::CacheTwice { level, at: span(cache.span()) });
        }
        // The caches that QEMU's smp-cache and a kernel's cacheinfo both know (qapi/machine-common.json, CacheLevelAndType).
        match (level, c.kind) {
            (1, Data | Instruction) | (2.., Unified) => {}
            (_, kind) => return Err(TopologyError::CacheKind { level, kind, at: span(cache.span()) }),
        }
        let shared_by = *c.shared_by.get_ref();
        match shared_by {
            Level::Group | Level::Core | Level::Module | Level::Die | Level::Package => {}
            Level::Thread | Level::Node => {
                return Err(TopologyError::CacheUnit { level: shared_by, at: span(c.shared_by.span()) });
            }
        }
        if let Some(inner) = all.iter().find(|other| other.level < level && other.shared_by > shared_by) {
            return Err(TopologyError::CacheOrder {
                level,
                outer: shared_by,
                inner: inner.shared_by,
                at: span(c.shared_by.span()),
            });
        }
        all.push(CacheDecl { level, kind: c.kind, size_kib: size_kib(&c.size)?, shared_by });
    }
    all.sort_by_key(|cache| (cache.level, cache.kind));
    Ok(all)
}

/// `0-3,8` of the machine's CPUs.
fn cpu_list(text: &str, all: &CpuSet, at: SourceSpan) -> Checked<CpuSet> {
    let set: CpuSet = text.parse().map_err(|_| TopologyError::CpuList { given: text.to_string(), at })?;
    match set.is_subset(all) {
        true => Ok(set),
        false => Err(TopologyError::CpuList { given: text.to_string(), at }),
    }
}

fn capacities(topology: &Topology, written: &Spanned<Capacity>) -> Checked<Vec<u32>> {
    let capacity = written.get_ref();
    let units = topology.units(capacity.per);
    let values = &capacity.values;
    let good =
        values.len() == units.len() && values.iter().all(|value| (1..=1024).contains(value)) && values.contains(&1024);
    if !good {
        let (per, units, at) = (capacity.per, units.len(), span(written.span()));
        return Err(TopologyError::Capacity { per, units, values: values.len(), at });
    }
    let of = |cpu: u32| units.iter().position(|unit| unit.contains(cpu)).map_or(1024, |n| values[n]);
    Ok((0..topology.shape.cpus()).map(of).collect())
}

fn costs(file: &File) -> Checked<Costs> {
    let mut costs = Costs::default();
    for (name, written) in &file.costs {
        let read = Cost::parse(name).and_then(|cost| Ok((cost, cost.value(written.get_ref())?)));
        let (cost, value) = read.map_err(|what| TopologyError::Cost { what, at: span(written.span()) })?;
        costs.set(cost, value);
    }
    Ok(costs)
}

fn placement(topology: &Topology, file: &File) -> Checked<Placement> {
    let all = CpuSet::range(0, topology.shape.cpus());
    let mut placement = Placement::default();
    if let Some(written) = &file.isolation {
        let at = span(written.span());
        let list = |text: &Option<String>| match text {
            None => Ok(CpuSet::default()),
            Some(text) => cpu_list(text, &all, at),
        };
        placement.isolated = list(&written.get_ref().boot)?;
        placement.partition = list(&written.get_ref().cpuset)?;
        let apart = placement.isolated.union(&placement.partition);
        let overlap = !placement.isolated.intersection(&placement.partition).is_empty();
        if overlap || all.difference(&apart).is_empty() {
            return Err(TopologyError::Isolation { at });
        }
    }
    if let Some(written) = &file.offline {
        let at = span(written.span());
        placement.offline = cpu_list(written.get_ref(), &all, at)?;
        let apart = placement.isolated.union(&placement.partition);
        // The boot CPU of most machines cannot be switched off (Documentation/core-api/cpu_hotplug.rst).
        let bad = placement.offline.contains(0) || !placement.offline.intersection(&apart).is_empty();
        // A node with neither CPUs that run nor memory is no node to a kernel.
        let lost = |node: &NodeDecl| node.memory_mib == 0 && node.cpus.is_subset(&placement.offline);
        let bad = bad || topology.nodes.iter().any(lost);
        if bad || all.difference(&placement.offline).is_subset(&apart) {
            return Err(TopologyError::Offline { at });
        }
    }
    if let Some(irq) = &file.irq {
        let node = *irq.node.get_ref();
        let here = topology.nodes.get(node as usize).is_some_and(|node| !node.cpus.is_subset(&placement.offline));
        if !here {
            return Err(TopologyError::IrqNode { node, at: span(irq.node.span()) });
        }
        placement.irq_node = Some(node);
    }
    Ok(placement)
}

fn last_level(topology: &Topology, written: &Spanned<Level>) -> Checked<()> {
    let (llc, at) = (topology.llc, span(written.span()));
    let outermost = topology.caches.iter().map(|cache| cache.shared_by).max().unwrap_or(Level::Thread);
    if llc != Level::Node {
        let widest = topology.units(llc).iter().map(|unit| nodes_covered(topology, unit)).max().unwrap_or(0);
        if widest > 1 {
            return Err(TopologyError::LlcSpansNodes { llc, nodes: widest, at });
        }
        // An arm64 kernel takes the cluster for the last-level cache where no cache is wider than a core
        // (drivers/base/arch_topology.c, `cpu_coregroup_mask`).
        let cluster = llc == Level::Module && outermost < llc && topology.cpu.keys().all(|a| *a == Arch::Aarch64);
        if llc != outermost && !cluster {
            return Err(TopologyError::LlcWithoutCache { llc, cache: outermost, at });
        }
        return Ok(());
    }
    // `node` means that a cache of at least a node's width is split by the nodes.
    let covers = |unit: Level| {
        let units = topology.units(unit);
        let nodes = topology.units(Level::Node);
        nodes.iter().all(|node| units.iter().any(|set| node.is_subset(set)))
    };
    match covers(outermost) {
        true => Ok(()),
        false => Err(TopologyError::LlcWithoutCache { llc, cache: outermost, at }),
    }
}

/// How many nodes have a CPU in the set.
fn nodes_covered(topology: &Topology, set: &CpuSet) -> usize {
    topology.nodes.iter().filter(|node| !node.cpus.intersection(set).is_empty()).count()
}

fn memory(topology: &Topology, at: SourceSpan) -> Checked<()> {
    let (memory, cpus) = (topology.memory_mib(), topology.shape.cpus());
    let needed = LEAST_MEMORY_MIB + 2 * u64::from(cpus);
    match memory >= needed {
        true => Ok(()),
        false => Err(TopologyError::Memory { memory, cpus, needed, at }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use miette::Diagnostic;

    const CWF: &str = include_str!("../../../topologies/cwf-snc3.toml");

    /// The machine with one line changed, and the rule that must then be broken.
    fn broken(from: &str, to: &str) -> String {
        assert!(CWF.contains(from), "the example lost `{from}`");
        match parse("cwf-snc3", &CWF.replacen(from, to, 1)) {
            Ok(_) => "accepted".into(),
            Err(e) => {
                assert!(e.labels().is_some_and(|mut labels| labels.next().is_some()), "{e} has no place in the file");
                e.code().map(|code| code.to_string()).unwrap_or_default()
            }
        }
    }

    #[test]
    fn the_example_is_the_machine_that_it_says() {
        let topology = parse("cwf-snc3", CWF).expect("the example");
        assert_eq!(topology.shape.cpus(), 288);
        let llcs: Vec<String> = topology.llcs().iter().map(CpuSet::to_string).collect();
        assert_eq!(llcs, ["0-95", "96-191", "192-287"]);
        assert_eq!(topology.units(Level::Module).len(), 72);
    }

    #[test]
    fn every_rule_has_an_error_of_its_own() {
        for (from, to, code) in [
            ("schema = 1", "schema = 2", "topology::schema"),
            ("modules = 72", "modules = 0", "topology::zero_count"),
            ("modules = 72", "modules = 7200", "topology::too_many_cpus"),
            ("modules = 72", "modules = -1", "topology::syntax"),
            ("modules = 72", "moduls = 72", "topology::syntax"),
            ("[cpu.x86_64]", "[cpu.vax]", "topology::arch"),
            ("\"ClearwaterForest\"", "\"Clearwater,Forest\"", "topology::cpu_model"),
            ("\"4M\"", "\"4 MB\"", "topology::size"),
            ("\"4M\"", "\"0M\"", "topology::size"),
            ("\"340M\"", "\"1500K\"", "topology::size"),
            ("\"4M\"", "\"\"", "topology::size"),
            ("level = 3", "level = 4", "topology::cache_level"),
            ("level = 3", "level = 2", "topology::cache_twice"),
            ("level = 3\nkind = \"unified\"", "level = 3\nkind = \"data\"", "topology::cache_kind"),
            ("count = 3", "count = 144\n#", "topology::too_many_nodes"),
            ("shared_by = \"package\"", "shared_by = \"core\"", "topology::cache_order"),
            ("shared_by = \"package\"", "shared_by = \"node\"", "topology::cache_unit"),
            ("count = 3", "count = 5", "topology::node_count"),
            ("count = 3", "count = 96", "topology::node_cuts"),
            ("[[10, 15, 17], ", "[", "topology::distance_shape"),
            ("[10, 15, 17]", "[10, 15]", "topology::distance_shape"),
            ("[10, 15, 17]", "[10, 9, 17]", "topology::distance"),
            ("[10, 15, 17]", "[11, 15, 17]", "topology::distance"),
            ("[10, 15, 17]", "[10, 255, 17]", "topology::distance"),
            ("llc = \"node\"", "llc = \"package\"", "topology::llc_spans_nodes"),
            ("llc = \"node\"", "llc = \"module\"", "topology::llc_without_cache"),
            ("\"340M\"", "\"16M\"", "topology::memory"),
            ("count = 3\n", "", "topology::node_form"),
            ("threads = 1", "threads = 1\nthread_groups = 2", "topology::thread_groups"),
            ("[scheduler]", "[capacity]\nper = \"package\"\nvalues = [512]\n[scheduler]", "topology::capacity"),
            ("[scheduler]", "[isolation]\nboot = \"0-287\"\n[scheduler]", "topology::isolation"),
            ("[scheduler]", "[isolation]\nboot = \"4\"\ncpuset = \"4\"\n[scheduler]", "topology::isolation"),
            ("[scheduler]", "[isolation]\nboot = \"300\"\n[scheduler]", "topology::cpu_list"),
            ("[cpu.x86_64]", "[cpu.ppc64le]\nqemu = \"power10\"\n[cpu.x86_64]", "topology::board"),
            ("schema = 1", "schema = 1\noffline = \"0\"", "topology::offline"),
            ("schema = 1", "schema = 1\noffline = \"1-999\"", "topology::cpu_list"),
            ("[scheduler]", "[irq]\nnode = 3\n[scheduler]", "topology::irq_node"),
        ] {
            assert_eq!(broken(from, to), code, "{from} → {to}");
        }
    }

    /// Two named nodes of CPUs and one of memory, with one text changed.
    fn named(from: &str, to: &str) -> Result<Topology, TopologyError> {
        let head = CWF.split("[nodes]").next().expect("a head").replace("modules = 72", "modules = 2");
        let nodes = "[nodes]\ndistances = [[10, 15, 20], [15, 10, 20], [20, 20, 10]]\n\
            [[nodes.node]]\ncpus = \"0-3\"\nguest_memory = \"256M\"\n\
            [[nodes.node]]\ncpus = \"4-7\"\nguest_memory = \"128M\"\n\
            [[nodes.node]]\nguest_memory = \"64M\"\n\
            [[nodes.path]]\nfrom = 0\nto = 0\nlatency_ns = 80\nbandwidth = \"20G\"\n\
            [scheduler]\nllc = \"node\"\n";
        let paths = "[[nodes.path]]\nfrom = 0\nto = 0\nlatency_ns = 80\nbandwidth = \"20G\"\n";
        let text = format!("{head}{}", nodes.replace(paths, if from == "paths" { paths } else { "" }));
        assert!(from == "paths" || text.contains(from), "the example lost `{from}`");
        parse("named", &text.replacen(from, to, 1))
    }

    #[test]
    fn only_a_power_core_has_thread_groups() {
        let small = CWF.replace("modules = 72", "modules = 6").replace("threads = 1", "threads = 4\nthread_groups = 2");
        let error = parse("cwf", &small).expect_err("x86 has none");
        assert_eq!(error.code().map(|code| code.to_string()).as_deref(), Some("topology::board"));
    }

    #[test]
    fn named_nodes_have_rules_of_their_own() {
        let good = named("0-3", "0-3").expect("three nodes");
        assert_eq!(good.units(Level::Node).len(), 2);
        assert_eq!(good.nodes.len(), 3);
        let code = |from: &str, to: &str| match named(from, to) {
            Ok(_) => "accepted".to_string(),
            Err(e) => e.code().map(|code| code.to_string()).unwrap_or_default(),
        };
        assert_eq!(code("4-7", "0-7"), "topology::node_overlap");
        assert_eq!(code("4-7", "4-8"), "topology::cpu_list");
        assert_eq!(code("4-7", "4-6"), "topology::node_cuts");
        assert_eq!(code("cpus = \"4-7\"\n", ""), "topology::node_missing");
        assert_eq!(code("guest_memory = \"64M\"\n", ""), "topology::node_empty");
        // One path alone is too few: HMAT says all or nothing.
        assert_eq!(code("paths", ""), "topology::path_missing");
        assert_eq!(
            code("[scheduler]", "[[nodes.path]]\nfrom = 2\nto = 0\nlatency_ns = 80\nbandwidth = \"20G\"\n[scheduler]"),
            "topology::path"
        );
    }
}
