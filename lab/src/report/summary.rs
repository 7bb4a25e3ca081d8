//! Records folded into one section per topology and bundle, with a row and a verdict per metric.

use crate::plan::{Label, Plan, Role};
use crate::results::{Invariant, TrialRecord};
use crate::stats;
use crate::verdict::{self, Question, Verdict, Word};

/// Everything that a page shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// One per topology and bundle.
    pub sections: Vec<Section>,
}

/// A topology with a bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// The topology's name.
    pub topology: String,
    /// The machine in a few words.
    pub machine: String,
    /// The bundle's name.
    pub bundle: String,
    /// What the machine charges.
    pub costs: String,
    /// The parameters that are not the default.
    pub params: String,
    /// What timings are worth.
    pub label: Label,
    /// Boots with results, base and patched.
    pub boots: (usize, usize),
    /// What the guests saw: `yes`, or what differed.
    pub observed: String,
    /// Names of what cannot be shown.
    pub not_expressible: Vec<String>,
    /// Rows in the bundle's order.
    pub rows: Vec<MetricRow>,
    /// What the scheduler did, where it was counted.
    pub mechanism: Vec<super::MechanismRow>,
    /// Broken invariants, with their evidence.
    pub broken: Vec<String>,
    /// What a reader must know before the numbers: a disturbed clock, patches that did not go on exactly or change nothing.
    pub cautions: Vec<String>,
    /// Faults, one line each.
    pub faults: Vec<String>,
}

/// One side of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Side {
    /// Mean over boots of each boot's median.
    pub centre: f64,
    /// Standard deviation over boots; `None` for one boot.
    pub spread: Option<f64>,
}

/// A metric.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricRow {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Left out of the table.
    pub hidden: bool,
    /// Without the patch.
    pub base: Option<Side>,
    /// With it.
    pub patched: Option<Side>,
    /// The verdict, when there are two sides.
    pub verdict: Option<Verdict>,
}

/// Folds the records of a plan.
pub fn summarise(plan: &Plan, trials: &[TrialRecord]) -> Summary {
    let priced = plan.topologies.iter().zip(&plan.costs);
    let pairs = priced.flat_map(|(t, c)| plan.bundles.iter().map(move |b| (t, c, b)));
    let sections = pairs.map(|(topology, costs, planned)| {
        let own: Vec<&TrialRecord> =
            trials.iter().filter(|r| r.topology == topology.name && r.bundle == planned.bundle.name).collect();
        let s = topology.shape;
        let defaults = planned.bundle.values(&[]).unwrap_or_default();
        let changed = planned.values.iter().filter(|(name, value)| defaults.get(*name) != Some(*value));
        Section {
            topology: topology.name.clone(),
            machine: format!("{} CPUs, {} node(s), {} LLC(s)", s.cpus(), topology.nodes.len(), topology.llcs().len()),
            bundle: planned.bundle.name.clone(),
            costs: costs.to_string(),
            params: changed.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "),
            label: plan.label(),
            boots: (boots(&own, Role::Base), boots(&own, Role::Patched)),
            observed: observed(&own),
            not_expressible: not_expressible(&own),
            rows: rows(plan, planned, &own),
            mechanism: super::mechanism::rows(&own),
            broken: broken(&own),
            cautions: cautions(plan, &own),
            faults: faults(&own),
        }
    });
    Summary { sections: sections.collect() }
}

fn boots(records: &[&TrialRecord], role: Role) -> usize {
    records.iter().filter(|r| r.kernel.role == role && r.fault.is_none()).count()
}

fn observed(records: &[&TrialRecord]) -> String {
    let mut differs: Vec<&str> =
        records.iter().flat_map(|r| &r.observed).flat_map(|o| &o.differs).map(|row| row.what.as_str()).collect();
    differs.sort_unstable();
    differs.dedup();
    match (records.iter().any(|r| r.observed.is_some()), differs.is_empty()) {
        (false, _) => "unknown".into(),
        (true, true) => "yes".into(),
        (true, false) => format!("NO ({})", differs.join(", ")),
    }
}

fn cautions(plan: &Plan, records: &[&TrialRecord]) -> Vec<String> {
    let disturbed: std::collections::BTreeSet<&String> = records.iter().flat_map(|r| &r.cautions).collect();
    let mut all: Vec<String> = disturbed.into_iter().cloned().collect();
    all.extend(
        plan.kernels.iter().flat_map(|kernel| kernel.inexact.iter().map(|note| format!("{}: {note}", kernel.name))),
    );
    if let [base, patched] = plan.kernels.as_slice()
        && base.signature.is_some()
        && base.signature == patched.signature
    {
        all.push("both kernels load the same code and data: the patch changes nothing that runs".into());
    }
    all
}

fn not_expressible(records: &[&TrialRecord]) -> Vec<String> {
    let rows = records.iter().flat_map(|r| &r.observed).flat_map(|o| &o.not_expressible);
    let mut names: Vec<String> = rows.map(|r| format!("{} {} shown as {}", r.what, r.declared, r.observed)).collect();
    names.sort();
    names.dedup();
    names
}

