//! `--name value` pairs: everything given must be known and in its range, everything needed must be given.

use crate::ToolError;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

/// The flags that a tool has not taken yet.
pub(crate) struct Arguments {
    given: BTreeMap<String, String>,
    known: Vec<&'static str>,
}

impl Arguments {
    /// Pairs the words up.
    pub(crate) fn new(words: &[String]) -> Result<Self, ToolError> {
        let mut given = BTreeMap::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| ToolError::NotAFlag(word.clone()))?;
            let value = words.next().ok_or_else(|| ToolError::NoValue(name.to_string()))?;
            if given.insert(name.to_string(), value.clone()).is_some() {
                return Err(ToolError::Twice(name.to_string()));
            }
        }
        Ok(Self { given, known: Vec::new() })
    }

    /// Takes a flag that `parse` understands; `rule` says what that is. Without a default the flag is needed.
    pub(crate) fn take<T>(
        &mut self,
        flag: &'static str,
        default: Option<T>,
        rule: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ToolError> {
        self.known.push(flag);
        match self.given.remove(flag) {
            Some(value) => parse(&value).ok_or_else(|| ToolError::BadValue { flag, value, rule: rule.to_string() }),
            None => default.ok_or(ToolError::MissingFlag(flag)),
        }
    }

    /// Takes a decimal number in a range.
    pub(crate) fn number(
        &mut self,
        flag: &'static str,
        range: RangeInclusive<u64>,
        default: Option<u64>,
    ) -> Result<u64, ToolError> {
        let rule = format!("a number from {} to {}", range.start(), range.end());
        self.take(flag, default, &rule, |value| value.parse().ok().filter(|number| range.contains(number)))
    }

    /// Takes a number that counts things in memory.
    pub(crate) fn count(
        &mut self,
        flag: &'static str,
        range: RangeInclusive<usize>,
        default: Option<usize>,
    ) -> Result<usize, ToolError> {
        let rule = format!("a number from {} to {}", range.start(), range.end());
        self.take(flag, default, &rule, |value| value.parse().ok().filter(|number| range.contains(number)))
    }

    /// Takes any text but the empty one.
    pub(crate) fn text(&mut self, flag: &'static str, default: Option<&str>) -> Result<String, ToolError> {
        let default = default.map(str::to_string);
        self.take(flag, default, "a text that is not empty", |value| Some(value.to_string()).filter(|v| !v.is_empty()))
    }

    /// Takes ADDRESS:PORT. Names are not resolved, but for `localhost`: that takes libraries of the guest, which a static program
    /// may not find.
    pub(crate) fn address(&mut self, flag: &'static str, default: SocketAddr) -> Result<SocketAddr, ToolError> {
        self.take(flag, Some(default), "ADDRESS:PORT, as in 127.0.0.1:80, [::1]:80 or localhost:80", |value| {
            let numeric = value.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
            let address: Option<SocketAddr> = numeric.as_deref().unwrap_or(value).parse().ok();
            address.filter(|address| address.port() > 0)
        })
    }

    /// The address of a port on this machine, for a default.
    pub(crate) fn local(port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// Takes `yes` or `no`.
    pub(crate) fn yes_or_no(&mut self, flag: &'static str, default: bool) -> Result<bool, ToolError> {
        self.take(flag, Some(default), "yes or no", |value| match value {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        })
    }

    /// Refuses whatever is left.
    pub(crate) fn finish(self) -> Result<(), ToolError> {
        let known = || self.known.iter().map(|flag| format!("--{flag}")).collect::<Vec<_>>().join(" ");
        match self.given.keys().next() {
            Some(flag) => Err(ToolError::UnknownFlag { flag: flag.clone(), known: known() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Result<Arguments, ToolError> {
        Arguments::new(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_pairs() {
        assert!(matches!(arguments("loops 3"), Err(ToolError::NotAFlag(word)) if word == "loops"));
        assert!(matches!(arguments("-- 3"), Err(ToolError::NotAFlag(_))));
        assert!(matches!(arguments("--loops"), Err(ToolError::NoValue(flag)) if flag == "loops"));
        assert!(matches!(arguments("--loops 1 --loops 2"), Err(ToolError::Twice(flag)) if flag == "loops"));
    }

    #[test]
    fn a_flag_is_needed_known_and_in_range() {
        let mut given = arguments("--a 3 --b yes --c maybe --d [::1]:80 --e 4").unwrap();
        assert_eq!(given.number("a", 1..=4, None).unwrap(), 3);
        assert!(matches!(given.number("a", 1..=4, None), Err(ToolError::MissingFlag("a"))));
        assert_eq!(given.count("a", 1..=4, Some(2)).unwrap(), 2);
        assert!(given.yes_or_no("b", false).unwrap());
        assert!(given.yes_or_no("b", true).unwrap());
        assert!(
            matches!(given.yes_or_no("c", true), Err(ToolError::BadValue { flag: "c", value, .. }) if value == "maybe")
        );
        let named = arguments("--at localhost:5").unwrap().address("at", Arguments::local(1)).unwrap();
        assert_eq!(named, Arguments::local(5));
        assert_eq!(given.address("d", Arguments::local(1)).unwrap().to_string(), "[::1]:80");
        let refused = given.finish().unwrap_err().to_string();
        assert!(refused.starts_with("--e is unknown") && refused.ends_with("--b --c --d"), "{refused}");
        let out = |line: &str| arguments(line).unwrap().number("n", 1..=2, None).unwrap_err().to_string();
        assert_eq!(out("--n 3"), "--n is `3`; it must be a number from 1 to 2");
        assert_eq!(out("--n -1"), "--n is `-1`; it must be a number from 1 to 2");
        for address in ["localhost", ":80", "127.0.0.1:0", "127.0.0.1:port", "127.0.0.1:65536", "host:80"] {
            assert!(
                arguments(&format!("--at {address}")).unwrap().address("at", Arguments::local(1)).is_err(),
                "{address}"
            );
        }
    }
}
