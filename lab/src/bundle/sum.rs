//! Sums: whole numbers, names, `+ - * /` and parentheses, for numbers that follow from the machine (`load * node_cpus / 48`).
//! Division rounds to the nearest but never to 0: what is shared out so, threads and connections, must exist. A result below 1 is an
//! error.

use std::collections::BTreeMap;

/// A sum that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sum {
    /// A number.
    Number(i64),
    /// What a name stands for.
    Name(String),
    /// Two sums and what is done with them.
    Of(Box<Sum>, Operator, Box<Sum>),
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => f.write_str(name),
            Self::Of(left, operator, right) => {
                let sign = match operator {
                    Operator::Plus => '+',
                    Operator::Minus => '-',
                    Operator::Times => '*',
                    Operator::Over => '/',
                };
                write!(f, "({left} {sign} {right})")
            }
        }
    }
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Times,
    /// `/`
    Over,
}

impl Sum {
    /// Reads a sum; the error says what was not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let tokens = tokens(text)?;
        let mut rest = tokens.as_slice();
        let sum = added(&mut rest)?;
        match rest.first() {
            None => Ok(sum),
            Some(token) => Err(format!("`{token}` is too much")),
        }
    }

    /// The names in it.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Name(name) => vec![name],
            Self::Of(left, _, right) => left.names().into_iter().chain(right.names()).collect(),
        }
    }

    /// Its value, at least 1.
    pub fn value(&self, names: &BTreeMap<String, i64>) -> Result<i64, String> {
        match self.raw(names)? {
            value if value >= 1 => Ok(value),
            value => Err(format!("{value} is below 1")),
        }
    }

    fn raw(&self, names: &BTreeMap<String, i64>) -> Result<i64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Name(name) => names.get(name).copied().ok_or_else(|| format!("`{name}` is no number here")),
            Self::Of(left, operator, right) => {
                let (a, b) = (left.raw(names)?, right.raw(names)?);
                let result = match operator {
                    Operator::Plus => a.checked_add(b),
                    Operator::Minus => a.checked_sub(b),
                    Operator::Times => a.checked_mul(b),
                    Operator::Over => (b > 0).then(|| match a.saturating_add(b / 2).div_euclid(b) {
                        0 if a > 0 => 1,
                        rounded => rounded,
                    }),
                };
                result.ok_or_else(|| format!("{a} and {b} have no such result"))
            }
        }
    }
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    let mut found: Vec<String> = Vec::new();
    let mut in_word = false;
    for c in text.chars() {
        let word = c.is_ascii_alphanumeric() || c == '_';
        match (word, in_word) {
            (true, true) => found.iter_mut().last().into_iter().for_each(|token| token.push(c)),
            (true, false) => found.push(c.to_string()),
            (false, _) if c.is_whitespace() => {}
            (false, _) if "+-*/()".contains(c) => found.push(c.to_string()),
            (false, _) => return Err(format!("`{c}` is not understood")),
        }
        in_word = word;
    }
    Ok(found)
}

fn added(rest: &mut &[String]) -> Result<Sum, String> {
    let mut sum = multiplied(rest)?;
    while let Some(operator) = take(rest, &[("+", Operator::Plus), ("-", Operator::Minus)]) {
        sum = Sum::Of(Box::new(sum), operator, Box::new(multiplied(rest)?));
    }
    Ok(sum)
}

fn multiplied(rest: &mut &[String]) -> Result<Sum, String> {
    let mut sum = single(rest)?;
    while let Some(operator) = take(rest, &[("*", Operator::Times), ("/", Operator::Over)]) {
        sum = Sum::Of(Box::new(sum), operator, Box::new(single(rest)?));
    }
    Ok(sum)
}

fn take(rest: &mut &[String], among: &[(&str, Operator)]) -> Option<Operator> {
    let (first, others) = rest.split_first()?;
    let (_, operator) = among.iter().find(|(text, _)| text == first)?;
    *rest = others;
    Some(*operator)
}

fn single(rest: &mut &[String]) -> Result<Sum, String> {
    let (first, others) = rest.split_first().ok_or("a number or a name is missing at the end")?;
    *rest = others;
    match first.as_str() {
        "(" => {
            let sum = added(rest)?;
            match rest.split_first() {
                Some((closing, others)) if closing == ")" => {
                    *rest = others;
                    Ok(sum)
                }
                Some(_) | None => Err("a `)` is missing".into()),
            }
        }
        word if word.starts_with(|c: char| c.is_ascii_digit()) => {
            word.parse().map(Sum::Number).map_err(|_| format!("`{word}` is no number"))
        }
        word if word.starts_with(|c: char| c.is_ascii_alphabetic()) => Ok(Sum::Name(word.into())),
        other => Err(format!("`{other}` stands where a number or a name should")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_and_rounded() {
        let names = BTreeMap::from([("load".to_string(), 64), ("node_cpus".to_string(), 8)]);
        let value = |text: &str| Sum::parse(text).and_then(|sum| sum.value(&names));
        assert_eq!(value("load * node_cpus / 48"), Ok(11));
        assert_eq!(value("2 + 3*(4-1)"), Ok(11));
        assert_eq!(value("node_cpus / 100"), Ok(1));
        assert!(value("1 - 5").is_err_and(|e| e.contains("below 1")));
        for (text, says) in
            [("", "missing"), ("2 +", "missing"), ("(2", "`)`"), ("2 2", "too much"), ("a%b", "`%`"), ("* 2", "`*`")]
        {
            assert!(Sum::parse(text).is_err_and(|e| e.contains(says)), "{text}");
        }
        assert!(value("cpus").is_err_and(|e| e.contains("`cpus`")));
        assert!(value("load / 0").is_err());
    }
}
