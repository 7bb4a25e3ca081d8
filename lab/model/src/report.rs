//! Builds a record: metrics under the names that all models share, the counts behind them, and invariants.

use crate::machine::{ByCpu, Machine};
use crate::percentile::{PRINTED, is_thin, nearest_rank};
use std::collections::BTreeMap;
use topolab_wire::{CpuSet, ModelOrder, ModelRecord, Value};

/// The sign of a number of 64 bits.
const SIGN: u64 = 1 << 63;

/// The unit that latencies are told in; samples are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
}

impl Unit {
    /// Its name and its nanoseconds.
    fn parts(self) -> (&'static str, f64) {
        match self {
            Self::Ms => ("ms", 1e6),
            Self::Us => ("us", 1e3),
        }
    }
}

/// A record under construction.
pub(crate) struct Report(ModelRecord);

impl Report {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self(ModelRecord { metrics: BTreeMap::new(), invariants: BTreeMap::new(), evidence: BTreeMap::new() })
    }

    /// Adds a metric.
    pub(crate) fn put(&mut self, name: impl Into<String>, unit: &str, value: f64) {
        self.0.metrics.insert(name.into(), Value { unit: unit.into(), value, thin: false });
    }

    /// Adds raw counts.
    pub(crate) fn evidence(&mut self, name: &str, counts: Vec<u64>) {
        self.0.evidence.insert(name.into(), counts);
    }

    /// Adds what must have held, with what shows it.
    pub(crate) fn invariant(&mut self, name: &str, held: bool, shown_by: String) {
        self.0.invariants.insert(name.into(), (held, shown_by));
    }

    /// Adds `STEM.p50` and its like, of samples in nanoseconds in any order.
    pub(crate) fn percentiles(&mut self, stem: &str, unit: Unit, samples: Vec<u64>) {
        self.some_percentiles(stem, unit, &PRINTED, samples);
    }

    /// Adds these percentiles only.
    pub(crate) fn some_percentiles(&mut self, stem: &str, unit: Unit, some: &[(&str, f64)], mut samples: Vec<u64>) {
        samples.sort_unstable();
        let (unit, ns_each) = unit.parts();
        for &(name, percent) in some {
            let ns = nearest_rank(&samples, percent).unwrap_or(0);
            let value = Value { unit: unit.into(), value: ns as f64 / ns_each, thin: is_thin(samples.len(), percent) };
            self.0.metrics.insert(format!("{stem}.{name}"), value);
        }
    }

    /// Adds `STEM.p50`, `.p10` and `.p1` of samples that may be negative and of which the lowest are the worst.
    pub(crate) fn low_percentiles(&mut self, stem: &str, unit: Unit, samples: Vec<i64>) {
        // With the sign bit flipped, unsigned numbers sort as the signed ones do.
        let mut flipped: Vec<u64> = samples.into_iter().map(|sample| sample as u64 ^ SIGN).collect();
        flipped.sort_unstable();
        let (unit, ns_each) = unit.parts();
        for (name, percent) in [("p50", 50.0), ("p10", 10.0), ("p1", 1.0)] {
            let ns = (nearest_rank(&flipped, percent).unwrap_or(SIGN) ^ SIGN) as i64;
            let value =
                Value { unit: unit.into(), value: ns as f64 / ns_each, thin: is_thin(flipped.len(), 100.0 - percent) };
            self.0.metrics.insert(format!("{stem}.{name}"), value);
        }
    }

    /// Adds where the work was done: `share.*`, in percent of all of it.
    pub(crate) fn shares(&mut self, order: &ModelOrder, served: &ByCpu) {
        let all: u64 = served.values().sum();
        for (place, set) in places(order) {
            self.put(format!("share.{place}"), "%", 100.0 * sum_over(set, served) as f64 / all.max(1) as f64);
        }
        self.evidence("served_by_cpu", by_cpu(served));
    }

    /// Adds what the machine did: `busy.*`, in percent of the capacity, and `wakeups.*`.
    pub(crate) fn machine(&mut self, order: &ModelOrder, machine: &Machine) {
        for (place, set) in places(order) {
            let capacity = machine.elapsed.as_nanos() as f64 * set.len().max(1) as f64;
            self.put(format!("busy.{place}"), "%", 100.0 * sum_over(set, &machine.busy) as f64 / capacity);
        }
        self.evidence("busy_ns_by_cpu", by_cpu(&machine.busy));
        for (kind, landed) in [("sync", machine.wakeups.sync), ("async", machine.wakeups.other)] {
            self.put(format!("wakeups.{kind}"), "1", landed.total() as f64);
            self.put(format!("wakeups.{kind}.waker_cpu"), "1", landed.waker_cpu as f64);
            self.put(format!("wakeups.{kind}.same_llc"), "1", landed.same_llc as f64);
            self.put(format!("wakeups.{kind}.other_llc"), "1", landed.other_llc as f64);
            self.put(format!("wakeups.{kind}.other_node"), "1", landed.other_node as f64);
        }
        let missed = machine.wakeups.missed;
        self.invariant("every_wakeup_counted", missed == 0, format!("{missed} wakeups escaped the probe"));
    }

    /// The record.
    pub(crate) fn finish(self) -> ModelRecord {
        self.0
    }
}

