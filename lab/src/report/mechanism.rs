//! What the scheduler did, beside the numbers: rows with bars for a terminal or a mail.

use super::summary::{Side, natural, side};
use crate::plan::Role;
use crate::results::TrialRecord;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Cells of a full bar.
const BAR: f64 = 12.0;
/// Rows of one kind beyond which a table only says how many there are: a machine may have many last-level caches.
const MOST_ROWS: usize = 24;

/// A counted number.
#[derive(Debug, Clone, PartialEq)]
pub struct MechanismRow {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Without the patch.
    pub base: Option<Side>,
    /// With it.
    pub patched: Option<Side>,
}

/// The rows of some records.
pub(super) fn rows(records: &[&TrialRecord]) -> Vec<MechanismRow> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, samples) in records.iter().flat_map(|record| &record.mechanism) {
        names.insert(name, &samples.unit);
    }
    let mut rows: Vec<MechanismRow> = names
        .into_iter()
        .map(|(name, unit)| {
            let own = |role| records.iter().filter(move |record| record.kernel.role == role);
            let counted =
                |role| own(role).filter_map(|r| r.mechanism.get(name)).map(|s| s.samples.clone()).collect::<Vec<_>>();
            let side = |role| side(&counted(role));
            MechanismRow { name: name.into(), unit: unit.into(), base: side(Role::Base), patched: side(Role::Patched) }
        })
        .collect();
    rows.sort_by_key(|row| (order(&row.name), natural(&row.name)));
    rows
}

/// Wakeups first, then what follows from them.
fn order(name: &str) -> usize {
    let groups = ["wakeups.sync", "wakeups", "stacked", "migrations", "wait", "imbalance", "busy"];
    groups.iter().position(|group| name.starts_with(group)).unwrap_or(groups.len())
}

/// The rows as text; nothing without any.
pub(super) fn text(rows: &[MechanismRow]) -> String {
    let mut out = String::new();
    if rows.is_empty() {
        return out;
    }
    // Writing to a String cannot fail.
    let costs: Vec<String> = rows.iter().filter(|row| row.name.starts_with("overhead.")).filter_map(cost).collect();
    let _ = writeln!(out, "\nmechanism, from runs of their own; counted against plain (cost and noise):");
    for line in costs.chunks(3) {
        let _ = writeln!(out, "  {}", line.join(", "));
    }
    if costs.is_empty() {
        let _ = writeln!(out, "  unknown: the bundle judges no number");
    }
    let shown: Vec<&MechanismRow> = rows
        .iter()
        .filter(|row| !row.name.starts_with("overhead."))
        .filter(|row| [row.base, row.patched].into_iter().flatten().any(|side| side.centre != 0.0))
        .collect();
    let many = |stem: &str| shown.iter().filter(|row| row.name.starts_with(stem)).count() > MOST_ROWS;
    let hidden: Vec<&str> = ["busy.llc", "busy.node"].into_iter().filter(|stem| many(stem)).collect();
    let shown: Vec<&MechanismRow> =
        shown.into_iter().filter(|row| !hidden.iter().any(|stem| row.name.starts_with(stem))).collect();
    let wide = shown.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let two = shown.iter().any(|row| row.patched.is_some());
    for row in &shown {
        let mut line = format!("{:wide$}  {:3}", row.name, row.unit);
        let sides =
            if two { vec![(row.base, Role::Base), (row.patched, Role::Patched)] } else { vec![(row.base, Role::Base)] };
        for (side, role) in sides {
            let full = full(rows, &row.name, role);
            let number = side.map(|side| number(side.centre)).unwrap_or_default();
            let bar = side.zip(full).map(|(side, full)| bar(side.centre / full)).unwrap_or_default();
            let _ = write!(line, "  {number:>8} {bar:12}");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    for stem in hidden {
        let _ = writeln!(out, "{stem}*: more than {MOST_ROWS} rows, in the JSON");
    }
    out
}

fn cost(row: &MechanismRow) -> Option<String> {
    let name = row.name.strip_prefix("overhead.")?;
    // Percentiles come in numbers; the middle one stands for them, and a maximum is noise alone.
    let percentile = name.ends_with(".max") || name.split_once(".p").is_some_and(|(_, rank)| rank != "50");
    let digits = |side: Side| format!("{name} {:+.1} %", side.centre);
    (!percentile).then(|| row.base.or(row.patched).map(digits))?
}

/// What a full bar of a row is; no bar where nothing bounds it.
fn full(rows: &[MechanismRow], name: &str, role: Role) -> Option<f64> {
    let of = |row: &MechanismRow| match role {
        Role::Base => row.base,
        Role::Patched => row.patched,
    };
    let sum = |stem: &str| -> f64 {
        rows.iter().filter(|row| row.name.starts_with(stem)).filter_map(of).map(|side| side.centre).sum()
    };
    let full = match name.split('.').next() {
        Some("busy") => 100.0,
        Some("wakeups" | "stacked") => sum("wakeups."),
        Some("migrations") => sum("migrations."),
        Some(_) | None => return None,
    };
    (full > 0.0).then_some(full)
}

/// A bar in eighths of a cell.
fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * BAR * 8.0).round() as usize;
    let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    format!("{}{rest}", "█".repeat(eighths / 8))
}

fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 || v == 0.0 || v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, base: f64, patched: Option<f64>) -> MechanismRow {
        let side = |centre: f64| Side { centre, spread: None };
        MechanismRow { name: name.into(), unit: "1".into(), base: Some(side(base)), patched: patched.map(side) }
    }

    #[test]
    fn bars_are_shares_and_stay_within_80_columns() {
        let rows = [
            row("wakeups.sync.waker_cpu", 750.0, Some(10.0)),
            row("wakeups.sync.other_node", 250.0, Some(90.0)),
            row("stacked.sync.idle_elsewhere", 500.0, Some(0.0)),
            row("migrations.waking.numa", 0.0, Some(0.0)),
            row("overhead.usecs_per_op", 1.25, Some(1.0)),
            row("overhead.latency_ms.p99.9", 9.0, None),
            row("busy.node0", 50.0, Some(12.5)),
        ];
        let text = text(&rows);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("noise):\n  usecs_per_op +1.2 %\n") && !text.contains("numa"), "{text}");
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_string();
        assert!(line("wakeups.sync.waker_cpu").contains("     750 █████████    "), "{text}");
        assert!(line("busy.node0").contains("50 ██████      "), "{text}");
    }

    #[test]
    fn a_bar_has_eighths() {
        assert_eq!((bar(0.0), bar(1.0), bar(2.0)), (String::new(), "█".repeat(12), "█".repeat(12)));
        assert_eq!(bar(1.0 / 96.0), "▏");
        assert_eq!(bar(0.5).chars().count(), 6);
    }
}
