//! What one connection asks for, in memtier_benchmark's order: the ratio's SETs, then its GETs, then again, on every
//! connection by itself; each of a key drawn uniformly (memtier's `--key-pattern R:R`).

use super::protocol::Request;
use topolab_model::SplitMix64;

/// SETs and GETs of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ratio {
    pub(super) sets: u64,
    pub(super) gets: u64,
}

impl Ratio {
    /// Reads `S:G`, two numbers up to a million that are not both 0.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let part = |part: &str| part.parse().ok().filter(|number| *number <= 1_000_000);
        let (sets, gets) = text.split_once(':')?;
        let ratio = Self { sets: part(sets)?, gets: part(gets)? };
        (ratio.sets + ratio.gets > 0).then_some(ratio)
    }
}

/// The endless sequence of one connection's requests.
pub(super) struct Plan {
    ratio: Ratio,
    keys: u64,
    rng: SplitMix64,
    position: u64,
}

impl Plan {
    pub(super) fn new(ratio: Ratio, keys: u64, seed: u64) -> Self {
        Self { ratio, keys, rng: SplitMix64::new(seed), position: 0 }
    }

    pub(super) fn next(&mut self) -> Request {
        let key = self.rng.below(self.keys);
        let request = if self.position < self.ratio.sets { Request::Set(key) } else { Request::Get(key) };
        self.position = (self.position + 1) % (self.ratio.sets + self.ratio.gets);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_two_numbers() {
        assert_eq!(Ratio::parse("1:10"), Some(Ratio { sets: 1, gets: 10 }));
        assert_eq!(Ratio::parse("0:1"), Some(Ratio { sets: 0, gets: 1 }));
        for text in ["0:0", "1", "1:", ":1", "-1:2", "1:2:3", "1:1000001", "a:b"] {
            assert_eq!(Ratio::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sets_come_first_and_keys_stay_in_their_space() {
        let mut plan = Plan::new(Ratio { sets: 1, gets: 2 }, 3, 7);
        let mut again = Plan::new(Ratio { sets: 1, gets: 2 }, 3, 7);
        for n in 0..30 {
            let request = plan.next();
            assert_eq!(request, again.next());
            match request {
                Request::Set(key) => assert!(n % 3 == 0 && key < 3),
                Request::Get(key) => assert!(n % 3 != 0 && key < 3),
            }
        }
    }
}