/// The places that shares are told of: every node and every last-level cache.
fn places(order: &ModelOrder) -> impl Iterator<Item = (String, &CpuSet)> {
    let nodes = order.nodes.iter().enumerate().map(|(index, set)| (format!("node{index}"), set));
    let llcs = order.llcs.iter().enumerate().map(|(index, set)| (format!("llc{index}"), set));
    nodes.chain(llcs)
}

fn sum_over(set: &CpuSet, values: &ByCpu) -> u64 {
    set.iter().filter_map(|cpu| values.get(&cpu)).sum()
}

/// Values by CPU number, 0 where there is none.
fn by_cpu(values: &ByCpu) -> Vec<u64> {
    let end = values.keys().next_back().map_or(0, |last| last + 1);
    (0..end).map(|cpu| values.get(&cpu).copied().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wakeups::{Landed, Wakeups};
    use std::time::Duration;

    fn two_nodes() -> ModelOrder {
        ModelOrder {
            model: "any".into(),
            params: BTreeMap::new(),
            profile: None,
            seed: 1,
            repetitions: 1,
            nodes: vec![CpuSet::range(0, 8), CpuSet::range(8, 24)],
            llcs: vec![CpuSet::range(0, 24)],
        }
    }

    #[test]
    fn shares_are_of_what_was_served_and_busy_is_of_the_capacity() {
        let mut report = Report::new();
        report.shares(&two_nodes(), &ByCpu::from([(0, 1), (8, 3)]));
        let wakeups = Wakeups { sync: Landed { waker_cpu: 2, ..Default::default() }, ..Default::default() };
        let busy = ByCpu::from([(0, 1_000_000), (8, 8_000_000)]);
        report.machine(&two_nodes(), &Machine { elapsed: Duration::from_millis(1), busy, wakeups });
        let record = report.finish();
        let value = |name: &str| record.metrics[name].value;
        assert_eq!((value("share.node0"), value("share.node1"), value("share.llc0")), (25.0, 75.0, 100.0));
        assert_eq!((value("busy.node0"), value("busy.node1")), (12.5, 50.0));
        assert_eq!((value("wakeups.sync"), value("wakeups.sync.waker_cpu")), (2.0, 2.0));
        assert_eq!(record.evidence["served_by_cpu"], [1, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert!(record.invariants["every_wakeup_counted"].0);
    }

    #[test]
    fn percentiles_are_told_in_their_unit() {
        let mut report = Report::new();
        report.percentiles("wait_us", Unit::Us, vec![3_000, 1_000, 2_000]);
        let record = report.finish();
        let p50 = &record.metrics["wait_us.p50"];
        assert_eq!((p50.unit.as_str(), p50.value, p50.thin), ("us", 2.0, true));
    }

    #[test]
    fn the_lowest_are_the_worst_and_may_be_negative() {
        let mut report = Report::new();
        report.low_percentiles("slack_us", Unit::Us, (-100..900).map(|us| us * 1000).collect());
        let record = report.finish();
        let metric = |name: &str| (record.metrics[name].value, record.metrics[name].thin);
        assert_eq!(metric("slack_us.p50"), (399.0, false));
        assert_eq!(metric("slack_us.p10"), (-1.0, false));
        assert_eq!(metric("slack_us.p1"), (-91.0, false));
    }
}
