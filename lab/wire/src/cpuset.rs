//! A set of logical CPU numbers in the kernel's list form, `0-3,8` (Documentation/admin-guide/cputopology.rst).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of logical CPUs, written and parsed as the kernel prints cpulists.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet(BTreeSet<u32>);

/// Why a text is not a cpulist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuSetError(String);

impl fmt::Display for CpuSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a CPU list such as 0-3,8", self.0)
    }
}

impl std::error::Error for CpuSetError {}

/// More CPUs than any Linux configuration has (`NR_CPUS` is at most 8,192 on x86-64, arch/x86/Kconfig): a bound so that
/// a hostile range cannot fill the memory.
const MAX_CPU: u32 = 65_535;

impl CpuSet {
    /// The CPUs `first..end`.
    pub fn range(first: u32, end: u32) -> Self {
        Self((first..end).collect())
    }

    /// Number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set has no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The highest CPU.
    pub fn last(&self) -> Option<u32> {
        self.0.last().copied()
    }

    /// The CPUs in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u32) {
        self.0.insert(cpu);
    }

    /// The CPUs in either set.
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// The CPUs of this set that are not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        self.iter().filter(|cpu| !other.contains(*cpu)).collect()
    }

    /// The CPUs in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Whether every CPU of `self` is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// The kernel's hexadecimal mask form, as [`CpuSet::from_mask`] reads it.
    pub fn mask(&self) -> String {
        let words = self.last().map_or(1, |last| last / 32 + 1);
        let word = |n: u32| (0..32).filter(|bit| self.contains(n * 32 + bit)).fold(0u32, |sum, bit| sum | 1 << bit);
        (0..words).rev().map(|n| format!("{:08x}", word(n))).collect::<Vec<_>>().join(",")
    }

    /// Reads the kernel's hexadecimal mask form, `000000ff,00000000` (lib/bitmap.c, `%*pb`): words of 32 bits, highest
    /// first.
    pub fn from_mask(text: &str) -> Result<Self, CpuSetError> {
        let bad = || CpuSetError(text.to_string());
        let mut set = BTreeSet::new();
        for (word_index, word) in text.trim().rsplit(',').enumerate() {
            let bits = u64::from_str_radix(word, 16).map_err(|_| bad())?;
            for bit in 0..64u32 {
                if bits & (1 << bit) != 0 {
                    set.insert(u32::try_from(word_index).map_err(|_| bad())? * 32 + bit);
                }
            }
        }
        Ok(Self(set))
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let bad = || CpuSetError(text.to_string());
        let mut set = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let low: u32 = low.trim().parse().map_err(|_| bad())?;
            let high: u32 = high.trim().parse().map_err(|_| bad())?;
            if low > high || high > MAX_CPU {
                return Err(bad());
            }
            set.extend(low..=high);
        }
        Ok(Self(set))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(low) = rest.next() {
            let mut high = low;
            while rest.peek() == Some(&(high + 1)) {
                high += 1;
                rest.next();
            }
            match low == high {
                true => write!(f, "{separator}{low}")?,
                false => write!(f, "{separator}{low}-{high}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap_or_default()
    }

    #[test]
    fn the_list_form_survives_a_round_trip() {
        for text in ["", "0", "0-3", "0,2,4,6", "0-3,8,10-11", "255-287"] {
            assert_eq!(set(text).to_string(), text);
        }
        assert_eq!(set("3,1,2").to_string(), "1-3");
    }

    #[test]
    fn masks_count_from_the_right_in_words_of_32_bits() {
        assert_eq!(CpuSet::from_mask("ff").map(|s| s.to_string()), Ok("0-7".into()));
        assert_eq!(CpuSet::from_mask("00000001,80000000").map(|s| s.to_string()), Ok("31-32".into()));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["a", "3-1", "0-", "-", "0-4294967295", "1;2"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }
}
