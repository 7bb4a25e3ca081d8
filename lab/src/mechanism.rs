//! What the scheduler did during a run, as named numbers: from the busy module's counters (lab/busy, `mechanism`) and from
//! /proc/schedstat (Documentation/scheduler/sched-stats.rst). Pure.
//!
//! `wakeups.KIND.WHERE` counts wakeups by kind (sync, async) and by where the wakee was put, seen from its waker; `stacked.KIND` those
//! put on a CPU that was not idle, and `stacked.KIND.idle_elsewhere` those of them while an allowed CPU of another last-level cache
//! was; `migrations.WHEN.LEVEL` moves of tasks by the lowest domain that spans both CPUs; `wait.*` time in run queues; `busy.*` time
//! that tasks ran, as a share of the CPUs' time; `imbalance.*` the busiest one's share over the mean.

use std::collections::BTreeMap;
use topolab_wire::{Counts, CpuSet, Observation, Value};

/// The machine, as far as counts are sorted by it.
pub struct Places<'a> {
    /// Last-level caches.
    pub llcs: &'a [CpuSet],
    /// Nodes with CPUs.
    pub nodes: &'a [CpuSet],
    /// The kernel's own domains.
    pub observation: &'a Observation,
}

/// The numbers of a counted run; the error says what could not be read.
pub fn numbers(counts: &Counts, places: &Places<'_>) -> Result<BTreeMap<String, Value>, String> {
    let mut all = BTreeMap::new();
    if counts.missing.is_none() {
        module(&counts.module, places, &mut all)?;
    }
    schedstat(counts, places, &mut all)?;
    Ok(all)
}

fn put(all: &mut BTreeMap<String, Value>, name: String, unit: &str, value: f64) {
    all.insert(name, Value { unit: unit.into(), value, thin: false });
}

/// The index of the set that has a CPU.
fn index(sets: &[CpuSet], cpu: u32) -> Option<usize> {
    sets.iter().position(|set| set.contains(cpu))
}

const KINDS: [&str; 2] = ["async", "sync"];
const WHENS: [&str; 2] = ["waking", "queued"];

fn module(text: &str, places: &Places<'_>, all: &mut BTreeMap<String, Value>) -> Result<(), String> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for kind in KINDS {
        for place in ["waker_cpu", "same_llc", "other_llc", "other_node"] {
            sums.insert(format!("wakeups.{kind}.{place}"), 0);
        }
        sums.insert(format!("stacked.{kind}"), 0);
        sums.insert(format!("stacked.{kind}.idle_elsewhere"), 0);
    }
    for line in text.lines() {
        let wrong = || format!("the busy module said `{line}`");
        let (word, rest) = line.split_once(' ').ok_or_else(wrong)?;
        let numbers: Vec<u64> = rest.split(' ').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let kind = |kinds: [&'static str; 2], n: u64| kinds.get(n as usize).copied().ok_or_else(wrong);
        let mut add = |name: String, count: u64| *sums.entry(name).or_default() += count;
        match (word, numbers.as_slice()) {
            ("wakeup", [sync, waker, chosen, count]) => {
                add(
                    format!("wakeups.{}.{}", kind(KINDS, *sync)?, landed(*waker as u32, *chosen as u32, places)),
                    *count,
                );
            }
            ("stacked", [sync, _, busy, elsewhere]) => {
                let kind = kind(KINDS, *sync)?;
                add(format!("stacked.{kind}"), *busy);
                add(format!("stacked.{kind}.idle_elsewhere"), *elsewhere);
            }
            ("migration", [when, from, to, count]) => {
                add(format!("migrations.{}.{}", kind(WHENS, *when)?, level(*from as u32, *to as u32, places)), *count);
            }
            ("missed", [missed]) => add("wakeups.missed".into(), *missed),
            (_, _) => return Err(wrong()),
        }
    }
    for (name, sum) in sums {
        put(all, name, "1", sum as f64);
    }
    Ok(())
}

fn landed(waker: u32, chosen: u32, places: &Places<'_>) -> &'static str {
    let same = |sets: &[CpuSet]| index(sets, waker) == index(sets, chosen);
    match () {
        () if waker == chosen => "waker_cpu",
        () if same(places.llcs) => "same_llc",
        () if same(places.nodes) => "other_llc",
        () => "other_node",
    }
}

/// The lowest domain of one CPU that spans another.
fn level(from: u32, to: u32, places: &Places<'_>) -> String {
    let cpu = places.observation.cpus.iter().find(|cpu| cpu.cpu == from);
    let domain = cpu.and_then(|cpu| cpu.domains.iter().find(|domain| domain.span.contains(to)));
    domain.map_or("no_domain".into(), |domain| domain.name.to_lowercase())
}

/// What a CPU's line of /proc/schedstat says, since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Line {
    busy_ns: u64,
    wait_ns: u64,
    slices: u64,
}

fn lines(text: &str) -> BTreeMap<u32, Line> {
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [.., busy_ns, wait_ns, slices] = numbers[..] else { return None };
        Some((cpu, Line { busy_ns, wait_ns, slices }))
    };
    text.lines().filter_map(one).collect()
}

