//! What a kernel complains of on its console. Pure: text in, titles out.
//!
//! A title is the complaint without what differs from boot to boot (time stamp, CPU, PID, addresses), so that two kernels'
//! complaints can be compared.

/// Marks of a complaint, as kernels print them (lib/bug.c, kernel/panic.c, kernel/sched/topology.c, kernel/locking/lockdep.c,
/// mm/kasan/report.c).
const MARKS: &[&str] = &[
    "WARNING: ",
    "BUG: ",
    "kernel BUG at ",
    "Oops: ",
    "ERROR: groups don't span domain->span",
    "ERROR: parent span is not a superset",
    "ERROR: repeated CPUs",
    "ERROR: domain->groups",
    "ERROR: domain->span",
    "general protection fault",
    "UBSAN: ",
];
/// Those that say that something does not go on (kernel/rcu/tree_stall.h, kernel/watchdog.c, kernel/hung_task.c), and the last word.
const STALLS: &[&str] = &[
    "detected stalls on CPUs",
    "self-detected stall on CPU",
    "hard LOCKUP",
    "blocked for more than",
    "soft lockup - CPU#",
    "Kernel panic - ",
];

/// Whether a line says that the kernel, or a task in it, does not go on.
pub fn is_stall(line: &str) -> bool {
    STALLS.iter().any(|mark| line.contains(mark))
}

/// The complaints of a console, each title once, in order of first appearance, with how often it came.
pub fn complaints(console: &str) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for line in console.lines() {
        let Some(at) = MARKS.iter().chain(STALLS).filter_map(|mark| line.find(mark)).min() else { continue };
        let title = title(&line[at..]);
        match found.iter_mut().find(|(known, _)| *known == title) {
            Some((_, count)) => *count += 1,
            None => found.push((title, 1)),
        }
    }
    found
}

/// The complaints of a console and a kernel log that tell the same story, each in part: the more of the two counts.
pub fn complaints_of_both(console: &str, log: &str) -> Vec<(String, usize)> {
    let mut found = complaints(console);
    for (title, count) in complaints(log) {
        match found.iter_mut().find(|(known, _)| *known == title) {
            Some((_, known)) => *known = (*known).max(count),
            None => found.push((title, count)),
        }
    }
    found
}

/// Without numbers that belong to this boot: `WARNING: CPU: 3 PID: 1 at kernel/x.c:10 f+0x1/0x2` keeps place and function.
fn title(text: &str) -> String {
    let text = text.trim();
    let Some(rest) = text.strip_prefix("WARNING: ") else { return text.to_string() };
    let place = rest.split(" at ").nth(1).map(|place| place.split('+').next().unwrap_or(place));
    // Since 6.18 the line reads "WARNING: kernel/x.c:10 at f+0x1/0x2, CPU#3: …".
    let newer = rest.split_once(" at ").filter(|(place, _)| place.contains(".c:") || place.contains(".h:"));
    match (newer, place) {
        (Some((file, function)), _) => format!("WARNING: {file} {}", function.split('+').next().unwrap_or(function)),
        (None, Some(place)) => format!("WARNING: {place}"),
        (None, None) => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_titled_without_what_belongs_to_one_boot() {
        let console = "[    2.1] ERROR: groups don't span domain->span\r\n[    2.2] ERROR: groups don't span domain->span\n\
            [    3.0] WARNING: CPU: 3 PID: 1 at kernel/sched/topology.c:2486 build_sched_domains+0x10/0x20\n\
            [    3.1] WARNING: kernel/sched/topology.c:2486 at build_sched_domains+0x1/0x2, CPU#1: swapper/0/1\n\
            [    4.0] smp: Brought up 6 nodes, 24 CPUs\n[    5.0] printk: debug: ignoring loglevel setting.\n";
        let expected = [
            ("ERROR: groups don't span domain->span".to_string(), 2),
            ("WARNING: kernel/sched/topology.c:2486 build_sched_domains".to_string(), 2),
        ];
        assert_eq!(complaints(console), expected);
        assert_eq!(complaints("[ 0.1] Booting SMP configuration"), []);
    }
}
