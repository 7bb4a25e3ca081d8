//! Turns what was measured into a record.

use super::Measured;
use crate::ModelError;
use crate::machine::Machine;
use crate::report::{Report, Unit};
use std::collections::BTreeMap;
use topolab_wire::{ModelOrder, ModelRecord};

/// What is told of a phase's durations.
const OF_PHASES: [(&str, f64); 2] = [("p50", 50.0), ("p99", 99.0)];

/// A name as a part of a metric's.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

pub(super) fn record(measured: Measured<'_, Machine>, order: &ModelOrder) -> Result<ModelRecord, ModelError> {
    let (mut wakeups, mut slacks) = (Vec::new(), Vec::new());
    let mut periods: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut loops: BTreeMap<String, u64> = BTreeMap::new();
    for (task, samples) in measured.samples {
        wakeups.extend(samples.wakeups);
        slacks.extend(samples.slacks);
        let task_name = plain(&task.name);
        for (phase, durations) in task.phases.iter().zip(samples.phases) {
            *loops.entry(task_name.clone()).or_default() += durations.len() as u64;
            let phase_name = phase.name.as_deref().map(|name| format!(".{}", plain(name))).unwrap_or_default();
            periods.entry(format!("period_us.{task_name}{phase_name}")).or_default().extend(durations);
        }
    }
    let all: u64 = loops.values().sum();
    if all == 0 {
        return Err(ModelError::NothingMeasured("no task has done a phase to its end within the duration".into()));
    }
    let mut report = Report::new();
    let seconds = measured.elapsed.as_secs_f64();
    report.put("loops_per_s", "1/s", all as f64 / seconds);
    for (task, loops) in loops.iter().filter(|(_, loops)| **loops > 0) {
        report.put(format!("loops_per_s.{task}"), "1/s", *loops as f64 / seconds);
    }
    report.evidence("loops", loops.into_values().collect());
    report.evidence("elapsed_ns", vec![measured.elapsed.as_nanos() as u64]);
    report.evidence("wakeup_latencies", vec![wakeups.len() as u64]);
    if !wakeups.is_empty() {
        report.percentiles("wakeup_latency_us", Unit::Us, wakeups);
    }
    if !slacks.is_empty() {
        let in_time = slacks.iter().filter(|slack| **slack >= 0).count() as u64;
        report.evidence("timers", vec![slacks.len() as u64, in_time]);
        report.put("in_time", "%", 100.0 * in_time as f64 / slacks.len() as f64);
        report.low_percentiles("slack_us", Unit::Us, slacks);
    }
    for (name, durations) in periods.into_iter().filter(|(_, durations)| !durations.is_empty()) {
        report.some_percentiles(&name, Unit::Us, &OF_PHASES, durations);
    }
    report.machine(order, &measured.machine);
    Ok(report.finish())
}
