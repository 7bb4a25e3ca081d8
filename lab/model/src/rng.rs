//! SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): one small, fixed algorithm, so that a seed means the same workload in
//! every version of the lab. A crate may change its stream between releases; a record may not.

/// A deterministic stream of numbers.
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A stream that begins at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 for a bound of 0. The modulo's bias is below 2^-40 for the bounds used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits().checked_rem(bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        // First outputs for seed 1234567, as in the reference implementation's test vectors.
        let mut rng = SplitMix64::new(1_234_567);
        assert_eq!(rng.bits(), 6_457_827_717_110_365_317);
        assert_eq!(rng.bits(), 3_203_168_211_198_807_973);
    }
}
