//! Named parameters, numbers with ranges and words; everything given must be known, everything needed must be given.

use crate::ModelError;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use topolab_wire::Setting;

/// The parameters that a model has not taken yet.
pub(crate) struct Params(BTreeMap<String, Setting>);

impl Params {
    pub(crate) fn new(given: &BTreeMap<String, Setting>) -> Self {
        Self(given.clone())
    }

    /// Takes a parameter, checked against its range.
    pub(crate) fn take(&mut self, name: &'static str, range: RangeInclusive<i64>) -> Result<u64, ModelError> {
        let number = self.number(name, range)?;
        u64::try_from(number).map_err(|_| ModelError::Missing(name))
    }

    fn number(&mut self, name: &'static str, range: RangeInclusive<i64>) -> Result<i64, ModelError> {
        let value = self.0.remove(name).ok_or(ModelError::Missing(name))?;
        match &value {
            Setting::Number(number) if range.contains(number) => Ok(*number),
            Setting::Number(_) | Setting::Word(_) => {
                let rule = format!("a number from {} to {}", range.start(), range.end());
                Err(ModelError::OutOfRange { name, value, rule })
            }
        }
    }

    /// Takes a parameter that is the index of one of `nodes` nodes; -1 means none of them.
    pub(crate) fn take_node(&mut self, name: &'static str, nodes: usize) -> Result<Option<usize>, ModelError> {
        let last = i64::try_from(nodes).unwrap_or(0) - 1;
        Ok(usize::try_from(self.number(name, -1..=last)?).ok())
    }

    /// Takes a parameter that is one of some words, and returns its index among them.
    pub(crate) fn take_word(&mut self, name: &'static str, words: &[&str]) -> Result<usize, ModelError> {
        let value = self.0.remove(name).ok_or(ModelError::Missing(name))?;
        let found = words.iter().position(|word| matches!(&value, Setting::Word(given) if given == word));
        found.ok_or_else(|| ModelError::OutOfRange { name, value, rule: format!("one of: {}", words.join(" ")) })
    }

    /// Takes a parameter that counts or indexes things.
    pub(crate) fn take_count(&mut self, name: &'static str, range: RangeInclusive<i64>) -> Result<usize, ModelError> {
        let value = self.take(name, range)?;
        usize::try_from(value).map_err(|_| ModelError::Missing(name))
    }

    /// Refuses whatever is left.
    pub(crate) fn finish(self) -> Result<(), ModelError> {
        match self.0.into_keys().next() {
            Some(name) => Err(ModelError::UnknownParameter(name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_needed_known_and_in_range() {
        let given = BTreeMap::from([
            ("a".to_string(), Setting::Number(3)),
            ("b".to_string(), Setting::Number(1)),
            ("c".to_string(), Setting::Word("pipe".into())),
        ]);
        let mut params = Params::new(&given);
        assert!(matches!(params.take("a", 1..=4), Ok(3)));
        assert!(matches!(params.take("a", 1..=4), Err(ModelError::Missing("a"))));
        assert!(matches!(
            Params::new(&given).take("a", 1..=2),
            Err(ModelError::OutOfRange { value: Setting::Number(3), .. })
        ));
        assert!(matches!(Params::new(&given).take_word("c", &["socket"]), Err(ModelError::OutOfRange { .. })));
        assert!(matches!(params.take_word("c", &["socket", "pipe"]), Ok(1)));
        assert!(matches!(params.finish(), Err(ModelError::UnknownParameter(name)) if name == "b"));
    }

    #[test]
    fn a_node_may_be_none() {
        let node =
            |number| Params::new(&BTreeMap::from([("node".to_string(), Setting::Number(number))])).take_node("node", 2);
        assert!(matches!((node(-1), node(1)), (Ok(None), Ok(Some(1)))));
        assert!(node(2).is_err() && node(-2).is_err());
    }
}
