//! The rules of a topology, one error per rule, each with its place in the file.

// miette's derive assigns the fields of each variant, which the lint takes for unused.
#![allow(unused_assignments)]

use super::model::{Arch, CacheDecl, CpuDecl, Level, NodeDecl, Shape, Topology};
use super::schema::{Cache, File, Nodes, ShapeTable};
use miette::{Diagnostic, SourceSpan};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use topolab_wire::CpuSet;

/// Most CPUs of a guest: the limit of QEMU's q35 machine (hw/i386/pc_q35.c, `max_cpus`).
const MOST_CPUS: u64 = 4096;
/// Smallest memory of a guest, in MiB, and what each CPU adds: a kernel with its agent boots in 256 MiB and keeps about
/// 2 MiB a CPU (measured at 24 to 288 CPUs with the lean kernel).
const LEAST_MEMORY_MIB: u64 = 256;
/// Largest ACPI SLIT distance that still means something; 255 is "unreachable" (ACPI 6.5, 5.2.17).
const MOST_DISTANCE: u32 = 254;

/// A rule that a topology breaks. The number in the code is the rule's number in docs/topology.md.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum TopologyError {
    /// The text is not TOML, or has a key or a type that the schema does not know.
    #[error("{message}")]
    #[diagnostic(
        code(topology::syntax),
        help("docs/topology.md lists every key; `topolab topology show cwf-snc3` prints an example")
    )]
    Syntax {
        /// The parser's words.
        message: String,
        /// Where.
        #[label("here")]
        at: Option<SourceSpan>,
    },
    /// A schema version from the future.
    #[error("schema {given} is not known; this program reads schema 1")]
    #[diagnostic(code(topology::schema))]
    Schema {
        /// What the file says.
        given: u32,
        /// Where.
        #[label("written for another version")]
        at: SourceSpan,
    },
    /// A count of zero.
    #[error("{what} is 0; a machine has at least one")]
    #[diagnostic(code(topology::zero_count))]
    ZeroCount {
        /// The key.
        what: &'static str,
        /// Where.
        #[label("must be at least 1")]
        at: SourceSpan,
    },
    /// More CPUs than the machine type takes.
    #[error("the shape has {cpus} CPUs; QEMU's machine takes {MOST_CPUS}")]
    #[diagnostic(
        code(topology::too_many_cpus),
        help("packages × dies × modules × cores × threads is the number of CPUs")
    )]
    TooManyCpus {
        /// How many.
        cpus: u64,
        /// Where.
        #[label("multiplies out to too many")]
        at: SourceSpan,
    },
    /// No architecture, or one that does not exist.
    #[error("`{given}` is not an architecture")]
    #[diagnostic(code(topology::arch), help("[cpu.x86_64], [cpu.aarch64] or [cpu.ppc64le]; at least one"))]
    Arch {
        /// What the file says.
        given: String,
        /// Where.
        #[label("in this table")]
        at: SourceSpan,
    },
    /// A CPU model with characters that would end the QEMU option.
    #[error("`{given}` cannot be a QEMU CPU model")]
    #[diagnostic(
        code(topology::cpu_model),
        help("letters, digits, dot, dash and underscore, as `qemu-system-x86_64 -cpu help` prints them")
    )]
    CpuModel {
        /// What the file says.
        given: String,
        /// Where.
        #[label("not a model name")]
        at: SourceSpan,
    },
    /// A size that cannot be read.
    #[error("`{given}` is not a size")]
    #[diagnostic(code(topology::size), help("a whole number above 0 and K, M or G: 32K, 4M, 576M"))]
    Size {
        /// What the file says.
        given: String,
        /// Where.
        #[label("not a size")]
        at: SourceSpan,
    },
    /// A cache level that is not 1 to 3.
    #[error("cache level {level} is not 1, 2 or 3")]
    #[diagnostic(code(topology::cache_level))]
    CacheLevel {
        /// What the file says.
        level: u32,
        /// Where.
        #[label("must be 1, 2 or 3")]
        at: SourceSpan,
    },
    /// The same cache twice.
    #[error("level {level} is declared twice for the same use")]
    #[diagnostic(
        code(topology::cache_twice),
        help("a level is either one unified cache, or one for data and one for instructions")
    )]
    CacheTwice {
        /// The level.
        level: u32,
        /// Where.
        #[label("declared before")]
        at: SourceSpan,
    },
    /// An outer cache shared by fewer CPUs than an inner one.
    #[error("the L{level} is shared by a {outer}, but an inner level by a {inner}, which is wider")]
    #[diagnostic(
        code(topology::cache_order),
        help("a cache is shared by at least the CPUs that share the level below it")
    )]
    CacheOrder {
        /// The outer level.
        level: u32,
        /// Its unit.
        outer: Level,
        /// The inner unit.
        inner: Level,
        /// Where.
        #[label("narrower than the level below")]
        at: SourceSpan,
    },
    /// A cache declared per thread or per node.
    #[error("a cache cannot be shared by a {level}")]
    #[diagnostic(
        code(topology::cache_unit),
        help(
            "core, module, die or package; a last-level cache that a node splits is `shared_by = \"package\"` with [scheduler] llc = \"node\""
        )
    )]
    CacheUnit {
        /// The unit.
        level: Level,
        /// Where.
        #[label("not a unit that QEMU can give a cache")]
        at: SourceSpan,
    },
    /// Nodes that do not divide the CPUs.
    #[error("{count} nodes do not divide {cpus} CPUs into equal parts")]
    #[diagnostic(code(topology::node_count))]
    NodeCount {
        /// Nodes.
        count: u32,
        /// CPUs.
        cpus: u32,
        /// Where.
        #[label("does not divide the number of CPUs")]
        at: SourceSpan,
    },
    /// A node boundary inside a core or module.
    #[error("a node of {per_node} CPUs would cut a {unit} of {per_unit} CPUs")]
    #[diagnostic(
        code(topology::node_cuts),
        help("choose a count of nodes so that each holds whole cores and whole modules")
    )]
    NodeCuts {
        /// CPUs per node.
        per_node: u32,
        /// What is cut.
        unit: Level,
        /// Its CPUs.
        per_unit: u32,
        /// Where.
        #[label("cuts it")]
        at: SourceSpan,
    },
    /// A matrix of the wrong size.
    #[error("the distance matrix must be {nodes} × {nodes}; row {row} has {columns} of {rows} rows")]
    #[diagnostic(code(topology::distance_shape))]
    DistanceShape {
        /// Nodes.
        nodes: u32,
        /// Rows given.
        rows: usize,
        /// A row that is wrong, from 0.
        row: usize,
        /// Its columns.
        columns: usize,
        /// Where.
        #[label("wrong size")]
        at: SourceSpan,
    },
    /// A distance out of range.
    #[error("the distance from node {from} to node {to} is {distance}; it must be {rule}")]
    #[diagnostic(code(topology::distance), help("ACPI 6.5, 5.2.17: 10 is local, everything else is more than 10"))]
    Distance {
        /// Row.
        from: usize,
        /// Column.
        to: usize,
        /// What the file says.
        distance: u32,
        /// What is allowed.
        rule: &'static str,
        /// Where.
        #[label("out of range")]
        at: SourceSpan,
    },
    /// A last-level cache that spans nodes.
    #[error("the last-level cache of a {llc} would span {nodes} nodes")]
    #[diagnostic(
        code(topology::llc_spans_nodes),
        help("the scheduler never lets a cache domain cross a node (kernel/sched/topology.c); use llc = \"node\"")
    )]
    LlcSpansNodes {
        /// The unit.
        llc: Level,
        /// How many nodes one of it covers.
        nodes: usize,
        /// Where.
        #[label("wider than a node")]
        at: SourceSpan,
    },
    /// A last-level cache without a cache behind it.
    #[error("the scheduler's last-level cache is a {llc}, but the outermost declared cache is shared by a {cache}")]
    #[diagnostic(
        code(topology::llc_without_cache),
        help("llc names the unit of the outermost cache, or `node` where nodes split that cache")
    )]
    LlcWithoutCache {
        /// The unit.
        llc: Level,
        /// The outermost cache's.
        cache: Level,
        /// Where.
        #[label("no cache makes this true")]
        at: SourceSpan,
    },
    /// Too little memory to boot.
    #[error("{memory} MiB in all are too little for {cpus} CPUs; the guest needs {needed}")]
    #[diagnostic(code(topology::memory), help("raise guest_memory: it is each node's share"))]
    Memory {
        /// MiB in all.
        memory: u64,
        /// CPUs.
        cpus: u32,
        /// MiB needed.
        needed: u64,
        /// Where.
        #[label("each node's share")]
        at: SourceSpan,
    },
}

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
