//! What a trial left behind, as it is saved and printed. Versioned by the outer object's `schema`.

mod store;

pub use store::Store;

use crate::fault::{Fault, FaultKind};
use crate::plan::{Label, Role};
use crate::topology::{Comparison, Finding, Row};
use std::collections::BTreeMap;
use topolab_wire::Setting;

/// One trial. Under the virtual clock it holds nothing that depends on the host, so that the same inputs give the same
/// bytes.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TrialRecord {
    /// The kernel.
    pub kernel: KernelRef,
    /// The topology's name.
    pub topology: String,
    /// The bundle's name.
    pub bundle: String,
    /// Parameters' values.
    pub params: BTreeMap<String, Setting>,
    /// Boot, from 0.
    pub boot: u32,
    /// Seed of the boot.
    pub seed: u64,
    /// What its timings are worth.
    pub label: Label,
    /// Declared against observed; `None` when the guest never got so far.
    pub observed: Option<Observed>,
    /// Metrics by name, a sample per repetition.
    pub metrics: BTreeMap<String, Samples>,
    /// What the scheduler did, by name, a sample per counted run; and what counting cost.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mechanism: BTreeMap<String, Samples>,
    /// Invariants.
    pub invariants: Vec<Invariant>,
    /// What takes something from the promise of a virtual clock: turns that were switched off or delayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cautions: Vec<String>,
    /// What went wrong, if anything did; then there are no metrics.
    pub fault: Option<FaultRecord>,
}

/// A kernel by role, name and key.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct KernelRef {
    /// Its side.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// Its key.
    pub key: String,
}

/// Declared against observed, in short.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Observed {
    /// Whether nothing differs.
    pub matches: bool,
    /// What differs.
    pub differs: Vec<Row>,
    /// What this architecture and QEMU cannot show.
    pub not_expressible: Vec<Row>,
}

impl From<&Comparison> for Observed {
    fn from(comparison: &Comparison) -> Self {
        let inexpressible = |row: &&Row| match row.finding {
            Finding::NotExpressible(_) => true,
            Finding::Same | Finding::Differs => false,
        };
        Self {
            matches: comparison.matches(),
            differs: comparison.differing().cloned().collect(),
            not_expressible: comparison.rows.iter().filter(inexpressible).cloned().collect(),
        }
    }
}

/// A metric's samples.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Samples {
    /// Unit.
    pub unit: String,
    /// One per repetition.
    pub samples: Vec<f64>,
    /// Whether any of them rests on too few observations to carry a verdict.
    pub thin: bool,
}

/// The invariant that a kernel complains of nothing on its console; its evidence is the complaints' titles.
pub const NO_COMPLAINTS: &str = "kernel_complains_of_nothing";

/// Something that must hold.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Invariant {
    /// Its name.
    pub name: String,
    /// Whether it held.
    pub holds: bool,
    /// Why we think so.
    pub evidence: String,
}

/// A fault as it is saved.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FaultRecord {
    /// Who or what failed.
    pub kind: FaultKind,
    /// What is wrong.
    pub message: String,
    /// The evidence.
    pub detail: Option<String>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl From<FaultRecord> for Fault {
    fn from(record: FaultRecord) -> Self {
        Self { kind: record.kind, message: record.message, detail: record.detail, help: record.help }
    }
}

impl From<Fault> for FaultRecord {
    fn from(fault: Fault) -> Self {
        Self { kind: fault.kind, message: fault.message, detail: fault.detail, help: fault.help }
    }
}
