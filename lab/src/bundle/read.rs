//! From what a program said to numbers with units. What cannot be read is said with the metric's name; nothing is guessed.

use super::model::{Bundle, From, MetricDecl, Over, Promise, Reading};
use base64::Engine;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use regex::Regex;
use std::collections::BTreeMap;
use topolab_model::is_thin;
use topolab_wire::Value;

/// How a compressed HdrHistogram begins in base64 (cookie 0x1c849304, big endian).
const HISTOGRAM: &str = "HISTF[A-Za-z0-9+/]+=*";

/// A run's outputs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outputs {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Files that it left.
    pub files: BTreeMap<String, String>,
}

/// Why an output gave no number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// A file is not there.
    #[error("{metric}: the program left no file `{file}`; it left: {there}")]
    NoFile {
        /// The metric.
        metric: String,
        /// The file.
        file: String,
        /// What is there.
        there: String,
    },
    /// There is no number where one should be.
    #[error("no number for {metric} in {place}: {how}")]
    NoNumber {
        /// The metric.
        metric: String,
        /// The output.
        place: From,
        /// How it was looked for.
        how: String,
    },
    /// The number is in a unit that does not fit.
    #[error("{metric}: `{text}` in {place} is no number in {unit}")]
    Unit {
        /// The metric.
        metric: String,
        /// The output.
        place: From,
        /// What was found.
        text: String,
        /// The declared unit.
        unit: String,
    },
}

/// Every metric of a bundle, by name.
pub fn read(bundle: &Bundle, outputs: &Outputs) -> Result<BTreeMap<String, Value>, Unread> {
    let one = |metric: &MetricDecl| Ok((metric.name.clone(), value(metric, outputs)?));
    bundle.metrics.iter().filter(|metric| metric.reading.is_some()).map(one).collect()
}

/// The output that something is in, or who misses which file.
fn text<'a>(from: &From, outputs: &'a Outputs, who: &str) -> Result<&'a str, Unread> {
    outputs.of(from).ok_or_else(|| Unread::NoFile {
        metric: who.to_string(),
        file: from.to_string(),
        there: match outputs.files.is_empty() {
            true => "nothing".into(),
            false => outputs.files.keys().cloned().collect::<Vec<_>>().join(", "),
        },
    })
}

fn value(metric: &MetricDecl, outputs: &Outputs) -> Result<Value, Unread> {
    let text = text(&metric.from, outputs, &metric.name)?;
    let none = |how: String| Unread::NoNumber { metric: metric.name.clone(), place: metric.from.clone(), how };
    let reading = metric.reading.as_ref().ok_or_else(|| none("the bundle does not say how".into()))?;
    let (value, mut thin) = found(metric, reading, text)?;
    if let Some((percentile, samples)) = &metric.rank {
        // The number of samples is a plain number, whatever the metric's unit.
        let count = MetricDecl { name: format!("{}'s samples", metric.name), unit: "1".into(), ..metric.clone() };
        thin |= is_thin(found(&count, samples, text)?.0 as usize, *percentile);
    }
    Ok(Value { unit: metric.unit.clone(), value, thin })
}

/// The number, and whether it is a percentile that too few samples lie beyond.
fn found(metric: &MetricDecl, reading: &Reading, text: &str) -> Result<(f64, bool), Unread> {
    let none = |how: String| Unread::NoNumber { metric: metric.name.clone(), place: metric.from.clone(), how };
    let parsed = |word: &str| number(metric, word).map(|number| (number, false));
    match reading {
        Reading::Regex(expression, over) => {
            let regex = Regex::new(expression).map_err(|e| none(e.to_string()))?;
            let all = regex.captures_iter(text).filter_map(|captures| captures.get(1));
            let all = all.map(|found| number(metric, found.as_str())).collect::<Result<Vec<f64>, Unread>>()?;
            let first = *all.first().ok_or_else(|| none(format!("nothing matches {expression}")))?;
            let sum: f64 = all.iter().sum();
            let of_all = match over {
                Over::First => first,
                Over::Last => all.last().copied().unwrap_or(first),
                Over::Sum => sum,
                Over::Mean => sum / all.len() as f64,
                Over::Min => all.iter().copied().fold(first, f64::min),
                Over::Max => all.iter().copied().fold(first, f64::max),
            };
            Ok((of_all, false))
        }
        Reading::Json(pointer) => {
            let json: serde_json::Value =
                serde_json::from_str(json_part(text)).map_err(|e| none(format!("it is no JSON: {e}")))?;
            match json.pointer(pointer) {
                Some(serde_json::Value::Number(number)) => parsed(&number.to_string()),
                Some(serde_json::Value::String(word)) => parsed(word),
                Some(other) => Err(none(format!("{pointer} is {}", shortened(&other.to_string())))),
                None => Err(none(format!("there is no {pointer}; it has {}", keys(&json)))),
            }
        }
        Reading::Table { row, column } => {
            parsed(cell(text, row, column).ok_or_else(|| none(format!("table, row {row}, column {column}")))?)
        }
        Reading::Hdr { percentile, scale } => {
            let histogram = histogram(text).map_err(none)?;
            let thin = is_thin(histogram.len() as usize, *percentile);
            Ok((histogram.value_at_percentile(*percentile) as f64 * scale, thin))
        }
    }
}

