//! The scheduler's own domains: spans from /proc/schedstat, names and flags from debugfs.

use super::text;
use std::collections::BTreeMap;
use std::path::Path;
use topolab_wire::{CpuSet, Domain};

/// The flag that makes a domain part of the last-level cache (include/linux/sched/sd_flags.h).
const SHARE_LLC: &[&str] = &["SD_SHARE_LLC", "SD_SHARE_PKG_RESOURCES"];

/// Reads every CPU's domains. Since version 16 of /proc/schedstat a line reads `domainN NAME MASK …`, before that
/// `domainN MASK …` (Documentation/scheduler/sched-stats.rst).
pub(super) fn read(root: &Path) -> BTreeMap<u32, Vec<Domain>> {
    let mut all: BTreeMap<u32, Vec<Domain>> = BTreeMap::new();
    let mut cpu = None;
    for line in text(&root.join("proc/schedstat")).unwrap_or_default().lines() {
        let mut words = line.split(' ');
        let first = words.next().unwrap_or_default();
        if let Some(number) = first.strip_prefix("cpu").and_then(|n| n.parse().ok()) {
            cpu = Some(number);
            all.entry(number).or_default();
        }
        let (Some(cpu), Some(index)) = (cpu, first.strip_prefix("domain")) else { continue };
        let debugfs = root.join(format!("sys/kernel/debug/sched/domains/cpu{cpu}/domain{index}"));
        let second = words.next().unwrap_or_default();
        // A name never parses as a mask: MC, PKG, NUMA and SMT hold letters beyond `f`; CLS and NODE do too.
        let (name, mask) = match CpuSet::from_mask(second) {
            Ok(mask) => (text(&debugfs.join("name")).unwrap_or_default(), Ok(mask)),
            Err(_) => (second.to_string(), CpuSet::from_mask(words.next().unwrap_or_default())),
        };
        let Ok(span) = mask else { continue };
        let flags = text(&debugfs.join("flags")).unwrap_or_default();
        let flags = flags.split_whitespace().map(str::to_string).collect();
        all.entry(cpu).or_default().push(Domain { name, span, flags });
    }
    all
}

/// The span of the highest domain that shares the last-level cache, the CPU alone without one.
pub(super) fn last_level_cache(cpu: u32, domains: &[Domain]) -> CpuSet {
    let shares = |domain: &&Domain| domain.flags.iter().any(|flag| SHARE_LLC.contains(&flag.as_str()));
    match domains.iter().rev().find(shares) {
        Some(domain) => domain.span.clone(),
        None => CpuSet::range(cpu, cpu + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(schedstat: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir_all(root.path().join("proc")).expect("proc");
        std::fs::write(root.path().join("proc/schedstat"), schedstat).expect("schedstat");
        let flags = root.path().join("sys/kernel/debug/sched/domains/cpu0/domain0");
        std::fs::create_dir_all(&flags).expect("debugfs");
        std::fs::write(flags.join("flags"), "SD_BALANCE_NEWIDLE SD_SHARE_LLC \n").expect("flags");
        std::fs::write(flags.join("name"), "MC\n").expect("name");
        root
    }

    #[test]
    fn both_forms_of_schedstat_give_names_and_spans() {
        let new = read(tree("version 17\ncpu0 0 0\ndomain0 MC ff 1 2\ndomain1 NUMA ffffff 1 2\n").path());
        let old = read(tree("version 15\ncpu0 0 0\ndomain0 ff 1 2\n").path());
        assert_eq!(new[&0][0].name, "MC");
        assert_eq!(new[&0][1].span.to_string(), "0-23");
        assert_eq!(old[&0][0].name, "MC");
        assert_eq!(old[&0][0].span.to_string(), "0-7");
    }

    #[test]
    fn the_last_level_cache_is_the_highest_domain_that_shares_it() {
        let domains = read(tree("cpu0 0\ndomain0 MC ff 1\ndomain1 NUMA ffffff 1\n").path());
        assert_eq!(last_level_cache(0, &domains[&0]).to_string(), "0-7");
        assert_eq!(last_level_cache(5, &[]).to_string(), "5");
    }
}
