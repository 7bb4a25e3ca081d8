//! Latencies in nanoseconds in an HdrHistogram: three significant digits from 1 ns on.

use crate::ToolError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use serde_json::{Map, Value};
use std::time::Duration;

/// The highest latency that the first allocation holds: 60 s. What takes longer makes the histogram grow, it is not clamped.
const EXPECTED_NS: u64 = 60_000_000_000;
/// Significant decimal digits of a recorded value.
const DIGITS: u8 = 3;

/// Many latencies.
pub(crate) struct Latencies(Histogram<u64>);

/// A fault of the histogram.
fn fault(why: impl ToString) -> ToolError {
    ToolError::Histogram(why.to_string())
}

impl Latencies {
    pub(crate) fn new() -> Result<Self, ToolError> {
        let mut histogram = Histogram::new_with_bounds(1, EXPECTED_NS, DIGITS).map_err(fault)?;
        histogram.auto(true);
        Ok(Self(histogram))
    }

    /// Counts one latency.
    pub(crate) fn record(&mut self, latency: Duration) -> Result<(), ToolError> {
        // A u64 of nanoseconds lasts for 584 years.
        self.0.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX)).map_err(fault)
    }

    /// Counts all of another's latencies.
    pub(crate) fn add(&mut self, other: &Self) -> Result<(), ToolError> {
        self.0.add(&other.0).map_err(fault)
    }

    /// How many latencies are counted.
    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// The mean in milliseconds; 0 without latencies.
    pub(crate) fn mean_ms(&self) -> f64 {
        self.0.mean() / 1e6
    }

    /// The named percentiles, then minimum, maximum and mean, in milliseconds; all of them 0 without latencies.
    pub(crate) fn summary_ms(&self, percentiles: &[(&str, f64)]) -> Map<String, Value> {
        let ms = |ns: u64| Value::from(ns as f64 / 1e6);
        let mut summary: Map<String, Value> = percentiles
            .iter()
            .map(|(name, percent)| ((*name).to_string(), ms(self.0.value_at_percentile(*percent))))
            .collect();
        summary.insert("min".into(), ms(self.0.min()));
        summary.insert("max".into(), ms(self.0.max()));
        summary.insert("mean".into(), Value::from(self.mean_ms()));
        summary
    }

    /// HdrHistogram's V2 format with DEFLATE, in base64: what its log viewers and libraries of other languages read.
    pub(crate) fn encoded(&self) -> Result<String, ToolError> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).map_err(fault)?;
        Ok(STANDARD.encode(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;

    #[test]
    fn a_histogram_survives_its_encoding() {
        let mut all = Latencies::new().unwrap();
        let mut some = Latencies::new().unwrap();
        for ms in 1..=100 {
            some.record(Duration::from_millis(ms)).unwrap();
        }
        all.add(&some).unwrap();
        // Above the first allocation: kept, not clamped.
        all.record(Duration::from_secs(300)).unwrap();
        let bytes = STANDARD.decode(all.encoded().unwrap()).unwrap();
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!(read.len(), 101);
        let near = |ns: u64, ms: f64| (ns as f64 / 1e6 / ms - 1.0).abs() < 1e-3;
        assert!(near(read.value_at_percentile(50.0), 51.0), "{}", read.value_at_percentile(50.0));
        assert!(near(read.max(), 300_000.0), "{}", read.max());
        let summary = all.summary_ms(&[("p50", 50.0)]);
        assert_eq!(summary.keys().collect::<Vec<_>>(), ["p50", "min", "max", "mean"]);
    }

    #[test]
    fn no_latencies_are_zeros() {
        let summary = Latencies::new().unwrap().summary_ms(&[("p99", 99.0)]);
        assert!(summary.values().all(|v| v.as_f64() == Some(0.0)), "{summary:?}");
    }
}
