//! Words for prompts, and the vocabulary of a random model that has one token for each of them.

use std::collections::BTreeSet;

/// Short English words that are one token, with the space before them, in the vocabularies of the usual models.
pub(crate) const WORDS: [&str; 64] = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
];

/// How SentencePiece writes a space: U+2581.
const SPACE: char = '\u{2581}';

/// What a token is, by its number in GGUF's `tokenizer.ggml.token_type` (llama.cpp, include/llama.h, `llama_token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    Byte = 6,
}

/// One token.
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) kind: Kind,
    /// Pairs with a higher score are merged first.
    pub(crate) score: f32,
}

/// The index of `<unk>`.
pub(crate) const UNKNOWN: u32 = 0;
/// The index of `<s>`.
pub(crate) const BEGIN: u32 = 1;
/// The index of `</s>`.
pub(crate) const END: u32 = 2;

/// A vocabulary for SentencePiece's algorithm (`tokenizer.ggml.model` = `llama`) that any text can be written in: a token for
/// each byte, for each printable ASCII character, and for each of [`WORDS`].
pub(crate) fn tokens() -> Vec<Token> {
    let special = [("<unk>", Kind::Unknown), ("<s>", Kind::Control), ("</s>", Kind::Control)];
    let mut tokens: Vec<Token> =
        special.into_iter().map(|(text, kind)| Token { text: text.into(), kind, score: 0.0 }).collect();
    tokens.extend((0..=u8::MAX).map(|byte| Token { text: format!("<0x{byte:02X}>"), kind: Kind::Byte, score: 0.0 }));
    // The algorithm only merges pairs into tokens, so a word needs each of its beginnings too.
    let mut beginnings = BTreeSet::new();
    for word in WORDS {
        let mut beginning = String::from(SPACE);
        for letter in word.chars() {
            beginning.push(letter);
            beginnings.insert(beginning.clone());
        }
    }
    let characters = std::iter::once(SPACE).chain('!'..='~').map(String::from);
    let normal = beginnings.into_iter().chain(characters).enumerate();
    tokens.extend(normal.map(|(n, text)| Token { text, kind: Kind::Normal, score: -(n as f32) }));
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_and_every_word_has_tokens_of_its_own() {
        let tokens = tokens();
        let texts: BTreeSet<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(texts.len(), tokens.len(), "llama.cpp refuses a token that is there twice");
        assert_eq!(tokens.iter().filter(|token| token.kind == Kind::Byte).count(), 256);
        for (index, text) in [(UNKNOWN, "<unk>"), (BEGIN, "<s>"), (END, "</s>"), (3, "<0x00>"), (258, "<0xFF>")] {
            assert_eq!(tokens[index as usize].text, text);
        }
        for word in WORDS {
            assert!(texts.contains(format!("\u{2581}{word}").as_str()), "{word}");
        }
    }
}
