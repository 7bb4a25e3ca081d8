//! The rules of nodes: which CPUs and memory they hold, how far they are from each other, and how memory is reached.

use super::super::model::{MemoryPath, NodeDecl, Shape, Topology};
use super::super::rules::{MOST_NODES, TopologyError};
use super::super::schema::{Nodes, OneNode};
use super::{Checked, cpu_list, size_mib, span};
use miette::SourceSpan;
use toml::Spanned;
use topolab_wire::CpuSet;

/// Largest ACPI SLIT distance that still means something; 255 is "unreachable" (ACPI 6.5, 5.2.17).
const MOST_DISTANCE: u32 = 254;

pub(super) fn nodes(shape: &Shape, written: &Spanned<Nodes>) -> Checked<Vec<NodeDecl>> {
    let table = written.get_ref();
    let count = table.count.as_ref().map_or(table.node.len(), |count| *count.get_ref() as usize);
    if count > MOST_NODES {
        return Err(TopologyError::TooManyNodes { count, at: span(written.span()) });
    }
    match (&table.count, &table.guest_memory, table.node.as_slice()) {
        (Some(count), Some(memory), []) => equal_nodes(shape, count, memory),
        (None, None, [_, ..]) => named_nodes(shape, &table.node),
        _ => Err(TopologyError::NodeForm { at: span(written.span()) }),
    }
}

fn equal_nodes(shape: &Shape, count: &Spanned<u32>, memory: &Spanned<String>) -> Checked<Vec<NodeDecl>> {
    let (count, at) = (*count.get_ref(), span(count.span()));
    let cpus = shape.cpus();
    if count == 0 {
        return Err(TopologyError::ZeroCount { what: "count", at });
    }
    if !cpus.is_multiple_of(count) {
        return Err(TopologyError::NodeCount { count, cpus, at });
    }
    let per_node = cpus / count;
    let cpus = |n: u32| uncut(shape, CpuSet::range(n * per_node, (n + 1) * per_node), at);
    let sets = (0..count).map(cpus).collect::<Checked<Vec<_>>>()?;
    let memory_mib = size_mib(memory)?;
    Ok(sets.into_iter().map(|cpus| NodeDecl { cpus, memory_mib }).collect())
}

/// Nodes of any CPUs: together they hold every CPU once, and none cuts a core or a module.
fn named_nodes(shape: &Shape, written: &[Spanned<OneNode>]) -> Checked<Vec<NodeDecl>> {
    let all = CpuSet::range(0, shape.cpus());
    let mut taken = CpuSet::default();
    let mut nodes = Vec::new();
    for one in written {
        let node = one.get_ref();
        let at = node.cpus.as_ref().map_or_else(|| span(one.span()), |cpus| span(cpus.span()));
        let cpus = match &node.cpus {
            None => CpuSet::default(),
            Some(text) => cpu_list(text.get_ref(), &all, at)?,
        };
        let memory_mib = node.guest_memory.as_ref().map_or(Ok(0), size_mib)?;
        let twice = taken.intersection(&cpus);
        if !twice.is_empty() {
            return Err(TopologyError::NodeOverlap { cpus: twice.to_string(), at });
        }
        if cpus.is_empty() && memory_mib == 0 {
            return Err(TopologyError::NodeEmpty { at: span(one.span()) });
        }
        let cpus = uncut(shape, cpus, at)?;
        taken = taken.union(&cpus);
        nodes.push(NodeDecl { cpus, memory_mib });
    }
    let outside = all.difference(&taken);
    match (outside.is_empty(), written.last()) {
        (false, Some(last)) => Err(TopologyError::NodeMissing { cpus: outside.to_string(), at: span(last.span()) }),
        (_, _) => Ok(nodes),
    }
}

/// A node's CPUs, when they are whole cores and modules.
fn uncut(shape: &Shape, cpus: CpuSet, at: SourceSpan) -> Checked<CpuSet> {
    match shape.cut_by(&cpus) {
        None => Ok(cpus),
        Some(unit) => {
            let (per_node, per_unit) = (cpus.len() as u32, shape.cpus_per(unit));
            Err(TopologyError::NodeCuts { per_node, unit, per_unit, at })
        }
    }
}

pub(super) fn distances(count: u32, table: &Nodes) -> Checked<Vec<Vec<u32>>> {
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

/// HMAT is all or nothing: Linux ranks memory by the paths that it finds (drivers/acpi/numa/hmat.c).
pub(super) fn paths(topology: &Topology, table: &Nodes) -> Checked<Vec<MemoryPath>> {
    let Some(first) = table.path.first() else { return Ok(Vec::new()) };
    let has_cpus = |n: u32| topology.nodes.get(n as usize).is_some_and(|node| !node.cpus.is_empty());
    let has_memory = |n: u32| topology.nodes.get(n as usize).is_some_and(|node| node.memory_mib > 0);
    let mut all: Vec<MemoryPath> = Vec::new();
    for written in &table.path {
        let (path, at) = (written.get_ref(), span(written.span()));
        let (from, to) = (path.from, path.to);
        let twice = all.iter().any(|known| (known.from, known.to) == (from, to));
        if !has_cpus(from) || !has_memory(to) || twice || path.latency_ns == 0 {
            return Err(TopologyError::Path { from, to, at });
        }
        let bandwidth_mib = size_mib(&path.bandwidth)?;
        all.push(MemoryPath { from, to, latency_ns: path.latency_ns, bandwidth_mib });
    }
    let nodes = 0..topology.nodes.len() as u32;
    for from in nodes.clone().filter(|n| has_cpus(*n)) {
        for to in nodes.clone().filter(|n| has_memory(*n)) {
            if !all.iter().any(|known| (known.from, known.to) == (from, to)) {
                return Err(TopologyError::PathMissing { from, to, at: span(first.span()) });
            }
        }
    }
    Ok(all)
}
