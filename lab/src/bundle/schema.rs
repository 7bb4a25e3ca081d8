//! A bundle as written: TOML to the letter, what is checked later with its place in the file. `docs/bundles.md` describes it.

use super::model::{Better, Over};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;
use topolab_wire::Clock;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) schema: Spanned<u32>,
    pub(super) title: String,
    pub(super) clocks: Spanned<Vec<Clock>>,
    #[serde(default)]
    pub(super) architectures: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) kernel: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) memory_mib: u64,
    pub(super) model: Option<ModelTable>,
    pub(super) program: Option<ProgramTable>,
    #[serde(default)]
    pub(super) source: Vec<Source>,
    #[serde(default)]
    pub(super) prepare: Vec<Step>,
    #[serde(default)]
    pub(super) service: Vec<Service>,
    #[serde(default)]
    pub(super) placement: PlacementTable,
    #[serde(default)]
    pub(super) param: Vec<Param>,
    #[serde(default)]
    pub(super) derive: BTreeMap<String, Spanned<String>>,
    pub(super) metric: Vec<Metric>,
    #[serde(default)]
    pub(super) invariant: Vec<Invariant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelTable {
    pub(super) name: String,
    pub(super) profile: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramTable {
    pub(super) image: Option<String>,
    pub(super) argv: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, Spanned<String>>,
    pub(super) cpus: Option<Spanned<String>>,
    pub(super) folder: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) warmup: u32,
    pub(super) deadline_s: Spanned<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) argv: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, Spanned<String>>,
    pub(super) cpus: Option<Spanned<String>>,
    pub(super) folder: Option<Spanned<String>>,
    pub(super) deadline_s: Spanned<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    pub(super) name: Spanned<String>,
    pub(super) argv: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, Spanned<String>>,
    pub(super) cpus: Option<Spanned<String>>,
    pub(super) folder: Option<Spanned<String>>,
    pub(super) ready: Spanned<Ready>,
    pub(super) deadline_s: Spanned<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ready {
    pub(super) tcp: Option<String>,
    pub(super) file: Option<String>,
    pub(super) says: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    pub(super) name: Spanned<String>,
    pub(super) about: String,
    #[serde(default)]
    pub(super) build: Vec<String>,
    pub(super) take: Vec<Spanned<String>>,
    pub(super) stand_in: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlacementTable {
    pub(super) isolate: Option<Spanned<String>>,
    pub(super) network: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Param {
    pub(super) name: Spanned<String>,
    pub(super) about: String,
    pub(super) default: Spanned<NumberOrWord>,
    pub(super) min: Option<i64>,
    pub(super) max: Option<i64>,
    pub(super) choices: Option<Vec<String>>,
    pub(super) words: Option<Vec<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum NumberOrWord {
    Number(i64),
    Word(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metric {
    pub(super) name: Spanned<String>,
    pub(super) unit: String,
    pub(super) better: Better,
    #[serde(default)]
    pub(super) hidden: bool,
    pub(super) from: Option<String>,
    pub(super) regex: Option<Spanned<String>>,
    pub(super) json: Option<Spanned<String>>,
    pub(super) table: Option<Table>,
    pub(super) hdr: Option<Spanned<f64>>,
    pub(super) scale: Option<f64>,
    pub(super) over: Option<Over>,
    pub(super) percentile: Option<Spanned<f64>>,
    pub(super) samples: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    pub(super) row: String,
    pub(super) column: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Invariant {
    pub(super) name: Spanned<String>,
    pub(super) from: Option<String>,
    pub(super) says: Option<Spanned<String>>,
    pub(super) never: Option<Spanned<String>>,
}