/// What a JSON value has at its top.
fn keys(json: &serde_json::Value) -> String {
    match json {
        serde_json::Value::Object(map) => map.keys().map(|key| format!("/{key}")).collect::<Vec<_>>().join(" "),
        serde_json::Value::Array(list) => format!("{} elements", list.len()),
        other => shortened(&other.to_string()),
    }
}

fn shortened(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

impl Unread {
    /// The output to be shown beside it: what was searched, or standard output where that is not there.
    pub fn place(&self) -> &From {
        match self {
            Self::NoFile { .. } => &From::Stdout,
            Self::NoNumber { place, .. } | Self::Unit { place, .. } => place,
        }
    }
}

impl Outputs {
    /// The output that something is in; `None` for a file that was not left.
    pub fn of(&self, from: &From) -> Option<&str> {
        match from {
            From::Stdout => Some(&self.stdout),
            From::Stderr => Some(&self.stderr),
            From::File(name) => self.files.get(name).map(String::as_str),
        }
    }
}

/// Programs print words in front of their JSON: it begins with the first line that begins with a bracket.
fn json_part(text: &str) -> &str {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with(['{', '[']) {
            return &text[start..];
        }
        start += line.len();
    }
    text
}

fn cell<'a>(text: &'a str, row: &str, column: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    let place = lines.find_map(|line| line.split_whitespace().position(|word| word == column))?;
    lines.find(|line| line.split_whitespace().next() == Some(row))?.split_whitespace().nth(place)
}

/// The sum of the histograms of a text.
fn histogram(text: &str) -> Result<Histogram<u64>, String> {
    let mut sum: Option<Histogram<u64>> = None;
    let expression = Regex::new(HISTOGRAM).map_err(|e| e.to_string())?;
    for found in expression.find_iter(text) {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(found.as_str())
            .map_err(|e| format!("HdrHistogram: {e}"))?;
        let mut one: Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|e| format!("HdrHistogram: {e:?}"))?;
        // A sum may reach beyond the first one's range.
        one.auto(true);
        match &mut sum {
            None => sum = Some(one),
            Some(all) => all.add(one).map_err(|e| format!("HdrHistogram: {e:?}"))?,
        }
    }
    sum.filter(|all| !all.is_empty()).ok_or_else(|| "HdrHistogram: there is none, or an empty one".into())
}

