//! From samples to an interval and a probability (DESIGN §6). Pure: no I/O, no clock, randomness from a seed.
//!
//! The unit of replication is the boot: a kernel's boots differ by more than the repetitions inside one, so repetitions are
//! folded into one median of logarithms per boot, and everything is computed from these.

use statrs::distribution::{ContinuousCDF, StudentsT};
use topolab_model::SplitMix64;

/// Resamples of the bootstrap; the 2.5 % tails then hold 100 each.
const RESAMPLES: usize = 4000;
/// Splits of the boots up to which the permutation test looks at every one.
const EXACT_SPLITS: u64 = 20_000;
/// Two-sided error rate.
pub const ALPHA: f64 = 0.05;
/// Power at which the detectable effect is stated.
const POWER: f64 = 0.8;

/// A comparison of two sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Patched over base.
    pub ratio: f64,
    /// 95 % interval of the ratio, from a hierarchical bootstrap over boots and repetitions (Davison and Hinkley, Bootstrap
    /// Methods and their Application, 1997, §3.8).
    pub interval: (f64, f64),
    /// Two-sided p of the permutation test over boots.
    pub p: f64,
    /// The smallest ratio above 1 that this many boots, with this scatter, would find in 80 of 100 runs; `None` with
    /// fewer than two boots a side.
    pub detectable: Option<f64>,
}

/// Compares two sides, each a list of boots, each a list of repetitions. `None` when a side is empty or a sample is not
/// positive: a ratio of such numbers means nothing.
pub fn compare(base: &[Vec<f64>], patched: &[Vec<f64>], seed: u64) -> Option<Estimate> {
    let (base, patched) = (logs(base)?, logs(patched)?);
    let (a, b) = (medians(&base), medians(&patched));
    let effect = mean(&b) - mean(&a);
    Some(Estimate {
        ratio: effect.exp(),
        interval: bootstrap(&base, &patched, seed),
        p: permutation(&a, &b, seed),
        detectable: detectable(&a, &b).map(f64::exp),
    })
}

/// Logarithms of every sample; `None` where there is none to take.
fn logs(side: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let usable =
        !side.is_empty() && side.iter().all(|boot| !boot.is_empty() && boot.iter().all(|v| v.is_finite() && *v > 0.0));
    usable.then(|| side.iter().map(|boot| boot.iter().map(|v| v.ln()).collect()).collect())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The median; the mean of the middle two for an even count. 0 for nothing, which callers exclude.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (n, middle) if n % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

fn medians(side: &[Vec<f64>]) -> Vec<f64> {
    side.iter().map(|boot| median(boot)).collect()
}

/// Sample standard deviation; `None` with fewer than two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let n = values.len();
    let centre = mean(values);
    (n > 1).then(|| (values.iter().map(|v| (v - centre).powi(2)).sum::<f64>() / (n - 1) as f64).sqrt())
}

fn bootstrap(base: &[Vec<f64>], patched: &[Vec<f64>], seed: u64) -> (f64, f64) {
    let mut rng = SplitMix64::new(seed);
    let mut effects: Vec<f64> =
        (0..RESAMPLES).map(|_| resampled_mean(patched, &mut rng) - resampled_mean(base, &mut rng)).collect();
    effects.sort_by(f64::total_cmp);
    let at = |share: f64| effects[((RESAMPLES - 1) as f64 * share).round() as usize].exp();
    (at(ALPHA / 2.0), at(1.0 - ALPHA / 2.0))
}

/// Boots drawn with replacement, and within each its repetitions.
fn resampled_mean(side: &[Vec<f64>], rng: &mut SplitMix64) -> f64 {
    let mut drawn = |n: usize| rng.below(n as u64) as usize;
    let mut medians = Vec::with_capacity(side.len());
    for _ in side {
        let boot = &side[drawn(side.len())];
        let again: Vec<f64> = boot.iter().map(|_| boot[drawn(boot.len())]).collect();
        medians.push(median(&again));
    }
    mean(&medians)
}

/// Two-sided permutation test of the difference of means (Fisher 1935; Phipson and Smyth 2010 for the +1 when sampled).
fn permutation(a: &[f64], b: &[f64], seed: u64) -> f64 {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let observed = (mean(b) - mean(a)).abs();
    let total: f64 = all.iter().sum();
    let effect = |sum_b: f64| (sum_b / b.len() as f64 - (total - sum_b) / a.len() as f64).abs();
    // Rounding must not make a split look smaller than the observed one that it equals.
    let extreme = |sum_b: f64| effect(sum_b) >= observed - 1e-12 * (1.0 + observed);
    let splits = binomial(all.len() as u64, b.len() as u64);
    if splits <= EXACT_SPLITS {
        let mut count = 0u64;
        each_subset(&all, b.len(), 0, 0.0, &mut |sum| count += u64::from(extreme(sum)));
        return count as f64 / splits as f64;
    }
    let mut rng = SplitMix64::new(seed ^ 0x7065_726d);
    let mut shuffled = all.clone();
    let mut count = 0u64;
    for _ in 0..EXACT_SPLITS {
        for place in 0..b.len() {
            let other = place + rng.below((shuffled.len() - place) as u64) as usize;
            shuffled.swap(place, other);
        }
        count += u64::from(extreme(shuffled[..b.len()].iter().sum()));
    }
    (count + 1) as f64 / (EXACT_SPLITS + 1) as f64
}

