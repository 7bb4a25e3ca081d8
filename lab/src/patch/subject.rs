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

impl Subject {
    /// Reads a subject, `Re: [tip] [PATCH v2 1/3] title`; `None` when it names no patch. Brackets without the word PATCH are a
    /// list's own.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut rest = text.as_str();
        let mut reply = false;
        while let Some(behind) = ["re:", "fw:", "fwd:", "aw:"].iter().find_map(|word| strip_word(rest, word)) {
            reply = true;
            rest = behind.trim_start();
        }
        loop {
            let (bracket, behind) = rest.strip_prefix('[')?.split_once(']')?;
            rest = behind.trim_start();
            let words: Vec<&str> = bracket.split_whitespace().collect();
            if words.iter().any(|word| word.split(',').any(|part| part == "PATCH")) {
                return Some(Self::of(reply, &words, rest));
            }
        }
    }

    fn of(reply: bool, words: &[&str], title: &str) -> Self {
        let version = words.iter().find_map(|word| word.strip_prefix(['v', 'V'])?.parse().ok());
        let place = words.iter().find_map(|word| {
            let (number, total) = word.split_once('/')?;
            Some((number.parse().ok()?, total.parse().ok()?))
        });
        Self {
            reply,
            version: version.unwrap_or(1).max(1),
            number: place.map(|(number, _)| number),
            total: place.map_or(1, |(_, total)| total),
            title: title.to_string(),
        }
    }

    /// Whether it is the letter in front of a series.
    pub(super) fn is_cover(&self) -> bool {
        self.number == Some(0)
    }
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
        assert_eq!(parsed("[RFC] no patch here"), None);
        assert_eq!(parsed("sched/fair: plain"), None);
    }
}