/// What a suffix stands for: seconds, where the metric is a time; thousands otherwise.
const TIMES: &[(&str, f64)] =
    &[("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
const MULTIPLES: &[(&str, f64)] = &[("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9)];

/// `13.39`, `635.91us` for a metric in µs or ms, `12.3k`; a number in a unit that does not fit is none.
fn number(metric: &MetricDecl, text: &str) -> Result<f64, Unread> {
    let wrong = || Unread::Unit {
        metric: metric.name.clone(),
        place: metric.from.clone(),
        text: text.into(),
        unit: metric.unit.clone(),
    };
    let clean = text.trim().replace(',', "");
    let end = clean.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(clean.len());
    // An exponent belongs to the number.
    let (digits, suffix) = match clean.parse::<f64>() {
        Ok(_) => (clean.as_str(), ""),
        Err(_) => (&clean[..end], clean[end..].trim()),
    };
    let bare: f64 = digits.parse().ok().filter(|v: &f64| v.is_finite()).ok_or_else(wrong)?;
    let factor = |table: &[(&str, f64)], name: &str| table.iter().find(|(n, _)| *n == name).map(|(_, f)| *f);
    match (suffix, factor(TIMES, suffix), factor(TIMES, &metric.unit), factor(MULTIPLES, suffix)) {
        ("", _, _, _) => Ok(bare),
        (_, Some(given), Some(wanted), _) => Ok(bare * given / wanted),
        (_, None, _, Some(multiple)) => Ok(bare * multiple),
        ("%", _, _, _) if metric.unit == "%" => Ok(bare),
        (_, _, _, _) => Err(wrong()),
    }
}

impl Promise {
    /// Whether it is kept, with the evidence.
    pub fn kept(&self, outputs: &Outputs) -> (bool, String) {
        let text = match text(&self.from, outputs, &self.name) {
            Ok(text) => text,
            Err(e) => return (false, e.to_string()),
        };
        let found = |expression: &Option<String>| {
            let regex = expression.as_ref().and_then(|e| Regex::new(e).ok());
            regex.map(|regex| regex.find(text).map(|found| found.as_str().to_string()))
        };
        match (found(&self.says), found(&self.never)) {
            (Some(None), _) => (false, format!("nothing matches {}", self.says.as_deref().unwrap_or_default())),
            (_, Some(Some(said))) => (false, said),
            (said, _) => (true, said.flatten().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::{Better, load_bundle};
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

    fn metric(unit: &str, reading: Reading) -> MetricDecl {
        let name = "m".to_string();
        MetricDecl {
            name,
            unit: unit.into(),
            better: Better::Lower,
            hidden: false,
            from: From::Stdout,
            reading: Some(reading),
            rank: None,
        }
    }

    fn found(unit: &str, reading: Reading, stdout: &str) -> Result<f64, String> {
        let outputs = Outputs { stdout: stdout.into(), ..Outputs::default() };
        value(&metric(unit, reading), &outputs).map(|v| v.value).map_err(|e| e.to_string())
    }

    #[test]
    fn perfs_words_are_read() {
        let bundle = load_bundle("sched-pipe").expect("built in");
        let stdout = "# Running 'sched/pipe' benchmark:\n# Executed 2000 pipe operations between two processes\n\n     Total time: 0.027 [sec]\n\n      13.390000 usecs/op\n          74682 ops/sec\n";
        let metrics = read(&bundle, &Outputs { stdout: stdout.into(), ..Outputs::default() }).expect("metrics");
        let us = &metrics["usecs_per_op"];
        assert_eq!((us.unit.as_str(), us.value), ("us", 13.39));
        assert_eq!(metrics["ops_per_s"].value, 74682.0);
        let outputs = Outputs { stdout: "perf: not found".into(), ..Outputs::default() };
        assert!(read(&bundle, &outputs).is_err_and(|e| e.to_string().contains("usecs_per_op")));
    }

    #[test]
    fn suffixes_are_units_and_must_fit() {
        let regex = || Reading::Regex(r"p50 +(\S+)".into(), Over::First);
        assert_eq!(found("ms", regex(), "p50  635.5us"), Ok(0.6355));
        assert_eq!(found("us", regex(), "p50  1.5ms"), Ok(1500.0));
        assert_eq!(found("1/s", regex(), "p50  12.5k"), Ok(12500.0));
        assert_eq!(found("1/s", regex(), "p50  1,234"), Ok(1234.0));
        assert_eq!(found("1/s", regex(), "p50  1.5e3"), Ok(1500.0));
        assert!(found("1/s", regex(), "p50  3ms").is_err_and(|e| e.contains("is no number in 1/s")));
        assert!(found("ms", regex(), "p50  nan").is_err());
        assert!(found("ms", regex(), "p99 1").is_err_and(|e| e.contains("no number for m")));
    }

    #[test]
    fn several_numbers_become_one() {
        let over = |over: Over| {
            found("us", Reading::Regex(r"Max: +(\d+)".into(), over), "T: 0 Max: 7\nT: 1 Max:  30\nT: 2 Max: 5\n")
        };
        assert_eq!((over(Over::First), over(Over::Max), over(Over::Min)), (Ok(7.0), Ok(30.0), Ok(5.0)));
        assert_eq!(over(Over::Last), Ok(5.0));
        assert_eq!((over(Over::Sum), over(Over::Mean)), (Ok(42.0), Ok(14.0)));
    }

    #[test]
    fn json_is_read_behind_a_programs_words() {
        let json = |pointer: &str| Reading::Json(pointer.into());
        let text = "warming up\n{\"a\": {\"b\": 2.5, \"c\": \"7us\"}}\n";
        assert_eq!(found("ms", json("/a/b"), text), Ok(2.5));
        assert_eq!(found("us", json("/a/c"), text), Ok(7.0));
        assert!(found("ms", json("/a/x"), text).is_err());
        assert!(found("ms", json("/a"), text).is_err());
        assert!(found("ms", json("/a/b"), "nothing").is_err_and(|e| e.contains("JSON")));
    }

    #[test]
    fn a_tables_cell_is_read() {
        let table = |row: &str, column: &str| Reading::Table { row: row.into(), column: column.into() };
        let text = "Type   Ops/sec  p99\n----\nSets   10.0     0.7\nTotals 110.5    0.9\n";
        assert_eq!(found("ms", table("Totals", "p99"), text), Ok(0.9));
        assert!(found("ms", table("Totals", "p98"), text).is_err());
        assert!(found("ms", table("Gets", "p99"), text).is_err());
    }

    #[test]
    fn histograms_are_added_and_know_when_they_are_thin() {
        let one = |from: u64| {
            let mut histogram = Histogram::<u64>::new(3).expect("a histogram");
            (from..from + 100).for_each(|v| histogram.record(v * 1000).expect("in range"));
            let mut bytes = Vec::new();
            V2DeflateSerializer::new().serialize(&histogram, &mut bytes).expect("bytes");
            base64::engine::general_purpose::STANDARD.encode(bytes)
        };
        let text = format!("{{\"histogram\":\"{}\"}}\n{}\n", one(1), one(101));
        let read = |percentile: f64| {
            let outputs = Outputs { stdout: text.clone(), ..Outputs::default() };
            value(&metric("ms", Reading::Hdr { percentile, scale: 1e-6 }), &outputs).expect("a value")
        };
        assert!((read(50.0).value - 0.1).abs() < 0.001 && !read(50.0).thin);
        assert!((read(99.0).value - 0.198).abs() < 0.001 && read(99.0).thin);
        assert!(found("ms", Reading::Hdr { percentile: 50.0, scale: 1.0 }, "HISTFAAAA").is_err());
        assert!(found("ms", Reading::Hdr { percentile: 50.0, scale: 1.0 }, "").is_err());
    }

    #[test]
    fn a_percentile_of_few_samples_is_thin() {
        let thin = |text: &str| {
            let rank = Some((99.0, Reading::Regex("([0-9]+) requests".into(), Over::First)));
            let metric = MetricDecl { rank, ..metric("ms", Reading::Regex(r"99% +(\S+)".into(), Over::First)) };
            let outputs = Outputs { stdout: text.into(), ..Outputs::default() };
            value(&metric, &outputs).map(|value| value.thin).map_err(|e| e.to_string())
        };
        assert_eq!(thin("99%  5.8ms\n 999 requests in 1s"), Ok(true));
        assert_eq!(thin("99%  5.8ms\n 1000 requests in 1s"), Ok(false));
        assert!(thin("99%  5.8ms").is_err_and(|e| e.contains("m's samples")));
    }

    #[test]
    fn promises_are_kept_or_not() {
        let promise = |says: Option<&str>, never: Option<&str>| Promise {
            name: "p".into(),
            from: From::Stdout,
            says: says.map(str::to_string),
            never: never.map(str::to_string),
        };
        let outputs = Outputs { stdout: "errors: 0\n".into(), ..Outputs::default() };
        assert!(promise(Some("errors: 0"), None).kept(&outputs).0);
        assert!(!promise(Some("done"), None).kept(&outputs).0);
        assert!(!promise(None, Some("errors: [0-9]")).kept(&outputs).0);
        assert!(promise(None, Some("errors: [1-9]")).kept(&outputs).0);
    }
}
