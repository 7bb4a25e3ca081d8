//! The JSON of DESIGN §7: one object per run.

use super::summary::Summary;
use crate::plan::Plan;
use crate::results::TrialRecord;
use serde_json::{Value, json as object};

/// The object.
pub fn json(command: &str, plan: &Plan, trials: &[TrialRecord], summary: &Summary) -> Value {
    let mut verdicts = Vec::new();
    for section in &summary.sections {
        for row in &section.rows {
            let Some(verdict) = &row.verdict else { continue };
            verdicts.push(object!({
                "topology": section.topology,
                "bundle": section.bundle,
                "metric": row.name,
                "unit": row.unit,
                "verdict": verdict.word,
                "base": row.base.map(|side| side.centre),
                "patched": row.patched.map(|side| side.centre),
                "ratio": verdict.ratio,
                "interval": verdict.interval.map(|(low, high)| [low, high]),
                "p": verdict.p,
                "n": [section.boots.0, section.boots.1],
                "detectable": verdict.detectable,
                "reason": verdict.reason,
            }));
        }
    }
    object!({
        "schema": "topolab/1",
        "command": command,
        "plan": plan,
        "trials": trials,
        "verdicts": verdicts,
    })
}
