//! Named integer parameters with ranges; everything given must be known, everything needed must be given.

use crate::ModelError;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The parameters that a model has not taken yet.
pub(crate) struct Params(BTreeMap<String, i64>);

impl Params {
    pub(crate) fn new(given: &BTreeMap<String, i64>) -> Self {
        Self(given.clone())
    }

    /// Takes a parameter, checked against its range.
    pub(crate) fn take(&mut self, name: &'static str, range: RangeInclusive<i64>) -> Result<u64, ModelError> {
        let value = self.0.remove(name).ok_or(ModelError::Missing(name))?;
        let checked = u64::try_from(value).ok().filter(|_| range.contains(&value));
        checked.ok_or_else(|| ModelError::OutOfRange {
            name,
            value,
            rule: format!("from {} to {}", range.start(), range.end()),
        })
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
        let given = BTreeMap::from([("a".to_string(), 3), ("b".to_string(), 1)]);
        let mut params = Params::new(&given);
        assert!(matches!(params.take("a", 1..=4), Ok(3)));
        assert!(matches!(params.take("a", 1..=4), Err(ModelError::Missing("a"))));
        assert!(matches!(Params::new(&given).take("a", 1..=2), Err(ModelError::OutOfRange { value: 3, .. })));
        assert!(matches!(params.finish(), Err(ModelError::UnknownParameter(name)) if name == "b"));
    }
}
