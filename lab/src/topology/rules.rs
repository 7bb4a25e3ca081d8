//! The rules of a topology: one error per rule, each with its place in the file and what to do.

// miette's derive assigns the fields of each variant, which the lint takes for unused.
#![allow(unused_assignments)]

use super::model::Level;
use miette::{Diagnostic, SourceSpan};
use topolab_wire::CacheKind;

/// Most CPUs of a guest: the limit of QEMU's q35 machine (hw/i386/pc_q35.c, `max_cpus`).
pub(super) const MOST_CPUS: u64 = 4096;
/// Most nodes of a guest (include/system/numa.h, `MAX_NODES`).
pub(super) const MOST_NODES: usize = 128;

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
    #[diagnostic(
        code(topology::size),
        help("a whole number above 0 and K, M or G: 32K, 4M, 576M; memory and bandwidth in whole M")
    )]
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
    /// A split outer level, or a level 1 that is not split.
    #[error("a level {level} cache cannot be {kind:?}")]
    #[diagnostic(
        code(topology::cache_kind),
        help("level 1 is one cache for data and one for instructions; levels 2 and 3 are unified")
    )]
    CacheKind {
        /// The level.
        level: u32,
        /// What the file says.
        kind: CacheKind,
        /// Where.
        #[label("not a cache that a guest can be given")]
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
            "group, core, module, die or package; a last-level cache that a node splits is `shared_by = \"package\"` with [scheduler] llc = \"node\""
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
        help(
            "each node holds whole cores and whole modules: choose another count, or other cpus for a [[nodes.node]]"
        )
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
    /// More nodes than QEMU takes.
    #[error("{count} nodes; QEMU's machine takes {MOST_NODES}")]
    #[diagnostic(code(topology::too_many_nodes))]
    TooManyNodes {
        /// Nodes.
        count: usize,
        /// Where.
        #[label("too many")]
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
    /// Thread groups that do not divide the threads.
    #[error("{groups} thread groups do not divide {threads} threads")]
    #[diagnostic(code(topology::thread_groups))]
    ThreadGroups {
        /// Groups.
        groups: u32,
        /// Threads.
        threads: u32,
        /// Where.
        #[label("does not divide them")]
        at: SourceSpan,
    },
    /// Neither equal nodes nor named ones, or both.
    #[error("nodes are either equal (count and guest_memory) or named one by one ([[nodes.node]])")]
    #[diagnostic(code(topology::node_form))]
    NodeForm {
        /// Where.
        #[label("neither, or both")]
        at: SourceSpan,
    },
    /// A list of CPUs that is none, or beyond the machine.
    #[error("`{given}` is no list of this machine's CPUs")]
    #[diagnostic(code(topology::cpu_list), help("as in cpusets: 0-3,8; numbers below the shape's product"))]
    CpuList {
        /// What the file says.
        given: String,
        /// Where.
        #[label("not a list of its CPUs")]
        at: SourceSpan,
    },
    /// A CPU in two nodes.
    #[error("CPUs {cpus} are in two nodes")]
    #[diagnostic(code(topology::node_overlap))]
    NodeOverlap {
        /// Which.
        cpus: String,
        /// Where.
        #[label("named before")]
        at: SourceSpan,
    },
    /// A CPU in no node.
    #[error("CPUs {cpus} are in no node")]
    #[diagnostic(code(topology::node_missing), help("every CPU belongs to one node"))]
    NodeMissing {
        /// Which.
        cpus: String,
        /// Where.
        #[label("the last node, and still some are left")]
        at: SourceSpan,
    },
    /// A node of nothing.
    #[error("a node has neither CPUs nor memory")]
    #[diagnostic(code(topology::node_empty))]
    NodeEmpty {
        /// Where.
        #[label("give it cpus, guest_memory or both")]
        at: SourceSpan,
    },
    /// A memory path that cannot be.
    #[error("the path from node {from} to node {to} cannot be declared")]
    #[diagnostic(
        code(topology::path),
        help("from a node with CPUs to a node with memory, each pair once, with a latency above 0")
    )]
    Path {
        /// Asking node.
        from: u32,
        /// Answering node.
        to: u32,
        /// Where.
        #[label("this one")]
        at: SourceSpan,
    },
    /// Some paths, but not all.
    #[error("the path from node {from} to node {to} is missing")]
    #[diagnostic(
        code(topology::path_missing),
        help("where one path is declared, every pair of a node with CPUs and a node with memory has one")
    )]
    PathMissing {
        /// Asking node.
        from: u32,
        /// Answering node.
        to: u32,
        /// Where.
        #[label("the first path")]
        at: SourceSpan,
    },
    /// Capacities that do not fit the machine.
    #[error("{values} capacities for {units} {per}s")]
    #[diagnostic(
        code(topology::capacity),
        help("one value per unit, 1 to 1024, and 1024 for the biggest (Documentation/scheduler/sched-capacity.rst)")
    )]
    Capacity {
        /// The unit.
        per: Level,
        /// Units of the machine.
        units: usize,
        /// Values given.
        values: usize,
        /// Where.
        #[label("does not fit")]
        at: SourceSpan,
    },
    /// Isolation that leaves nothing, or says a CPU twice.
    #[error("the isolated CPUs overlap, or no CPU is left for everything else")]
    #[diagnostic(
        code(topology::isolation),
        help("`boot` and `cpuset` name different CPUs, and at least one CPU stays in neither")
    )]
    Isolation {
        /// Where.
        #[label("in this table")]
        at: SourceSpan,
    },
    /// CPUs that cannot be off.
    #[error("these CPUs cannot all be off")]
    #[diagnostic(
        code(topology::offline),
        help(
            "CPU 0 stays on, no CPU is both off and isolated, a node without memory keeps a CPU, and some CPU is left for everything else"
        )
    )]
    Offline {
        /// Where.
        #[label("too much is off")]
        at: SourceSpan,
    },
    /// Interrupts for a node without CPUs.
    #[error("node {node} cannot take interrupts: it does not exist, or none of its CPUs runs")]
    #[diagnostic(code(topology::irq_node))]
    IrqNode {
        /// The node.
        node: u32,
        /// Where.
        #[label("not a node with CPUs")]
        at: SourceSpan,
    },
    /// A cost that cannot be read.
    #[error("{what}")]
    #[diagnostic(code(topology::cost), help("docs/topology.md, Costs"))]
    Cost {
        /// What is wrong.
        what: String,
        /// Where.
        #[label("not a cost")]
        at: SourceSpan,
    },
    /// What an architecture's board does not take.
    #[error("{board} cannot be this machine: {why}")]
    #[diagnostic(code(topology::board), help("docs/topology.md lists what each board takes"))]
    Board {
        /// The board.
        board: &'static str,
        /// Why.
        why: String,
        /// Where.
        #[label("more than it takes")]
        at: SourceSpan,
    },
}