fn each_subset(values: &[f64], size: usize, from: usize, sum: f64, visit: &mut impl FnMut(f64)) {
    if size == 0 {
        return visit(sum);
    }
    for index in from..=values.len() - size {
        each_subset(values, size - 1, index + 1, sum + values[index], visit);
    }
}

fn binomial(n: u64, k: u64) -> u64 {
    (0..k).fold(1u64, |product, i| product.saturating_mul(n - i) / (i + 1))
}

/// The two-sample t test's detectable difference of logarithms (Cohen 1988, §2.4, by the t approximation).
fn detectable(a: &[f64], b: &[f64]) -> Option<f64> {
    let (da, db) = (deviation(a)?, deviation(b)?);
    let (na, nb) = (a.len() as f64, b.len() as f64);
    let freedom = na + nb - 2.0;
    let pooled = (((na - 1.0) * da.powi(2) + (nb - 1.0) * db.powi(2)) / freedom).sqrt();
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some((t.inverse_cdf(1.0 - ALPHA / 2.0) + t.inverse_cdf(POWER)) * pooled * (1.0 / na + 1.0 / nb).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boots(values: &[f64]) -> Vec<Vec<f64>> {
        values.iter().map(|v| vec![*v, *v, *v * 1.001]).collect()
    }

    #[test]
    fn a_doubling_is_a_ratio_of_two_and_certain() {
        let base = boots(&[10.0, 10.1, 9.9, 10.05, 9.95]);
        let patched = boots(&[20.0, 20.2, 19.8, 20.1, 19.9]);
        let e = compare(&base, &patched, 1).expect("positive samples");
        assert!((e.ratio - 2.0).abs() < 1e-6, "{e:?}");
        assert!(e.interval.0 > 1.95 && e.interval.1 < 2.05, "{e:?}");
        // Both ways of splitting ten boots into fives that are as extreme, of 252.
        assert!((e.p - 2.0 / 252.0).abs() < 1e-12, "{e:?}");
        assert!(e.detectable.is_some_and(|d| d > 1.0 && d < 1.1), "{e:?}");
    }

    #[test]
    fn three_boots_a_side_can_never_be_certain() {
        let e = compare(&boots(&[1.0, 1.1, 1.2]), &boots(&[9.0, 9.1, 9.2]), 1).expect("positive samples");
        assert!((e.p - 0.1).abs() < 1e-12, "{e:?}");
    }

    #[test]
    fn equal_sides_are_no_effect_and_numbers_without_a_ratio_give_none() {
        let same = boots(&[5.0, 6.0, 7.0, 8.0]);
        let e = compare(&same, &same, 1).expect("positive samples");
        assert!((e.ratio - 1.0).abs() < 1e-12 && e.p > 0.99, "{e:?}");
        assert_eq!(compare(&[vec![0.0]], &same, 1), None);
        assert_eq!(compare(&[], &same, 1), None);
        assert_eq!(compare(&[vec![]], &same, 1), None);
    }

    #[test]
    fn a_sampled_permutation_test_agrees_with_the_exact_one() {
        let a: Vec<f64> = (0..12).map(|i| f64::from(i % 5)).collect();
        let b: Vec<f64> = a.iter().map(|v| v + 1.2).collect();
        // 24 choose 12 is above the bound, so this one is sampled; ten a side are exact.
        let (sampled, exact) = (permutation(&a, &b, 3), permutation(&a[..8], &b[..8], 3));
        assert!(sampled < 0.12 && exact < 0.25 && sampled < exact, "{sampled} {exact}");
    }

    #[test]
    fn false_alarms_stay_near_their_rate() {
        let mut rng = SplitMix64::new(42);
        // Sums of twelve uniforms: near enough to a Gaussian for a rate.
        let mut sample = || (0..12).map(|_| rng.below(1 << 20) as f64 / f64::from(1 << 20)).sum::<f64>() - 6.0;
        let mut alarms = 0;
        for _ in 0..400 {
            let (a, b): (Vec<f64>, Vec<f64>) = ((0..5).map(|_| sample()).collect(), (0..5).map(|_| sample()).collect());
            alarms += u32::from(permutation(&a, &b, 1) <= ALPHA);
        }
        assert!(alarms <= 32, "{alarms} of 400");
    }
}
