//! Better, same, worse or inconclusive: one pure function from samples to a word, and the reason when it is no word.

use crate::bundle::Better;
use crate::plan::Label;
use crate::stats::{self, ALPHA};

/// The word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// An improvement beyond the margin.
    Better,
    /// Within the margin.
    Same,
    /// A regression beyond the margin.
    Worse,
    /// The data do not say.
    Inconclusive,
    /// A fact without a good direction.
    Info,
}

impl Word {
    /// As printed.
    pub fn text(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Same => "same",
            Self::Worse => "worse",
            Self::Inconclusive => "inconclusive",
            Self::Info => "",
        }
    }
}

/// A verdict on one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The word.
    pub word: Word,
    /// Patched over base, where a ratio means something.
    pub ratio: Option<f64>,
    /// Its interval: of confidence on the real clock, of the seeds seen on the virtual one.
    pub interval: Option<(f64, f64)>,
    /// Of the permutation test; none on the virtual clock.
    pub p: Option<f64>,
    /// Smallest detectable ratio.
    pub detectable: Option<f64>,
    /// Why, where the word needs it.
    pub reason: Option<String>,
}

/// What is being judged.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Base boots, each with its repetitions.
    pub base: &'a [Vec<f64>],
    /// Patched boots; the nth pairs with the nth of base.
    pub patched: &'a [Vec<f64>],
    /// Direction.
    pub better: Better,
    /// Whether the number is a time or a rate.
    pub timing: bool,
    /// Whether the number rests on too few observations.
    pub thin: bool,
    /// What timings are worth here.
    pub label: Label,
    /// Relative margin within which a difference is none.
    pub margin: f64,
    /// Seed of the resampling.
    pub seed: u64,
}

/// Whether a unit needs a trustworthy clock. Counts and shares do not; everything else is taken for a time or a rate.
pub fn is_timing(unit: &str) -> bool {
    !matches!(unit, "1" | "%")
}

/// Judges.
pub fn judge(question: Question<'_>) -> Verdict {
    let estimate = stats::compare(question.base, question.patched, question.seed);
    let mut verdict = Verdict {
        word: Word::Inconclusive,
        ratio: estimate.map(|e| e.ratio),
        interval: None,
        p: None,
        detectable: None,
        reason: None,
    };
    let because = |mut verdict: Verdict, reason: &str| {
        verdict.reason = Some(reason.to_string());
        verdict
    };
    let up_is_good = match question.better {
        Better::Higher => true,
        Better::Lower => false,
        Better::Neither => {
            verdict.word = Word::Info;
            return verdict;
        }
    };
    if question.thin {
        verdict.word = Word::Info;
        return because(verdict, "fewer than ten samples lie beyond this percentile: no verdict on it");
    }
    let Some(estimate) = estimate else {
        return because(verdict, "a sample is missing or not positive, so there is no ratio");
    };
    if question.label == Label::Virtual {
        return deterministic(question, verdict, up_is_good);
    }
    verdict.interval = Some(estimate.interval);
    verdict.p = Some(estimate.p);
    verdict.detectable = estimate.detectable;
    if question.timing && !question.label.timing_counts() {
        let reason = format!("timing under {} is no evidence", question.label.word());
        return because(verdict, &reason);
    }
    if question.base.len() < 2 || question.patched.len() < 2 {
        return because(verdict, "one boot a side says nothing about scatter");
    }
    let (low, high) = estimate.interval;
    let (floor, ceiling) = (1.0 / (1.0 + question.margin), 1.0 + question.margin);
    // An interval from few boots is too narrow; "same" needs that a difference as large as the margin would have been seen.
    let would_see = estimate.detectable.is_some_and(|d| d <= ceiling);
    verdict.word = if low >= floor && high <= ceiling && would_see {
        Word::Same
    } else if estimate.p <= ALPHA && (low > 1.0 || high < 1.0) && !(floor..=ceiling).contains(&estimate.ratio) {
        if (estimate.ratio > 1.0) == up_is_good { Word::Better } else { Word::Worse }
    } else {
        Word::Inconclusive
    };
    verdict
}

/// On the virtual clock a difference is a difference; the seeds are the sample, and they must agree.
fn deterministic(question: Question<'_>, mut verdict: Verdict, up_is_good: bool) -> Verdict {
    let pairs = question.base.iter().zip(question.patched);
    let ratios: Vec<f64> = pairs.map(|(a, b)| stats::median(b) / stats::median(a)).collect();
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    verdict.interval = Some((low, high));
    let (floor, ceiling) = (1.0 / (1.0 + question.margin), 1.0 + question.margin);
    verdict.word = if low >= floor && high <= ceiling {
        Word::Same
    } else if low > 1.0 || high < 1.0 {
        if (low > 1.0) == up_is_good { Word::Better } else { Word::Worse }
    } else {
        verdict.reason = Some("the seeds disagree: the answer depends on phase".into());
        Word::Inconclusive
    };
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(base: &[f64], patched: &[f64], better: Better, label: Label) -> Word {
        let boots = |values: &[f64]| values.iter().map(|v| vec![*v]).collect::<Vec<_>>();
        let (base, patched) = (boots(base), boots(patched));
        judge(Question {
            base: &base,
            patched: &patched,
            better,
            timing: true,
            thin: false,
            label,
            margin: 0.02,
            seed: 1,
        })
        .word
    }

    #[test]
    fn on_the_virtual_clock_a_difference_is_a_difference() {
        assert_eq!(word(&[10.0], &[9.0], Better::Lower, Label::Virtual), Word::Better);
        assert_eq!(word(&[10.0], &[9.0], Better::Higher, Label::Virtual), Word::Worse);
        assert_eq!(word(&[10.0], &[10.1], Better::Higher, Label::Virtual), Word::Same);
        assert_eq!(word(&[10.0, 10.0], &[9.0, 12.0], Better::Lower, Label::Virtual), Word::Inconclusive);
        assert_eq!(word(&[10.0], &[9.0], Better::Neither, Label::Virtual), Word::Info);
    }

    #[test]
    fn timing_under_emulation_never_decides() {
        let (slow, fast) = ([20.0, 20.1, 20.2, 19.9, 20.0], [10.0, 10.1, 10.2, 9.9, 10.0]);
        for label in [Label::Tcg, Label::KvmUnpinned] {
            assert_eq!(word(&slow, &fast, Better::Lower, label), Word::Inconclusive);
        }
    }

    #[test]
    fn placement_under_emulation_may_decide() {
        let (slow, fast) = ([20.0, 20.1, 20.2, 19.9, 20.0], [10.0, 10.1, 10.2, 9.9, 10.0]);
        let boots = |values: &[f64]| values.iter().map(|v| vec![*v]).collect::<Vec<_>>();
        let question = |base: &[f64], patched: &[f64], better| {
            let (base, patched) = (boots(base), boots(patched));
            judge(Question {
                base: &base,
                patched: &patched,
                better,
                timing: false,
                thin: false,
                label: Label::Tcg,
                margin: 0.02,
                seed: 1,
            })
            .word
        };
        assert_eq!(question(&slow, &fast, Better::Lower), Word::Better);
        assert_eq!(question(&slow, &fast, Better::Higher), Word::Worse);
        assert_eq!(question(&slow, &slow, Better::Lower), Word::Same);
        assert_eq!(question(&slow[..3], &fast[..3], Better::Lower), Word::Inconclusive);
        assert_eq!(question(&slow[..1], &fast[..1], Better::Lower), Word::Inconclusive);
    }
}
