//! The virtual clock's promise, put to the test: two runs of the same plan, compared record by record and console by console. The first
//! difference is shown; it is the lab's fault, never the kernel's.

use crate::bench::Finished;
use crate::fault::{Fault, Outcome, Trying};
use crate::results::TrialRecord;
use topolab_wire::Marker;

/// Says where two runs differ first, as a fault of the lab; nothing, where they are the same to the byte.
pub fn same(one: &Finished, other: &Finished) -> Outcome<()> {
    if one.trials.len() != other.trials.len() {
        return Err(Fault::lab(format!(
            "the two runs have {} and {} trials, so the virtual clock's promise is broken",
            one.trials.len(),
            other.trials.len()
        )));
    }
    let mut numbered = one.plan.trials();
    numbered.sort_by_key(|trial| trial.number);
    for ((trial, first), second) in numbered.iter().zip(&one.trials).zip(&other.trials) {
        let text = |record: &TrialRecord| serde_json::to_string_pretty(record).trying("a record as JSON");
        let consoles = [one, other].map(|run| -> Outcome<String> {
            let path = run.store.trial(&run.plan, trial)?.join("console.log");
            let bytes = std::fs::read(&path).trying(path.display())?;
            Ok(until_measured(&String::from_utf8_lossy(&bytes)))
        });
        let [console, again] = consoles;
        for (what, a, b) in [("record", text(first)?, text(second)?), ("console", console?, again?)] {
            if let Some(difference) = first_difference(&a, &b) {
                let name =
                    format!("{} on {}, {}, boot {}", first.bundle, first.topology, first.kernel.role, first.boot);
                return Err(Fault::lab(format!("two runs are not the same: the {what} of {name}"))
                    .detail(difference)
                    .help(format!(
                        "both are kept: {} and {}",
                        one.store.folder().display(),
                        other.store.folder().display()
                    )));
            }
        }
    }
    Ok(())
}

/// The console up to the last point that counts: behind it results leave over virtiofs, whose answers come when the host is ready.
fn until_measured(console: &str) -> String {
    let counts = |line: &&str| Marker::parse(line) != Some(Marker::Measured);
    console.lines().take_while(counts).map(|line| format!("{line}\n")).collect()
}

/// The first line that differs, with both.
fn first_difference(a: &str, b: &str) -> Option<String> {
    let (mut left, mut right) = (a.lines(), b.lines());
    for n in 1.. {
        match (left.next(), right.next()) {
            (None, None) => return None,
            (one, other) if one == other => {}
            (one, other) => {
                let shown = |line: Option<&str>| line.unwrap_or("(nothing)").trim_end().to_string();
                return Some(format!("line {n}\nfirst:  {}\nsecond: {}", shown(one), shown(other)));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_shown_with_its_line() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n").as_deref(), Some("line 2\nfirst:  b\nsecond: c"));
        assert_eq!(first_difference("a\n", "a\nc\n").as_deref(), Some("line 2\nfirst:  (nothing)\nsecond: c"));
    }

    #[test]
    fn what_comes_behind_the_measurement_does_not_count() {
        let console = "[ 1.0] topolab: hello 1\n[ 2.0] topolab: measured\n[ 2.1] late\n";
        assert_eq!(until_measured(console), "[ 1.0] topolab: hello 1\n");
    }
}
