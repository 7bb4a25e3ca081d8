//! `@1/N`: the same machine with one Nth of the CPUs. Packages, dies, nodes and last-level caches keep their number;
//! modules, cores and threads shrink inside them.

use super::model::{Level, NodeDecl, Shape, Topology};
use topolab_wire::CpuSet;

/// Why a machine cannot be scaled so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// Nothing to divide by.
    #[error("@1/0 is no scale")]
    Zero,
    /// A machine whose parts are named one by one.
    #[error("{name} cannot be scaled: its nodes, capacities, isolated or offline CPUs are named one by one")]
    Named {
        /// The machine.
        name: String,
    },
    /// No way to divide the levels.
    #[error(
        "{name} cannot be scaled to 1/{by}: no division of {modules} modules × {cores} cores × {threads} threads by {by} leaves {nodes} equal nodes; possible: {possible}"
    )]
    Indivisible {
        /// The machine.
        name: String,
        /// The divisor.
        by: u32,
        /// Modules per die.
        modules: u32,
        /// Cores per module.
        cores: u32,
        /// Threads per core.
        threads: u32,
        /// Nodes.
        nodes: usize,
        /// Divisors that work.
        possible: String,
    },
}

/// Scales a machine down to one `by`th of its CPUs.
pub fn scale(full: &Topology, by: u32) -> Result<Topology, ScaleError> {
    if by == 0 {
        return Err(ScaleError::Zero);
    }
    if by == 1 {
        return Ok(full.clone());
    }
    if full.nodes_named || !full.capacities.is_empty() || !full.apart().is_empty() || !full.placement.offline.is_empty()
    {
        return Err(ScaleError::Named { name: full.name.clone() });
    }
    let shape = best_shape(full, by).ok_or_else(|| indivisible(full, by))?;
    let per_node = shape.cpus() / full.nodes.len() as u32;
    let nodes = (0u32..)
        .zip(&full.nodes)
        .map(|(n, node)| NodeDecl {
            cpus: CpuSet::range(n * per_node, (n + 1) * per_node),
            memory_mib: node.memory_mib,
        })
        .collect();
    let mut small = Topology { name: format!("{}@1/{by}", full.name), shape, nodes, ..full.clone() };
    small.losses = losses(full, &small);
    Ok(small)
}

/// Whether a level still has more than one member inside the next, as it had before: then the level stays visible.
fn levels_kept(full: &Topology, shape: &Shape) -> usize {
    let inside = |s: &Shape| {
        let per_node = s.cpus() / full.nodes.len() as u32;
        [s.threads > 1, s.cores > 1, per_node / s.cpus_per(Level::Module) > 1]
    };
    let (before, after) = (inside(&full.shape), inside(shape));
    before.iter().zip(after).filter(|(had, has)| **had == *has).count()
}

/// The division that keeps most levels, then most threads, then most cores: what is nearest the task keeps its shape.
fn best_shape(full: &Topology, by: u32) -> Option<Shape> {
    let s = full.shape;
    let mut best: Option<(usize, u32, u32, Shape)> = None;
    for t in (1..=s.threads).filter(|t| by.is_multiple_of(*t) && s.threads.is_multiple_of(*t)) {
        // A core keeps its thread groups.
        if !(s.threads / t).is_multiple_of(s.thread_groups) {
            continue;
        }
        for c in (1..=s.cores).filter(|c| (by / t).is_multiple_of(*c) && s.cores.is_multiple_of(*c)) {
            let m = by / t / c;
            if !s.modules.is_multiple_of(m) {
                continue;
            }
            let shape = Shape { modules: s.modules / m, cores: s.cores / c, threads: s.threads / t, ..s };
            let nodes = full.nodes.len() as u32;
            let unit = if s.modules == 1 { Level::Core } else { Level::Module };
            let whole =
                shape.cpus().is_multiple_of(nodes) && (shape.cpus() / nodes).is_multiple_of(shape.cpus_per(unit));
            let rank = (levels_kept(full, &shape), shape.threads, shape.cores);
            if whole && best.is_none_or(|(levels, threads, cores, _)| rank > (levels, threads, cores)) {
                best = Some((rank.0, rank.1, rank.2, shape));
            }
        }
    }
    best.map(|(_, _, _, shape)| shape)
}

fn indivisible(full: &Topology, by: u32) -> ScaleError {
    let possible: Vec<String> =
        (2..=full.shape.cpus()).filter(|&n| best_shape(full, n).is_some()).map(|n| format!("1/{n}")).collect();
    ScaleError::Indivisible {
        name: full.name.clone(),
        by,
        modules: full.shape.modules,
        cores: full.shape.cores,
        threads: full.shape.threads,
        nodes: full.nodes.len(),
        possible: possible.join(" "),
    }
}

fn losses(full: &Topology, small: &Topology) -> Vec<String> {
    let mut losses = Vec::new();
    for (what, before, after) in [
        ("modules per die", full.shape.modules, small.shape.modules),
        ("cores per module", full.shape.cores, small.shape.cores),
        ("threads per core", full.shape.threads, small.shape.threads),
    ] {
        if before != after {
            let gone = if after == 1 { ", the level is gone" } else { "" };
            losses.push(format!("{before} {what} became {after}{gone}"));
        }
    }
    let per_llc = |t: &Topology| t.llcs().first().map_or(0, CpuSet::len);
    let (before, after) = (per_llc(full), per_llc(small));
    if before != after {
        losses.push(format!("a last-level cache holds {after} CPUs instead of {before}, at its full size"));
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn cwf() -> Topology {
        parse("cwf-snc3", include_str!("../../../topologies/cwf-snc3.toml")).expect("the example")
    }

    #[test]
    fn a_twelfth_of_clearwater_forest_keeps_modules_nodes_and_caches() {
        let small = scale(&cwf(), 12).expect("1/12");
        assert_eq!(small.name, "cwf-snc3@1/12");
        assert_eq!(small.shape, Shape { packages: 1, dies: 1, modules: 6, cores: 4, threads: 1, thread_groups: 1 });
        let llcs: Vec<String> = small.llcs().iter().map(CpuSet::to_string).collect();
        assert_eq!(llcs, ["0-7", "8-15", "16-23"]);
    }

    #[test]
    fn a_level_is_kept_before_its_size() {
        let small = scale(&cwf(), 24).expect("1/24");
        assert_eq!((small.shape.modules, small.shape.cores), (6, 2));
    }

    #[test]
    fn what_does_not_divide_is_refused_with_what_does() {
        let error = scale(&cwf(), 5).expect_err("1/5");
        assert!(error.to_string().contains("possible: 1/2 1/3 1/4"), "{error}");
        assert_eq!(scale(&cwf(), 0), Err(ScaleError::Zero));
    }
}
