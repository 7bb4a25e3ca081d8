//! A profile's text as a tree that keeps the order of keys, and repeated keys.
//!
//! rt-app reads with json-c (json_tokener.c, not strict), which takes more than JSON: comments (`/* */` and `//`), a comma
//! before a closing bracket, 'single' quotes, and `True` for `true`. All of these are turned into JSON here, in place, so
//! that lines and columns of an error are those of the file.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A value of a profile.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    /// null
    Null,
    /// true or false
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Fraction,
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object: its members in the order of the file.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads a profile.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(&plain(text)).map_err(|e| e.to_string())
    }

    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Int(_) => "a whole number",
            Self::Fraction => "a number that is not whole",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

/// What [`plain`] is inside of.
enum Inside {
    Nothing,
    String { quote: char },
    Line,
    Block,
}

/// Turns what json-c takes into JSON.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = Inside::Nothing;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match inside {
            Inside::String { quote } => match c {
                '\\' => {
                    out.push(c);
                    out.extend(chars.next());
                }
                c if c == quote => {
                    out.push('"');
                    inside = Inside::Nothing;
                }
                '"' => out.push_str("\\\""),
                c => out.push(c),
            },
            Inside::Line | Inside::Block if c == '\n' => {
                out.push(c);
                inside = if matches!(inside, Inside::Line) { Inside::Nothing } else { inside };
            }
            Inside::Block if c == '*' && chars.peek() == Some(&'/') => {
                chars.next();
                out.push_str("  ");
                inside = Inside::Nothing;
            }
            Inside::Line | Inside::Block => out.push(' '),
            Inside::Nothing => match (c, chars.peek()) {
                ('/', Some('*')) => {
                    chars.next();
                    out.push_str("  ");
                    inside = Inside::Block;
                }
                ('/', Some('/')) => {
                    out.push(' ');
                    inside = Inside::Line;
                }
                ('"' | '\'', _) => {
                    out.push('"');
                    inside = Inside::String { quote: c };
                }
                (']' | '}', _) => {
                    drop_last_comma(&mut out);
                    out.push(c);
                }
                // Outside of strings, letters are those of true, false, null and of exponents.
                _ => out.push(c.to_ascii_lowercase()),
            },
        }
    }
    out
}

/// Blanks a comma that a closing bracket follows, if it follows a value.
fn drop_last_comma(out: &mut String) {
    let Some(before) = out.trim_end().strip_suffix(',') else { return };
    let comma = before.len();
    if !before.trim_end().ends_with(['[', '{', ',', ':']) {
        out.replace_range(comma..=comma, " ");
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        // A number beyond 63 bits is out of every range.
        Ok(Json::Int(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Fraction)
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(member) = members.next_entry()? {
            object.push(member);
        }
        Ok(Json::Object(object))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<String> {
        match Json::read(text) {
            Ok(Json::Object(members)) => members.into_iter().map(|(key, _)| key).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_keep_their_order_and_may_come_again() {
        assert_eq!(keys(r#"{"run": 1, "a": 2, "run": 3}"#), ["run", "a", "run"]);
    }

    #[test]
    fn what_json_c_takes_is_taken() {
        let text =
            "/* a\n * b */ { // c\n 'on': True, \"off\": FALSE, \"no\": Null, \"list\": [1, 2, ], 'x\"y': 'a', }";
        assert_eq!(keys(text), ["on", "off", "no", "list", "x\"y"]);
        assert_eq!(Json::read("[1, /* 2, */ ]"), Ok(Json::List(vec![Json::Int(1)])));
    }

    #[test]
    fn strings_are_left_alone() {
        let read = |text| Json::read(text).expect("a string");
        assert_eq!(read(r#""A /* b */ // ,] 'c'""#), Json::Text("A /* b */ // ,] 'c'".into()));
        assert_eq!(read(r#""a\"b""#), Json::Text("a\"b".into()));
    }

    #[test]
    fn what_json_c_refuses_is_refused_at_its_place() {
        for bad in ["[,]", "{,}", "[1,,]", "{\"a\":,}", "{a: 1}", "[1 2]", "/* ", "{} {}", "'a\\'b'", ""] {
            assert!(Json::read(bad).is_err(), "{bad}");
        }
        let said = Json::read("{\n/* one\ntwo */ \"suspend\", 'run': 1,\n}").expect_err("no value");
        assert!(said.contains("line 3 column 17"), "{said}");
    }

    #[test]
    fn numbers_are_whole_or_not() {
        let kind = |text| Json::read(text).expect("a number").kind();
        assert_eq!(
            (kind("-1"), kind("1.0"), kind("1E3")),
            ("a whole number", "a number that is not whole", "a number that is not whole")
        );
        assert_eq!(Json::read("18446744073709551615"), Ok(Json::Int(i64::MAX)));
    }
}
