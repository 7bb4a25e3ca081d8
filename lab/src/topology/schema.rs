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
}

/// `[cpu.ARCH]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cpu {
    pub(super) qemu: Spanned<String>,
    pub(super) family: Option<u32>,
    pub(super) model: Option<u32>,
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
    pub(super) count: Spanned<u32>,
    pub(super) guest_memory: Spanned<String>,
    pub(super) distances: Spanned<Vec<Spanned<Vec<Spanned<u32>>>>>,
}

/// `[scheduler]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scheduler {
    pub(super) llc: Spanned<Level>,
}
