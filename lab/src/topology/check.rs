//! Checks a written topology rule by rule and resolves it. The rules and their words are in `rules`.

use super::model::{Arch, CacheDecl, CpuDecl, Level, NodeDecl, Shape, Topology};
use super::rules::{MOST_CPUS, TopologyError};
use super::schema::{Cache, File, Nodes, ShapeTable};
use miette::SourceSpan;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use topolab_wire::CpuSet;

/// Smallest memory of a guest, in MiB, and what each CPU adds: a kernel with its agent boots in 256 MiB and keeps about
/// 2 MiB a CPU (measured at 24 to 288 CPUs with the lean kernel).
const LEAST_MEMORY_MIB: u64 = 256;
/// Largest ACPI SLIT distance that still means something; 255 is "unreachable" (ACPI 6.5, 5.2.17).
const MOST_DISTANCE: u32 = 254;

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
    let (nodes, distances) = nodes(&shape, file.nodes.get_ref())?;
    let topology = Topology {
        name: name.to_string(),
        title: file.title,
        cpu: cpu(&file.cpu)?,
        shape,
        caches,
        nodes,
        distances,
        llc: *file.scheduler.llc.get_ref(),
        losses: Vec::new(),
    };
    last_level(&topology, &file.scheduler.llc)?;
    memory(&topology, &file.nodes.get_ref().guest_memory)?;
    Ok(topology)
}

fn cpu(table: &Spanned<BTreeMap<String, super::schema::Cpu>>) -> Checked<BTreeMap<Arch, CpuDecl>> {
    let mut all = BTreeMap::new();
    let unknown = |given: &str| TopologyError::Arch { given: given.to_string(), at: span(table.span()) };
    for (name, cpu) in table.get_ref() {
        let arch = match name.as_str() {
            "x86_64" => Arch::X86_64,
            "aarch64" => Arch::Aarch64,
            "ppc64le" => Arch::Ppc64le,
            other => return Err(unknown(other)),
        };
        let qemu = cpu.qemu.get_ref();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if qemu.is_empty() || !qemu.chars().all(plain) {
            return Err(TopologyError::CpuModel { given: qemu.clone(), at: span(cpu.qemu.span()) });
        }
        all.insert(arch, CpuDecl { qemu: qemu.clone(), family: cpu.family, model: cpu.model });
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
    };
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
        let shared_by = *c.shared_by.get_ref();
        match shared_by {
            Level::Core | Level::Module | Level::Die | Level::Package => {}
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

fn nodes(shape: &Shape, table: &Nodes) -> Checked<(Vec<NodeDecl>, Vec<Vec<u32>>)> {
    let (count, at) = (*table.count.get_ref(), span(table.count.span()));
    let cpus = shape.cpus();
    if count == 0 {
        return Err(TopologyError::ZeroCount { what: "count", at });
    }
    if !cpus.is_multiple_of(count) {
        return Err(TopologyError::NodeCount { count, cpus, at });
    }
    let per_node = cpus / count;
    for unit in [Level::Core, Level::Module] {
        let per_unit = shape.cpus_per(unit);
        // One module in a die is no level of its own: nothing tells where it would be cut.
        if unit == Level::Module && shape.modules == 1 {
            continue;
        }
        if !per_node.is_multiple_of(per_unit) {
            return Err(TopologyError::NodeCuts { per_node, unit, per_unit, at });
        }
    }
    let memory_mib = size_kib(&table.guest_memory)? >> 10;
    let nodes =
        (0..count).map(|n| NodeDecl { cpus: CpuSet::range(n * per_node, (n + 1) * per_node), memory_mib }).collect();
    Ok((nodes, distances(count, table)?))
}

fn distances(count: u32, table: &Nodes) -> Checked<Vec<Vec<u32>>> {
    let rows = table.distances.get_ref();
    let nodes = count as usize;
    let misshapen = rows.iter().position(|row| row.get_ref().len() != nodes);
    if let Some(row) = misshapen.or((rows.len() != nodes).then_some(0)) {
        let columns = rows.get(row).map_or(0, |r| r.get_ref().len());
        let at = span(table.distances.span());
        return Err(TopologyError::DistanceShape { nodes: count, rows: rows.len(), row, columns, at });
    }
    let mut all = Vec::new();
    for (from, row) in rows.iter().enumerate() {
        for (to, cell) in row.get_ref().iter().enumerate() {
            let distance = *cell.get_ref();
            let rule = match (from == to, distance) {
                (true, 10) => continue,
                (true, _) => "10: a node is local to itself",
                (false, 0..=10) => "more than 10",
                (false, 11..=MOST_DISTANCE) => continue,
                (false, _) => "at most 254: 255 means unreachable",
            };
            return Err(TopologyError::Distance { from, to, distance, rule, at: span(cell.span()) });
        }
        all.push(row.get_ref().iter().map(|cell| *cell.get_ref()).collect());
    }
    Ok(all)
}

fn last_level(topology: &Topology, written: &Spanned<Level>) -> Checked<()> {
    let (llc, at) = (topology.llc, span(written.span()));
    let outermost = topology.caches.iter().map(|cache| cache.shared_by).max().unwrap_or(Level::Thread);
    if llc != Level::Node {
        let widest = topology.units(llc).iter().map(|unit| nodes_covered(topology, unit)).max().unwrap_or(0);
        if widest > 1 {
            return Err(TopologyError::LlcSpansNodes { llc, nodes: widest, at });
        }
        if llc != outermost {
            return Err(TopologyError::LlcWithoutCache { llc, cache: outermost, at });
        }
        return Ok(());
    }
    // `node` means that a cache of at least a node's width is split by the nodes.
    let covers = |unit: Level| {
        topology
            .units(unit)
            .iter()
            .all(|set| nodes_covered(topology, set) >= 1 && set.len() >= topology.nodes[0].cpus.len())
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

fn memory(topology: &Topology, written: &Spanned<String>) -> Checked<()> {
    let (memory, cpus) = (topology.memory_mib(), topology.shape.cpus());
    let needed = LEAST_MEMORY_MIB + 2 * u64::from(cpus);
    match memory >= needed && topology.nodes.iter().all(|node| node.memory_mib > 0) {
        true => Ok(()),
        false => Err(TopologyError::Memory { memory, cpus, needed, at: span(written.span()) }),
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
            ("\"4M\"", "\"\"", "topology::size"),
            ("level = 3", "level = 4", "topology::cache_level"),
            ("level = 3", "level = 2", "topology::cache_twice"),
            ("shared_by = \"package\"", "shared_by = \"core\"", "topology::cache_order"),
            ("shared_by = \"package\"", "shared_by = \"node\"", "topology::cache_unit"),
            ("count = 3", "count = 5", "topology::node_count"),
            ("count = 3", "count = 144", "topology::node_cuts"),
            ("[[10, 15, 17], ", "[", "topology::distance_shape"),
            ("[10, 15, 17]", "[10, 15]", "topology::distance_shape"),
            ("[10, 15, 17]", "[10, 9, 17]", "topology::distance"),
            ("[10, 15, 17]", "[11, 15, 17]", "topology::distance"),
            ("[10, 15, 17]", "[10, 255, 17]", "topology::distance"),
            ("llc = \"node\"", "llc = \"package\"", "topology::llc_spans_nodes"),
            ("llc = \"node\"", "llc = \"module\"", "topology::llc_without_cache"),
            ("\"340M\"", "\"16M\"", "topology::memory"),
        ] {
            assert_eq!(broken(from, to), code, "{from} → {to}");
        }
    }
}
