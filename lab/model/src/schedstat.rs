//! Busy time per CPU from /proc/schedstat: its seventh number after `cpuN` is the time that tasks ran there, in
//! nanoseconds (Documentation/scheduler/sched-stats.rst).

use std::collections::BTreeMap;
use std::io;

/// Nanoseconds that tasks have run on each CPU since boot.
pub(crate) fn busy_ns() -> io::Result<BTreeMap<u32, u64>> {
    Ok(parse(&std::fs::read_to_string("/proc/schedstat")?))
}

fn parse(text: &str) -> BTreeMap<u32, u64> {
    let one = |line: &str| {
        let mut words = line.split(' ');
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        Some((cpu, words.nth(6)?.parse().ok()?))
    };
    text.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seventh_number_is_the_busy_time() {
        let text = "version 17\ntimestamp 1\ncpu0 0 0 0 0 0 0 700 8 9\ndomain0 MC 3 0\ncpu1 0 0 0 0 0 0 11 8 9\n";
        assert_eq!(parse(text), BTreeMap::from([(0, 700), (1, 11)]));
    }
}
