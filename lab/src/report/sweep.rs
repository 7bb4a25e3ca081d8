//! A sweep as a table: a row for each judged metric, a column for each point, and where the sign flips.

use super::summary::{MetricRow, Summary};
use crate::verdict::Word;
use serde_json::{Value, json as object};
use std::fmt::Write;

/// One point: its value for people, and what was found there.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The value.
    pub value: String,
    /// The comparison.
    pub summary: Summary,
}

/// A row of one section: the metric's name and, for each point, its change in percent and its word.
struct Row {
    name: String,
    cells: Vec<Option<(f64, Word)>>,
}

/// The table, for a terminal or a mail.
pub fn sweep_text(name: &str, points: &[Point]) -> String {
    let mut out = String::new();
    let Some(first) = points.first() else { return out };
    for (n, section) in first.summary.sections.iter().enumerate() {
        let rows = rows(points, n);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{} on {}, patched against base, at values of {name}", section.bundle, section.topology);
        let wide = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(6);
        let heading: String = points.iter().map(|point| format!("  {:>9}", point.value)).collect();
        let _ = writeln!(out, "{:wide$}{heading}", "metric");
        for row in &rows {
            let cells: String = row.cells.iter().map(|cell| format!("  {:>9}", cell_text(*cell))).collect();
            let _ = writeln!(out, "{:wide$}{}", row.name, cells.trim_end());
        }
        for row in &rows {
            for (from, to) in flips(row) {
                let _ = writeln!(out, "{} flips between {} and {}", row.name, points[from].value, points[to].value);
            }
        }
        let _ = writeln!(out, "% with b better, s same, w worse, ? inconclusive, - no verdict\n");
    }
    out
}

/// The same for programs, beside the report of each point.
pub fn sweep_json(name: &str, points: &[Point], reports: Vec<Value>) -> Value {
    let mut flipping = Vec::new();
    for (n, section) in points.iter().take(1).flat_map(|point| point.summary.sections.iter().enumerate()) {
        for row in rows(points, n) {
            for (from, to) in flips(&row) {
                flipping.push(object!({"topology": section.topology, "bundle": section.bundle, "metric": row.name,
                    "from": points[from].value, "to": points[to].value}));
            }
        }
    }
    let values: Vec<&str> = points.iter().map(|point| point.value.as_str()).collect();
    object!({"schema": "topolab/1", "command": "sweep", "key": name, "values": values, "flips": flipping, "points": reports})
}

fn rows(points: &[Point], section: usize) -> Vec<Row> {
    let judged = |row: &&MetricRow| !row.hidden && row.verdict.as_ref().is_some_and(|v| v.word != Word::Info);
    let sections = || points.iter().filter_map(|point| point.summary.sections.get(section));
    let mut names: Vec<&str> = Vec::new();
    for row in sections().flat_map(|section| section.rows.iter().filter(judged)) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    let cell = |row: &MetricRow| {
        let (base, patched) = (row.base?.centre, row.patched?.centre);
        Some((100.0 * (patched / base - 1.0), row.verdict.as_ref()?.word))
    };
    let row = |name: &str| Row {
        name: name.to_string(),
        cells: sections().map(|s| s.rows.iter().find(|row| row.name == name).and_then(cell)).collect(),
    };
    names.into_iter().map(row).collect()
}

fn cell_text(cell: Option<(f64, Word)>) -> String {
    let Some((change, word)) = cell else { return "".into() };
    let letter = match word {
        Word::Better => 'b',
        Word::Same => 's',
        Word::Worse => 'w',
        Word::Inconclusive => '?',
        Word::Info => '-',
    };
    format!("{change:+.1} {letter}")
}

/// Pairs of points between which better becomes worse or the other way round; what lies between them is neither.
fn flips(row: &Row) -> Vec<(usize, usize)> {
    let clear = |cell: &Option<(f64, Word)>| match cell {
        Some((_, Word::Better)) => Some(true),
        Some((_, Word::Worse)) => Some(false),
        Some((_, Word::Same | Word::Inconclusive | Word::Info)) | None => None,
    };
    let known: Vec<(usize, bool)> =
        row.cells.iter().enumerate().filter_map(|(n, cell)| Some((n, clear(cell)?))).collect();
    known.windows(2).filter(|pair| pair[0].1 != pair[1].1).map(|pair| (pair[0].0, pair[1].0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flip_lies_between_the_last_clear_word_and_the_next() {
        let row =
            |words: &[Word]| Row { name: "m".into(), cells: words.iter().map(|word| Some((1.0, *word))).collect() };
        assert_eq!(flips(&row(&[Word::Better, Word::Same, Word::Worse, Word::Worse])), [(0, 2)]);
        assert_eq!(flips(&row(&[Word::Worse, Word::Better, Word::Worse])), [(0, 1), (1, 2)]);
        assert!(flips(&row(&[Word::Better, Word::Same, Word::Inconclusive])).is_empty());
        assert_eq!(cell_text(Some((22.74, Word::Better))), "+22.7 b");
    }
}
