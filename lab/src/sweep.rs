//! A sweep: one comparison at several values of a cost or of a bundle's parameter, and where its verdicts flip. Pure.

use crate::topology::Cost;

/// Points of a sweep unless said.
const POINTS: u64 = 5;
/// More points are a typing error.
const MOST: u64 = 101;

/// What is swept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swept {
    /// A cost of the machine.
    Cost(Cost),
    /// A parameter of the bundle.
    Param(String),
}

/// A sweep as wished: what, and its values in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// As written, for headings.
    pub name: String,
    /// What is swept.
    pub swept: Swept,
    /// The values.
    pub values: Vec<u64>,
}

impl Sweep {
    /// Reads `costs.llc=0us..200us`, `connections=1..16/4`; the number behind the slash is that of points.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = "KEY=FROM..TO or KEY=FROM..TO/POINTS, such as costs.llc=0us..200us or connections=1..16/4";
        let wrong = || format!("`{text}` is not {form}");
        let (name, range) = text.split_once('=').ok_or_else(wrong)?;
        let (range, points) = match range.rsplit_once('/') {
            Some((range, points)) => (range, points.parse().map_err(|_| wrong())?),
            None => (range, POINTS),
        };
        let (from, to) = range.split_once("..").ok_or_else(wrong)?;
        let swept = match name.strip_prefix("costs.") {
            Some(cost) => Swept::Cost(Cost::parse(cost)?),
            None => Swept::Param(name.to_string()),
        };
        let value = |text: &str| match &swept {
            Swept::Cost(cost) => cost.value(text),
            Swept::Param(_) => text.parse().map_err(|_| format!("`{text}` is no whole number")),
        };
        let (from, to): (u64, u64) = (value(from)?, value(to)?);
        if from >= to || !(2..=MOST).contains(&points) {
            return Err(format!("`{text}`: from the smaller to the larger value, in 2 to {MOST} points"));
        }
        // u128: the product of two values may be large.
        let at = |n: u64| from + (u128::from(to - from) * u128::from(n) / u128::from(points - 1)) as u64;
        let mut values: Vec<u64> = (0..points).map(at).collect();
        values.dedup();
        Ok(Self { name: name.to_string(), swept, values })
    }

    /// A value for people.
    pub fn text(&self, value: u64) -> String {
        match &self.swept {
            Swept::Cost(cost) => cost.text(value).replace(' ', ""),
            Swept::Param(_) => value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_read() {
        let sweep = Sweep::parse("costs.llc=0us..200us").expect("a sweep");
        assert_eq!(sweep.values, [0, 50_000, 100_000, 150_000, 200_000]);
        assert_eq!(sweep.text(50_000), "50µs");
        let sweep = Sweep::parse("connections=1..16/4").expect("a sweep");
        assert_eq!((sweep.swept, sweep.values), (Swept::Param("connections".into()), vec![1, 6, 11, 16]));
        assert_eq!(Sweep::parse("connections=1..2/5").map(|s| s.values), Ok(vec![1, 2]));
        for text in [
            "connections",
            "connections=1",
            "connections=5..1",
            "costs.llc=0..5",
            "costs.l3=0us..5us",
            "x=1..9/1",
            "x=a..b",
        ] {
            assert!(Sweep::parse(text).is_err(), "{text}");
        }
    }
}
