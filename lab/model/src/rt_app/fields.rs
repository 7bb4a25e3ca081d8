//! An object of a profile whose members are taken one by one; what is left at the end is an error by name.

use super::json::Json;
use crate::ModelError;
use std::ops::RangeInclusive;
use topolab_wire::CpuSet;

/// An error at a place of the profile.
pub(super) fn bad(path: impl Into<String>, why: impl Into<String>) -> ModelError {
    ModelError::Profile { path: path.into(), why: why.into() }
}

/// The members that nobody has taken yet.
pub(super) struct Fields<'a> {
    path: String,
    left: Vec<(&'a str, &'a Json)>,
}

impl<'a> Fields<'a> {
    /// The members of `json`, which stands at `path`.
    pub(super) fn new(path: &str, json: &'a Json) -> Result<Self, ModelError> {
        match json {
            Json::Object(members) => {
                let left = members.iter().map(|(key, value)| (key.as_str(), value)).collect();
                Ok(Self { path: path.to_string(), left })
            }
            other => Err(bad(path, format!("is {}; it must be an object", other.kind()))),
        }
    }

    /// The path of a member.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }

    /// The path of the object.
    pub(super) fn here(&self) -> &str {
        &self.path
    }

    /// Takes a member.
    pub(super) fn take(&mut self, key: &str) -> Result<Option<&'a Json>, ModelError> {
        let mut taken = self.take_all(|name| name == key).into_iter();
        match (taken.next(), taken.next()) {
            (_, Some(_)) => Err(bad(self.path(key), "is there twice")),
            (one, None) => Ok(one.map(|(_, value)| value)),
        }
    }

    /// Takes every member whose name fits, in order. A name may come again.
    pub(super) fn take_all(&mut self, fits: impl Fn(&str) -> bool) -> Vec<(&'a str, &'a Json)> {
        let (taken, left) = self.left.iter().partition(|(key, _)| fits(key));
        self.left = left;
        taken
    }

    /// Takes every member, whose names must differ.
    pub(super) fn take_named(&mut self) -> Result<Vec<(&'a str, &'a Json)>, ModelError> {
        let all = std::mem::take(&mut self.left);
        match all.iter().enumerate().find(|(n, (key, _))| all[..*n].iter().any(|(earlier, _)| earlier == key)) {
            Some((_, (key, _))) => Err(bad(self.path(key), "is there twice")),
            None => Ok(all),
        }
    }

    /// Takes a whole number.
    pub(super) fn take_int(&mut self, key: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, ModelError> {
        self.take(key)?.map(|value| int(&self.path(key), value, range)).transpose()
    }

    /// Takes a string.
    pub(super) fn take_text(&mut self, key: &str) -> Result<Option<&'a str>, ModelError> {
        self.take(key)?.map(|value| text(&self.path(key), value)).transpose()
    }

    /// Takes true or false.
    pub(super) fn take_bool(&mut self, key: &str) -> Result<Option<bool>, ModelError> {
        match self.take(key)? {
            None => Ok(None),
            Some(Json::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(bad(self.path(key), format!("is {}; it must be true or false", other.kind()))),
        }
    }

    /// Takes an array of numbers of CPUs or nodes.
    pub(super) fn take_set(&mut self, key: &str) -> Result<Option<CpuSet>, ModelError> {
        let Some(value) = self.take(key)? else { return Ok(None) };
        let path = self.path(key);
        let Json::List(items) = value else {
            return Err(bad(path, format!("is {}; it must be an array of numbers", value.kind())));
        };
        if items.is_empty() {
            return Err(bad(path, "is empty"));
        }
        let one = |item| int(&path, item, 0..=8191).map(|number| u32::try_from(number).unwrap_or(0));
        items.iter().map(one).collect::<Result<CpuSet, _>>().map(Some)
    }

    /// Refuses whatever is left, with a reason if `why` knows one.
    pub(super) fn finish(self, why: impl Fn(&str) -> Option<&'static str>) -> Result<(), ModelError> {
        match self.left.first() {
            Some((key, _)) => Err(bad(self.path(key), why(key).unwrap_or("is unknown"))),
            None => Ok(()),
        }
    }
}

/// A whole number within its range.
pub(super) fn int(path: &str, value: &Json, range: RangeInclusive<i64>) -> Result<i64, ModelError> {
    let rule = || format!("it must be a whole number from {} to {}", range.start(), range.end());
    match value {
        Json::Int(number) if range.contains(number) => Ok(*number),
        Json::Int(number) => Err(bad(path, format!("is {number}; {}", rule()))),
        other => Err(bad(path, format!("is {}; {}", other.kind(), rule()))),
    }
}

/// A string.
pub(super) fn text<'a>(path: &str, value: &'a Json) -> Result<&'a str, ModelError> {
    match value {
        Json::Text(text) => Ok(text),
        other => Err(bad(path, format!("is {}; it must be a string", other.kind()))),
    }
}
