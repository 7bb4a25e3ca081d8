//! Subjects: `[PATCH RFC v2 03/12] sched/fair: …`, as git format-patch and people write them.

/// What a subject says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    /// Whether it answers another mail.
    pub(super) reply: bool,
    /// The version, 1 where none is written.
    pub(super) version: u32,
    /// Its place; 0 is the cover letter, `None` stands alone.
    pub(super) number: Option<u32>,
    /// Patches of the series.
    pub(super) total: u32,
    /// The words without the brackets.
    pub(super) title: String,
}

/// Most patches of a series: a typing error must not become a list of a billion missing ones.
const MOST: u32 = 9999;

/// Without the words that mark an answer or a forwarded mail; whether there were any.
pub(super) fn without_reply(text: &str) -> (bool, &str) {
    let (mut reply, mut rest) = (false, text.trim_start());
    while let Some(behind) = ["re:", "fw:", "fwd:", "aw:"].iter().find_map(|word| strip_word(rest, word)) {
        reply = true;
        rest = behind.trim_start();
    }
    (reply, rest)
}

impl Subject {
    /// Reads a subject, `Re: [tip] [PATCH v2 1/3] title`, however people write it: `[patch V2 02/38]`, `[PATCHv2]`, `[RFC/PATCH
    /// 1/3]`, `[PATCH][v2]`, `[RFC v2 1/3]`. `None` when it names no patch: an RFC without a number may be a mere question. Other
    /// brackets are a list's own.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (reply, mut rest) = without_reply(&text);
        let mut words: Vec<String> = Vec::new();
        while let Some((bracket, behind)) = rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            words.extend(bracket.split([' ', ',', ':', ';']).map(str::to_ascii_lowercase));
            // A title's own bracket stays: only the first ones, up to that with the word, are a prefix.
            rest = behind.trim_start();
            if words.iter().any(|word| is_patch(word)) && !rest.starts_with("[v") && !rest.starts_with("[V") {
                break;
            }
        }
        let place = words.iter().find_map(|word| place(word));
        let rfc = words.iter().any(|word| word == "rfc") && place.is_some();
        if !words.iter().any(|word| is_patch(word)) && !rfc {
            return None;
        }
        let version = words.iter().find_map(|word| version(word));
        Some(Self {
            reply,
            version: version.unwrap_or(1).max(1),
            number: place.map(|(number, _)| number),
            total: place.map_or(1, |(_, total)| total),
            title: rest.to_string(),
        })
    }

    /// Whether it is the letter in front of a series.
    pub(super) fn is_cover(&self) -> bool {
        self.number == Some(0)
    }
}

/// `patch`, `rfc/patch`, `patchv2`, `patch-next`.
fn is_patch(word: &str) -> bool {
    word.split('/').any(|part| {
        part.strip_prefix("patch")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-') || version(rest).is_some())
    })
}

/// `v2` of `v2`, `patchv2`, `v2.1`.
fn version(word: &str) -> Option<u32> {
    let digits = word.strip_prefix("patch").unwrap_or(word).strip_prefix('v')?;
    digits.split('.').next()?.parse().ok()
}

/// `3/12`.
fn place(word: &str) -> Option<(u32, u32)> {
    let (number, total) = word.split_once('/')?;
    let (number, total) = (number.parse().ok()?, total.parse().ok()?);
    (total <= MOST).then_some((number, total))
}

/// What is behind a word, in whatever case it is written.
fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(word.len())?;
    head.eq_ignore_ascii_case(word).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_say_version_place_and_title() {
        let parsed = |text: &str| Subject::parse(text).map(|s| (s.reply, s.version, s.number, s.total, s.title));
        let said =
            |reply, version, number, total, title: &str| Some((reply, version, number, total, title.to_string()));
        assert_eq!(parsed("[PATCH] a: b"), said(false, 1, None, 1, "a: b"));
        assert_eq!(parsed("[PATCH RFC v2 03/12] a: [x] b"), said(false, 2, Some(3), 12, "a: [x] b"));
        assert_eq!(parsed("Re: [RFC PATCH V4 0/2] a"), said(true, 4, Some(0), 2, "a"));
        assert_eq!(parsed("[tip: sched/core] [PATCH RESEND] a"), said(false, 1, None, 1, "a"));
        assert_eq!(parsed("[PATCH v2\n 1/2] folded\n title"), said(false, 2, Some(1), 2, "folded title"));
        assert_eq!(parsed("[patch V2 02/38] a"), said(false, 2, Some(2), 38, "a"));
        assert_eq!(parsed("[PATCHv2 1/3] a"), said(false, 2, Some(1), 3, "a"));
        assert_eq!(parsed("[RFC/PATCH v2 1/3] a"), said(false, 2, Some(1), 3, "a"));
        assert_eq!(parsed("[RFC v2 1/3] a"), said(false, 2, Some(1), 3, "a"));
        assert_eq!(parsed("[PATCH-next,v3,1/3] a"), said(false, 3, Some(1), 3, "a"));
        assert_eq!(parsed("[PATCH][v2] a"), said(false, 2, None, 1, "a"));
        assert_eq!(parsed("[PATCH net-next v3 2/5] a"), said(false, 3, Some(2), 5, "a"));
        assert_eq!(parsed("[PATCH v2: 1/2] a"), said(false, 2, Some(1), 2, "a"));
        assert_eq!(parsed("[PATCH 1/400000000] a"), said(false, 1, None, 1, "a"));
        assert_eq!(parsed("[RFC] no patch here"), None);
        assert_eq!(parsed("sched/fair: plain"), None);
    }
}
