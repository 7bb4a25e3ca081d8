//! The wakeups of this process while a model runs, counted where the scheduler decides: the busy module probes
//! `select_task_rq_fair` and counts (sync or not, waker's CPU, chosen CPU).

use std::collections::BTreeMap;
use std::io;
use topolab_wire::CpuSet;

/// The module's control and data file.
const FILE: &str = "/sys/kernel/debug/topolab/wakeups";

/// Where wakeups of one kind landed, seen from the waker.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Landed {
    /// On the waker's own CPU.
    pub(crate) waker_cpu: u64,
    /// Elsewhere in the waker's last-level cache.
    pub(crate) same_llc: u64,
    /// In another last-level cache of the waker's node.
    pub(crate) other_llc: u64,
    /// On another node.
    pub(crate) other_node: u64,
}

impl Landed {
    pub(crate) fn total(&self) -> u64 {
        self.waker_cpu + self.same_llc + self.other_llc + self.other_node
    }
}

/// The wakeups of one run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wakeups {
    /// Those with WF_SYNC.
    pub(crate) sync: Landed,
    /// Those without.
    pub(crate) other: Landed,
    /// How many the probe could not see, because it ran out of instances.
    pub(crate) missed: u64,
}

/// Starts counting, from zero, the wakeups of the calling process's threads.
pub(crate) fn start() -> io::Result<()> {
    std::fs::write(FILE, format!("start {}", std::process::id()))
}

/// Stops counting and returns what was counted.
pub(crate) fn stop(llcs: &[CpuSet], nodes: &[CpuSet]) -> io::Result<Wakeups> {
    std::fs::write(FILE, "stop")?;
    Ok(classify(&std::fs::read_to_string(FILE)?, llcs, nodes))
}

fn classify(text: &str, llcs: &[CpuSet], nodes: &[CpuSet]) -> Wakeups {
    let index = |sets: &[CpuSet]| -> BTreeMap<u32, usize> {
        sets.iter().enumerate().flat_map(|(i, set)| set.iter().map(move |cpu| (cpu, i))).collect()
    };
    let (llc_of, node_of) = (index(llcs), index(nodes));
    let mut wakeups = Wakeups::default();
    for line in text.lines() {
        if let Some(missed) = line.strip_prefix("missed ") {
            wakeups.missed = missed.parse().unwrap_or(u64::MAX);
        }
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [sync, waker, chosen, count] = numbers[..] else { continue };
        let (waker, chosen) = (waker as u32, chosen as u32);
        let kind = if sync == 1 { &mut wakeups.sync } else { &mut wakeups.other };
        match () {
            () if waker == chosen => kind.waker_cpu += count,
            () if llc_of.get(&waker) == llc_of.get(&chosen) => kind.same_llc += count,
            () if node_of.get(&waker) == node_of.get(&chosen) => kind.other_llc += count,
            () => kind.other_node += count,
        }
    }
    wakeups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wakeup_is_counted_by_the_nearest_thing_that_both_share() {
        let llcs = [CpuSet::range(0, 2), CpuSet::range(2, 4), CpuSet::range(4, 8)];
        let nodes = [CpuSet::range(0, 4), CpuSet::range(4, 8)];
        let counted = classify("1 0 0 5\n1 0 1 4\n1 0 2 3\n1 0 4 2\n0 7 7 1\nmissed 6\n", &llcs, &nodes);
        assert_eq!(counted.missed, 6);
        assert_eq!(counted.sync, Landed { waker_cpu: 5, same_llc: 4, other_llc: 3, other_node: 2 });
        assert_eq!(counted.other, Landed { waker_cpu: 1, ..Landed::default() });
        assert_eq!(counted.sync.total(), 14);
    }
}
