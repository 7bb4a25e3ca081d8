//! A topology as written: TOML to the letter, every checked value with its place in the file. `docs/topology.md`
//! describes it.

use super::model::Level;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;
use topolab_wire::CacheKind;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) schema: Spanned<u32>,
    pub(super) title: String,
    pub(super) cpu: Spanned<BTreeMap<String, Cpu>>,
    pub(super) shape: Spanned<ShapeTable>,
    pub(super) cache: Vec<Spanned<Cache>>,
    pub(super) nodes: Spanned<Nodes>,
    pub(super) scheduler: Scheduler,
    pub(super) capacity: Option<Spanned<Capacity>>,
    pub(super) isolation: Option<Spanned<Isolation>>,
    pub(super) irq: Option<Irq>,
    #[serde(default)]
    pub(super) costs: BTreeMap<String, Spanned<String>>,
    pub(super) offline: Option<Spanned<String>>,
}

/// `[cpu.ARCH]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cpu {
    pub(super) qemu: Spanned<String>,
    pub(super) family: Option<u32>,
    pub(super) model: Option<u32>,
    pub(super) name: Option<String>,
}

/// `[shape]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShapeTable {
    pub(super) packages: Spanned<u32>,
    pub(super) dies: Spanned<u32>,
    pub(super) modules: Spanned<u32>,
    pub(super) cores: Spanned<u32>,
    pub(super) threads: Spanned<u32>,
    pub(super) thread_groups: Option<Spanned<u32>>,
}

/// `[[cache]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cache {
    pub(super) level: Spanned<u32>,
    pub(super) kind: CacheKind,
    pub(super) size: Spanned<String>,
    pub(super) shared_by: Spanned<Level>,
}

/// `[nodes]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nodes {
    pub(super) count: Option<Spanned<u32>>,
    pub(super) guest_memory: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) node: Vec<Spanned<OneNode>>,
    pub(super) distances: Spanned<Vec<Spanned<Vec<Spanned<u32>>>>>,
    #[serde(default)]
    pub(super) path: Vec<Spanned<Path>>,
}

/// `[[nodes.node]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneNode {
    pub(super) cpus: Option<Spanned<String>>,
    pub(super) guest_memory: Option<Spanned<String>>,
}

/// `[[nodes.path]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Path {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) latency_ns: u32,
    pub(super) bandwidth: Spanned<String>,
}

/// `[capacity]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Capacity {
    pub(super) per: Level,
    pub(super) values: Vec<u32>,
}

/// `[isolation]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Isolation {
    pub(super) boot: Option<String>,
    pub(super) cpuset: Option<String>,
}

/// `[irq]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Irq {
    pub(super) node: Spanned<u32>,
}

/// `[scheduler]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scheduler {
    pub(super) llc: Spanned<Level>,
}