fn schedstat(counts: &Counts, places: &Places<'_>, all: &mut BTreeMap<String, Value>) -> Result<(), String> {
    let (before, after) = (lines(&counts.before), lines(&counts.after));
    if after.is_empty() {
        return Err("/proc/schedstat has no CPUs: CONFIG_SCHEDSTATS is missing".into());
    }
    let during = |cpu: u32| {
        let (a, b) = (before.get(&cpu).copied().unwrap_or_default(), after.get(&cpu).copied().unwrap_or_default());
        Line {
            busy_ns: b.busy_ns.saturating_sub(a.busy_ns),
            wait_ns: b.wait_ns.saturating_sub(a.wait_ns),
            slices: b.slices.saturating_sub(a.slices),
        }
    };
    let (wait, slices) = after.keys().map(|cpu| during(*cpu)).fold((0, 0), |(w, s), l| (w + l.wait_ns, s + l.slices));
    put(all, "wait.total_ms".into(), "ms", wait as f64 / 1e6);
    put(all, "wait.mean_us".into(), "us", wait as f64 / 1e3 / slices.max(1) as f64);
    for (kind, sets) in [("llc", places.llcs), ("node", places.nodes)] {
        let shares: Vec<f64> = sets
            .iter()
            .map(|set| {
                let busy: u64 = set.iter().map(|cpu| during(cpu).busy_ns).sum();
                100.0 * busy as f64 / (counts.elapsed_ns.max(1) as f64 * set.len().max(1) as f64)
            })
            .collect();
        let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        let most = shares.iter().copied().fold(0.0, f64::max);
        for (n, share) in shares.iter().enumerate() {
            put(all, format!("busy.{kind}{n}"), "%", *share);
        }
        put(all, format!("imbalance.{kind}"), "1", if mean > 0.0 { most / mean } else { 1.0 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation() -> Observation {
        let cpu = |cpu: u32, pair: (u32, u32)| {
            serde_json::json!({"cpu": cpu, "package": "0-3", "die": "0-3", "cluster": "0-3", "core": cpu.to_string(),
                "capacity": null, "caches": [], "llc": format!("{}-{}", pair.0, pair.1),
                "domains": [{"name": "MC", "span": format!("{}-{}", pair.0, pair.1), "flags": []}, {"name": "NUMA", "span": "0-3", "flags": []}]})
        };
        let cpus = [cpu(0, (0, 1)), cpu(1, (0, 1)), cpu(2, (2, 3)), cpu(3, (2, 3))];
        let mut empty: serde_json::Value = serde_json::to_value(Observation::default()).expect("JSON");
        empty["cpus"] = serde_json::json!(cpus);
        serde_json::from_value(empty).expect("an observation")
    }

    fn seen(module: &str, missing: Option<&str>) -> Result<BTreeMap<String, f64>, String> {
        let observation = observation();
        let halves = [CpuSet::range(0, 2), CpuSet::range(2, 4)];
        let places = Places { llcs: &halves, nodes: &halves, observation: &observation };
        let stat = |busy: u64| {
            format!(
                "version 17\ntimestamp 1\ncpu0 0 0 0 0 0 0 {busy} {} 10\ndomain0 MC 3 1\ncpu1 0 0 0 0 0 0 5 0 0\ncpu2 0 0 0 0 0 0 0 0 0\ncpu3 0 0 0 0 0 0 0 0 0\n",
                busy / 10
            )
        };
        let counts = Counts {
            module: module.into(),
            missing: missing.map(str::to_string),
            before: stat(0),
            after: stat(1_000_000),
            elapsed_ns: 1_000_000,
        };
        Ok(numbers(&counts, &places)?.into_iter().map(|(name, v)| (name, v.value)).collect())
    }

    #[test]
    fn counts_are_sorted_by_what_both_cpus_share() {
        let text = "wakeup 1 0 0 5\nwakeup 1 0 1 4\nwakeup 0 0 2 3\nstacked 1 0 5 2\nstacked 1 2 1 1\nmigration 0 0 1 7\nmigration 1 0 3 2\n";
        let n = seen(text, None).expect("numbers");
        assert_eq!(
            (n["wakeups.sync.waker_cpu"], n["wakeups.sync.same_llc"], n["wakeups.async.other_node"]),
            (5.0, 4.0, 3.0)
        );
        assert_eq!((n["stacked.sync"], n["stacked.sync.idle_elsewhere"], n["stacked.async"]), (6.0, 3.0, 0.0));
        assert_eq!((n["migrations.waking.mc"], n["migrations.queued.numa"]), (7.0, 2.0));
        assert_eq!((n["busy.llc0"], n["busy.llc1"], n["imbalance.llc"]), (50.0, 0.0, 2.0));
        // 100 µs of waiting; the slices are the same before and after, and nothing is divided by 0.
        assert_eq!((n["wait.total_ms"], n["wait.mean_us"]), (0.1, 100.0));
    }

    #[test]
    fn without_the_module_the_kernels_own_statistics_are_left() {
        let n = seen("", Some("no module")).expect("numbers");
        assert!(!n.contains_key("wakeups.sync.waker_cpu") && n.contains_key("busy.node0"));
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        assert!(seen("wakeup 1 2\n", None).is_err());
        assert!(seen("wakeup 2 0 0 1\n", None).is_err());
        assert!(seen("nonsense\n", None).is_err());
    }
}
