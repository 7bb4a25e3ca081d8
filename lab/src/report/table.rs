//! The table, as a mailing list would accept it: 80 columns or less for the rows, and above them how they were made.

use super::mechanism;
use super::summary::{MetricRow, Section, Side, Summary};
use crate::plan::Plan;
use std::collections::BTreeMap;
use std::fmt::Write;
use topolab_wire::Clock;

/// The page for a terminal or a mail.
pub fn text(plan: &Plan, summary: &Summary) -> String {
    let mut out = String::new();
    for section in &summary.sections {
        head(&mut out, plan, section);
        let _ = writeln!(out);
        let cells: Vec<[String; 6]> = section.rows.iter().filter(|row| !row.hidden).map(cells).collect();
        if !cells.is_empty() {
            aligned(&mut out, &heading(plan), &cells);
        }
        out.push_str(&mechanism::text(&section.mechanism));
        notes(&mut out, section);
        let _ = writeln!(out);
    }
    let _ = writeln!(out, "reproduce: {}", plan.command);
    out
}

/// The page in GitHub's markdown.
pub fn markdown(plan: &Plan, summary: &Summary) -> String {
    let mut out = String::new();
    for section in &summary.sections {
        let _ = writeln!(out, "### {} on {}\n\n```", section.bundle, section.topology);
        head(&mut out, plan, section);
        let _ = writeln!(out, "```\n");
        let _ = writeln!(out, "| {} |", heading(plan).join(" | "));
        let _ = writeln!(out, "|---|---|---:|---:|---:|---|");
        for row in section.rows.iter().filter(|row| !row.hidden).map(cells) {
            let _ = writeln!(out, "| {} |", row.join(" | "));
        }
        let _ = writeln!(out);
        if !section.mechanism.is_empty() {
            let _ = writeln!(out, "```{}```\n", mechanism::text(&section.mechanism));
        }
        notes(&mut out, section);
    }
    let _ = writeln!(out, "```\n{}\n```", plan.command);
    out
}

fn head(out: &mut String, plan: &Plan, section: &Section) {
    // Writing to a String cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:9} {value}");
    };
    line("topology", format!("{} ({}), declared = observed: {}", section.topology, section.machine, section.observed));
    for kernel in &plan.kernels {
        line(&kernel.role.to_string(), format!("{} [{}]", kernel.name, &kernel.key[..12]));
    }
    let params = if section.params.is_empty() { String::new() } else { format!(" with {}", section.params) };
    line("bundle", format!("{}{params}", section.bundle));
    if !section.costs.is_empty() {
        line("costs", section.costs.clone());
    }
    let clock = match plan.clock {
        Clock::Real => "real",
        Clock::Virtual => "virtual",
    };
    // Debian's package revision says nothing more to a reader; the plan keeps it.
    let version = plan.host.qemu.split(' ').next().unwrap_or_default();
    line(
        "label",
        format!("{} (clock {clock}; QEMU {}; agent {})", section.label.word(), version, &plan.host.agent[..12]),
    );
    line("host", plan.host.machine.clone());
    let boots = match plan.kernels.len() {
        1 => section.boots.0.to_string(),
        _ => format!("{} + {}", section.boots.0, section.boots.1),
    };
    line(
        "n",
        format!("{boots} boots × {} repetitions, seed {}, margin {:.1} %", plan.reps, plan.seed, plan.margin * 100.0),
    );
}

fn heading(plan: &Plan) -> [String; 6] {
    let spread = |side: &str| format!("{side} ± sd");
    match plan.kernels.len() {
        1 => ["metric".into(), "unit".into(), spread("value"), String::new(), String::new(), String::new()],
        _ => ["metric".into(), "unit".into(), spread("base"), spread("patched"), "delta".into(), "verdict".into()],
    }
}

fn cells(row: &MetricRow) -> [String; 6] {
    let delta = match (row.base, row.patched) {
        // A share moves by points; a percentage of a percentage misleads.
        (Some(a), Some(b)) if row.unit == "%" => format!("{:+.1} pt", b.centre - a.centre),
        (Some(a), Some(b)) if a.centre != 0.0 => format!("{:+.1} %", (b.centre / a.centre - 1.0) * 100.0),
        (_, _) => String::new(),
    };
    let verdict = row.verdict.as_ref().map(|v| v.word.text().to_string()).unwrap_or_default();
    [row.name.clone(), row.unit.clone(), number(row.base), number(row.patched), delta, verdict]
}

fn number(side: Option<Side>) -> String {
    let Some(side) = side else { return String::new() };
    let digits = match side.centre.abs() {
        v if v >= 1000.0 || v == 0.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    match side.spread {
        Some(spread) => format!("{:.digits$} ± {spread:.digits$}", side.centre),
        None => format!("{:.digits$}", side.centre),
    }
}

fn aligned(out: &mut String, heading: &[String; 6], rows: &[[String; 6]]) {
    let width = |column: usize| rows.iter().chain([heading]).map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in [heading].into_iter().chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let gap = if column == 0 || widths[column] == 0 { "" } else { "  " };
            // Words to the left, numbers to the right.
            match column {
                0 | 1 | 5 => line.push_str(&format!("{gap}{cell}{pad}")),
                _ => line.push_str(&format!("{gap}{pad}{cell}")),
            }
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn notes(out: &mut String, section: &Section) {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &section.rows {
        if let Some(reason) = row.verdict.as_ref().and_then(|v| v.reason.as_deref()) {
            reasons.entry(reason).or_default().push(&row.name);
        }
    }
    for (reason, names) in reasons {
        let _ = writeln!(out, "{}: {reason}", names.join(", "));
    }
    if let Some(detectable) = section.rows.iter().filter_map(|r| r.verdict.as_ref()?.detectable).reduce(f64::max) {
        let _ = writeln!(
            out,
            "these boots could have seen a change of {:.1} % in the noisiest metric",
            (detectable - 1.0) * 100.0
        );
    }
    for note in &section.not_expressible {
        let _ = writeln!(out, "not expressible: {note}");
    }
    for caution in &section.cautions {
        let _ = writeln!(out, "caution: {caution}");
    }
    for broken in &section.broken {
        let _ = writeln!(out, "invariant broken: {broken}");
    }
    for fault in &section.faults {
        let _ = writeln!(out, "fault: {fault}");
    }
}
