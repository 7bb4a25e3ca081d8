//! QEMU options as values, and the one escape that they need: a comma inside a value is doubled (QEMU manual,
//! "Device URL Syntax"; util/qemu-option.c, `get_opt_value`).

use std::fmt;

/// `name` or `name first,key=value,…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opt {
    name: &'static str,
    first: Option<String>,
    pairs: Vec<(String, String)>,
    /// Values that QEMU takes to the letter (-append, -kernel) must not be escaped.
    verbatim: bool,
}

impl Opt {
    /// A switch without a value.
    pub(super) fn flag(name: &'static str) -> Self {
        Self { name, first: None, pairs: Vec::new(), verbatim: false }
    }

    /// An option whose value QEMU takes to the letter.
    pub(super) fn verbatim(name: &'static str, value: impl Into<String>) -> Self {
        Self { name, first: Some(value.into()), pairs: Vec::new(), verbatim: true }
    }

    /// An option with an implied first key: `-machine q35`.
    pub(super) fn first(name: &'static str, first: impl Into<String>) -> Self {
        Self { name, first: Some(first.into()), pairs: Vec::new(), verbatim: false }
    }

    /// An option of keys and values only.
    pub(super) fn pairs(name: &'static str) -> Self {
        Self::flag(name)
    }

    /// Adds a key and its value.
    pub(super) fn with(mut self, key: impl Into<String>, value: impl fmt::Display) -> Self {
        self.pairs.push((key.into(), value.to_string()));
        self
    }

    /// The one or two words of the command line.
    pub(super) fn words(&self) -> Vec<String> {
        let escape = |value: &str| if self.verbatim { value.to_string() } else { value.replace(',', ",,") };
        let first = self.first.iter().map(|value| escape(value));
        let pairs = self.pairs.iter().map(|(key, value)| format!("{key}={}", escape(value)));
        let value = first.chain(pairs).collect::<Vec<_>>().join(",");
        let mut words = vec![format!("-{}", self.name)];
        if self.first.is_some() || !self.pairs.is_empty() {
            words.push(value);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_values_are_doubled_and_only_there() {
        let option = Opt::first("chardev", "file").with("id", "console").with("path", "/tmp/a,b c/x");
        assert_eq!(option.words(), ["-chardev", "file,id=console,path=/tmp/a,,b c/x"]);
        assert_eq!(Opt::verbatim("kernel", "/tmp/a,b").words(), ["-kernel", "/tmp/a,b"]);
        assert_eq!(Opt::flag("nodefaults").words(), ["-nodefaults"]);
    }
}