/// Broken invariants. What the base breaks with the same evidence is not the patch's doing, and counts on the base alone: a
/// comparison is not failed by an old complaint.
fn broken(records: &[&TrialRecord]) -> Vec<String> {
    let compared = records.iter().any(|r| r.kernel.role == Role::Patched);
    let of_base = |invariant: &Invariant| {
        let on_base = records.iter().filter(|r| r.kernel.role == Role::Base);
        on_base
            .flat_map(|r| &r.invariants)
            .any(|other| !other.holds && other.name == invariant.name && other.evidence == invariant.evidence)
    };
    let all = records
        .iter()
        .flat_map(|r| r.invariants.iter().filter(|i| !(i.holds || compared && of_base(i))).map(move |i| (r, i)));
    all.map(|(r, i)| format!("{} ({}, boot {}): {}", i.name, r.kernel.role, r.boot, i.evidence)).collect()
}

fn faults(records: &[&TrialRecord]) -> Vec<String> {
    let all = records.iter().filter_map(|r| r.fault.as_ref().map(|fault| (r, fault)));
    all.map(|(r, f)| format!("{} boot {}: {} fault: {}", r.kernel.role, r.boot, f.kind.word(), f.message)).collect()
}

fn rows(plan: &Plan, planned: &crate::plan::PlannedBundle, records: &[&TrialRecord]) -> Vec<MetricRow> {
    let mut names: Vec<(&str, &str)> =
        records.iter().flat_map(|r| &r.metrics).map(|(name, samples)| (name.as_str(), samples.unit.as_str())).collect();
    names.sort_by_key(|(name, _)| natural(name));
    names.dedup();
    let mut rows = Vec::new();
    for declared in &planned.bundle.metrics {
        for (name, unit) in names.iter().filter(|(name, _)| planned.bundle.metric(name) == Some(declared)) {
            let side = |role| samples(records, role, name);
            let thin = records.iter().filter_map(|r| r.metrics.get(*name)).any(|samples| samples.thin);
            let question = Question {
                base: &side(Role::Base),
                patched: &side(Role::Patched),
                better: declared.better,
                timing: verdict::is_timing(unit),
                thin,
                label: plan.label(),
                margin: plan.margin,
                seed: plan.seed,
            };
            rows.push(MetricRow { hidden: declared.hidden, ..row(plan, name, unit, question) });
        }
    }
    rows
}

/// A metric's samples, by boot.
fn samples(records: &[&TrialRecord], role: Role, name: &str) -> Vec<Vec<f64>> {
    let mut own: Vec<(u32, Vec<f64>)> = records
        .iter()
        .filter(|r| r.kernel.role == role)
        .filter_map(|r| Some((r.boot, r.metrics.get(name)?.samples.clone())))
        .collect();
    own.sort_by_key(|(boot, _)| *boot);
    own.into_iter().map(|(_, samples)| samples).collect()
}

fn row(plan: &Plan, name: &str, unit: &str, question: Question<'_>) -> MetricRow {
    let two_sided = plan.kernels.len() > 1;
    MetricRow {
        name: name.into(),
        unit: unit.into(),
        hidden: false,
        base: side(question.base),
        patched: side(question.patched),
        verdict: two_sided.then(|| verdict::judge(question)),
    }
}

/// The centre and spread of boots, each with its repetitions; `None` where nothing was measured.
pub(super) fn side(boots: &[Vec<f64>]) -> Option<Side> {
    let medians: Vec<f64> = boots.iter().filter(|boot| !boot.is_empty()).map(|boot| stats::median(boot)).collect();
    let centre = medians.iter().sum::<f64>() / medians.len() as f64;
    (!medians.is_empty()).then(|| Side { centre, spread: stats::deviation(&medians) })
}

/// Orders p50 before p99 and p99 before p99.9, node2 before node10.
pub(super) fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let (mut word, mut number) = (String::new(), None::<u64>);
    for c in name.chars() {
        match c.to_digit(10) {
            Some(digit) => number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(u64::from(digit))),
            None => {
                if let Some(n) = number.take() {
                    parts.push((std::mem::take(&mut word), n));
                }
                word.push(c);
            }
        }
    }
    parts.push((word, number.unwrap_or(0)));
    parts
}

impl Summary {
    /// The exit code of the verdicts (DESIGN §7): 1 for a worse one or a broken invariant, 3 when any is inconclusive.
    pub fn exit_code(&self) -> u8 {
        let words =
            || self.sections.iter().flat_map(|s| &s.rows).filter_map(|row| row.verdict.as_ref()).map(|v| v.word);
        let broken = self.sections.iter().any(|section| !section.broken.is_empty());
        if broken || words().any(|word| word == Word::Worse) {
            1
        } else if words().any(|word| word == Word::Inconclusive) {
            3
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_nodes_are_in_the_order_that_people_count() {
        let mut names =
            ["latency_ms.p99.9", "latency_ms.p99", "node10", "latency_ms.p50", "node2", "latency_ms.p99.99"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(
            names,
            ["latency_ms.p50", "latency_ms.p99", "latency_ms.p99.9", "latency_ms.p99.99", "node2", "node10"]
        );
    }
}
