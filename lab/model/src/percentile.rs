//! Percentiles of raw samples, by nearest rank: the smallest sample that at least p % of all samples do not exceed
//! (NIST/SEMATECH e-Handbook of Statistical Methods, 7.2.6.2, without interpolation). No histogram, no rounding.

/// The percentiles that latency tables on the scheduler's list print.
pub(crate) const PRINTED: [(&str, f64); 6] =
    [("p50", 50.0), ("p75", 75.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

/// Samples that must lie beyond a percentile for it to say something of the tail and not of one request.
const BEYOND: usize = 10;

/// Whether fewer than ten samples lie beyond a percentile.
pub fn is_thin(count: usize, percent: f64) -> bool {
    // The epsilon keeps exactly ten, 99.99 % of 100,000, from being rounded to less.
    count as f64 * (100.0 - percent) / 100.0 < BEYOND as f64 - 1e-6
}

/// The nearest-rank percentile of sorted samples; `None` without samples.
pub(crate) fn nearest_rank(sorted: &[u64], percent: f64) -> Option<u64> {
    // Counts stay far below 2^52, where a float is still exact; the epsilon keeps 99.9 % of 1,000 from becoming rank 1,000.
    let rank = (sorted.len() as f64 * percent / 100.0 - 1e-9).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_the_smallest_that_covers_the_share() {
        let samples: Vec<u64> = (1..=1000).collect();
        for (percent, expected) in [(50.0, 500), (75.0, 750), (99.0, 990), (99.9, 999), (99.99, 1000), (0.0, 1)] {
            assert_eq!(nearest_rank(&samples, percent), Some(expected), "{percent}");
        }
        assert_eq!(nearest_rank(&[7], 99.99), Some(7));
        assert_eq!(nearest_rank(&[], 50.0), None);
    }

    #[test]
    fn a_percentile_is_thin_when_few_samples_lie_beyond_it() {
        assert!(!is_thin(4000, 99.0));
        assert!(is_thin(4000, 99.9));
        assert!(is_thin(900, 99.0));
        assert!(!is_thin(100_000, 99.99 - 0.001));
        assert!(!is_thin(100_000, 99.99) && is_thin(99_999, 99.99));
    }
}
