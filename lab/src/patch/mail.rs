//! One mail as bytes: who, when, what about, and its body as text, with the transport's changes undone (RFC 2045, 3676).
//!
//! A diff is bytes, not characters: what is not UTF-8 is kept through [`decode`] and [`encode`], as Python's surrogateescape
//! does it (PEP 383).

use super::diff::{Diff, Hunk};
use mail_parser::{Message, MessageParser, MimeHeaders, PartType};

/// First of the 256 private code points that stand for bytes that are not UTF-8.
const ESCAPE: u32 = 0xF_7800;

/// A mail, or a bare text that has a mail's parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mail {
    /// Where it was read, for people.
    pub(super) label: String,
    /// Message-Id without brackets.
    pub(super) id: Option<String>,
    /// Ids that it answers, the nearest last.
    pub(super) answers: Vec<String>,
    /// `Name <address>`.
    pub(super) from: Option<String>,
    /// As written.
    pub(super) date: Option<String>,
    /// Seconds since 1970.
    pub(super) time: Option<i64>,
    /// Unfolded and decoded.
    pub(super) subject: String,
    /// The text.
    pub(super) body: String,
    /// What was undone to get it.
    pub(super) undone: Vec<String>,
    /// Lines in front of the body in what was read; 0 where the body was decoded.
    pub(super) before: usize,
}

/// Bytes as text, losslessly.
pub(super) fn decode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().filter_map(|byte| char::from_u32(ESCAPE + u32::from(*byte))));
    }
    text
}

/// The bytes of a decoded text.
pub(super) fn encode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c).checked_sub(ESCAPE).and_then(|byte| u8::try_from(byte).ok()) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// Whether a line begins a message of an mbox: `From x Thu Jan  1 00:00:00 1970` (git, builtin/mailsplit.c, `is_from_line`). A
/// commit message may have lines that begin with the same word.
fn is_separator(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let Some(rest) = text.strip_prefix("From ") else { return false };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let clock = |word: &&str| word.split(':').count() >= 2 && word.chars().all(|c| c.is_ascii_digit() || c == ':');
    let year = |word: &&str| word.len() == 4 && word.chars().all(|c| c.is_ascii_digit());
    let day = |word: &&str| ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].contains(word);
    words.len() >= 5
        && words.len() <= 8
        && words.get(1).is_some_and(day)
        && words.iter().any(clock)
        && words.iter().any(year)
}

/// The messages of an mbox, or the text as a whole where it is none.
pub(super) fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    if !bytes.split(|b| *b == b'\n').next().is_some_and(is_separator) {
        return vec![bytes.to_vec()];
    }
    // The crate takes every `From ` for a separator; those that are none are quoted as mboxrd does, and unquoted again by it.
    let mut safe = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if line.starts_with(b"From ") && !is_separator(text.strip_suffix(b"\r").unwrap_or(text)) {
            safe.push(b'>');
        }
        safe.extend_from_slice(line);
    }
    let found = mail_parser::mailbox::mbox::MessageIterator::new(safe.as_slice());
    found.filter_map(Result::ok).map(mail_parser::mailbox::mbox::Message::unwrap_contents).collect()
}

/// Whether a text begins as a mail's header does.
fn has_header(text: &str) -> bool {
    let name = |line: &str| {
        line.split_once(':')
            .is_some_and(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
    };
    let head: Vec<&str> = text.lines().take_while(|line| !line.trim().is_empty()).collect();
    let known = |line: &&str| ["subject:", "from:"].iter().any(|word| line.to_ascii_lowercase().starts_with(word));
    head.first().is_some_and(|line| name(line)) && head.iter().any(known)
}

impl Mail {
    /// Reads a mail. A text without a header is a body; its first line may be the subject all the same, as archives print it.
    pub(super) fn parse(label: &str, bytes: &[u8]) -> Self {
        // A byte order mark, or empty lines in front, would hide the header.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
        let text = decode(bytes);
        let mut mail = match has_header(&text).then(|| MessageParser::default().parse(bytes)).flatten() {
            Some(message) => Self::from_message(&message, bytes),
            None => Self::bare(&text),
        };
        mail.label = label.to_string();
        mail.undo_carriage_returns();
        mail
    }

    fn bare(text: &str) -> Self {
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let (subject, body) = match super::subject::Subject::parse(first).filter(|_| first.len() < 500) {
            Some(_) => (
                first.to_string(),
                text.split_once(first).map_or("", |(_, rest)| rest).trim_start_matches(['\r', '\n']),
            ),
            None => (String::new(), text),
        };
        // An archive prints a few headers below it.
        let named = |name: &str| {
            let line = body.lines().take(8).find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().to_string()).filter(|text| !text.is_empty())
        };
        let (from, date) = match subject.is_empty() {
            true => (None, None),
            false => (named("From:"), named("Date:")),
        };
        let subject_lines = text.lines().count() - body.lines().count();
        let headers = |line: &&str| from.is_some() && (line.starts_with("From:") || line.starts_with("Date:"));
        let rest: Vec<&str> = body.lines().skip_while(headers).collect();
        let before = subject_lines + body.lines().count() - rest.len();
        let body = rest.iter().map(|line| format!("{line}\n")).collect();
        Self { subject, from, date, body, before, ..Self::default() }
    }

    fn from_message(message: &Message<'_>, bytes: &[u8]) -> Self {
        let mut undone = Vec::new();
        let (body, before) = match Self::plain_body(message, bytes) {
            Some(body) => {
                let head = bytes.len() - encode(&body).len();
                (body, bytes.iter().take(head).filter(|byte| **byte == b'\n').count())
            }
            None => (Self::decoded_body(message, &mut undone), 0),
        };
        let from = message.from().and_then(|from| from.first()).map(|from| {
            let address = from.address().unwrap_or_default();
            match from.name() {
                Some(name) => format!("{name} <{address}>"),
                None => format!("{address} <{address}>"),
            }
        });
        let ids = |value: &mail_parser::HeaderValue<'_>| -> Vec<String> {
            value.as_text_list().unwrap_or_default().iter().map(|id| id.to_string()).collect()
        };
        let mut answers = ids(message.references());
        answers.extend(ids(message.in_reply_to()));
        Self {
            label: String::new(),
            id: message.message_id().map(str::to_string),
            answers,
            from,
            // Only one that is understood: git am refuses others.
            date: message.date().filter(|date| date.is_valid()).map(mail_parser::DateTime::to_rfc822),
            time: message.date().map(mail_parser::DateTime::to_timestamp),
            subject: message.subject().unwrap_or_default().to_string(),
            body,
            undone,
            before,
        }
        .unflowed(message)
    }

    /// The body as it stands, when nothing is encoded and every character is as good as its byte.
    fn plain_body(message: &Message<'_>, bytes: &[u8]) -> Option<String> {
        let root = message.root_part();
        let coded = message.content_transfer_encoding().is_some_and(|how| {
            !["7bit", "8bit", "binary", ""].iter().any(|plain| how.trim().eq_ignore_ascii_case(plain))
        });
        let foreign = message.content_type().and_then(|kind| kind.attribute("charset")).is_some_and(|set| {
            !["utf-8", "utf8", "us-ascii", "ascii"].iter().any(|ours| set.eq_ignore_ascii_case(ours))
        });
        let single = !matches!(root.body, PartType::Multipart(_));
        (single && !coded && !foreign).then(|| decode(bytes.get(root.raw_body_offset() as usize..).unwrap_or_default()))
    }

    /// The text parts decoded; attachments that are diffs, where no text part has one.
    fn decoded_body(message: &Message<'_>, undone: &mut Vec<String>) -> String {
        if let Some(how) = message.content_transfer_encoding() {
            undone.push(format!("{} is decoded", how.trim().to_ascii_lowercase()));
        }
        if let Some(set) = message.content_type().and_then(|kind| kind.attribute("charset"))
            && !set.eq_ignore_ascii_case("utf-8")
        {
            undone.push(format!("characters of {} are UTF-8 now", set.to_ascii_lowercase()));
        }
        let lines =
            |text: &str| if text.is_empty() || text.ends_with('\n') { text.to_string() } else { format!("{text}\n") };
        let texts: Vec<String> = message.text_bodies().filter_map(|part| part.text_contents()).map(&lines).collect();
        let whole: String = texts.concat();
        if Diff::parse(&whole).begins.is_some() {
            return whole;
        }
        let mut all = whole;
        for part in message.attachments() {
            let text = part.text_contents().map_or_else(|| decode(part.contents()), str::to_string);
            if Diff::parse(&text).begins.is_some() {
                undone
                    .push(format!("the diff is the attachment {}", part.attachment_name().unwrap_or("without a name")));
                all.push_str("---\n");
                all.push_str(&lines(&text));
            }
        }
        all
    }

    /// Lines that a `format=flowed` mail broke are joined again, and its stuffed blanks removed (RFC 3676, 4), where that makes
    /// the hunks sound: many mailers claim the format and do not use it.
    fn unflowed(mut self, message: &Message<'_>) -> Self {
        let attribute = |name: &str| message.content_type().and_then(|kind| kind.attribute(name)).unwrap_or_default();
        if !attribute("format").eq_ignore_ascii_case("flowed") {
            return self;
        }
        let flowed = unflow(&self.body, attribute("delsp").eq_ignore_ascii_case("yes"));
        let sound = |text: &str| {
            let diff = Diff::parse(text);
            !diff.hunks.is_empty() && diff.hunks.iter().all(Hunk::is_sound)
        };
        if flowed != self.body && sound(&flowed) && (!sound(&self.body) || stuffed(&self.body)) {
            self.undone.push("format=flowed is undone".into());
            self.body = flowed;
        }
        self
    }

    /// git am drops carriage returns at line ends unless told otherwise; so does this, where every line has one.
    fn undo_carriage_returns(&mut self) {
        let lines = self.body.lines().count();
        let with = self.body.split_inclusive('\n').filter(|line| line.ends_with("\r\n")).count();
        if with > 0 && with + 1 >= lines {
            self.body = self.body.replace("\r\n", "\n");
            self.undone.push("carriage returns at line ends are gone".into());
        }
    }
}

/// Whether context lines carry the second blank that stuffing gives them: then the text is sound either way, and would not apply.
fn stuffed(text: &str) -> bool {
    let diff = Diff::parse(text);
    let lines: Vec<&str> = text.lines().collect();
    let context = |hunk: &Hunk| lines[hunk.body.clone()].iter().filter(|line| line.starts_with(' ')).copied().collect();
    let all: Vec<&str> = diff.hunks.iter().flat_map(|hunk| -> Vec<&str> { context(hunk) }).collect();
    !all.is_empty() && all.iter().all(|line| line.starts_with("  "))
}

fn unflow(text: &str, delete_space: bool) -> String {
    let mut out = String::new();
    let mut open = false;
    for line in text.lines() {
        let line = line.trim_end_matches('\r');
        // "-- " is a signature's line, never a flowed one.
        let flows = line.ends_with(' ') && line != "-- ";
        let line = line.strip_prefix(' ').unwrap_or(line);
        let line = if flows && delete_space { line.strip_suffix(' ').unwrap_or(line) } else { line };
        out.push_str(line);
        open = flows;
        if !flows {
            out.push('\n');
        }
    }
    if open {
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_as_text() {
        let bytes = b"caf\xe9 \xc3\xa9 \xff\n";
        assert_eq!(encode(&decode(bytes)), bytes);
    }

    #[test]
    fn an_mbox_is_split_at_dates_only() {
        let mbox = b"From a@b Thu Jan  1 00:00:00 1970\nSubject: x\n\nFrom here on it goes\n>From quoted\n\nFrom 0123 Mon Sep 17 00:00:00 2001\nSubject: y\n\nb\n";
        let parts = split(mbox);
        assert_eq!(parts.len(), 2);
        let first = String::from_utf8_lossy(&parts[0]).into_owned();
        assert!(first.contains("\nFrom here on it goes\nFrom quoted\n"), "{first}");
        assert_eq!(split(b"Subject: z\n\nFrom me\n").len(), 1);
    }

    #[test]
    fn headers_are_unfolded_and_decoded() {
        let text = "From: =?utf-8?q?J=C3=BCrgen?= <j@x>\nSubject: =?iso-8859-1?q?=5BPATCH_v2?=\n =?iso-8859-1?q?_1/2=5D_gr=FC=DFe?=\nMessage-ID: <1@x>\nReferences: <0@x>\nIn-Reply-To: <0@x>\n\nbody\n";
        let mail = Mail::parse("m", text.as_bytes());
        assert_eq!(mail.from.as_deref(), Some("Jürgen <j@x>"));
        assert_eq!(mail.subject, "[PATCH v2 1/2] grüße");
        assert_eq!((mail.id.as_deref(), mail.answers.last().map(String::as_str)), (Some("1@x"), Some("0@x")));
        assert_eq!(mail.body, "body\n");
    }

    #[test]
    fn an_archive_s_text_has_its_subject_in_the_first_line() {
        let mail = Mail::parse("m", b"[PATCH RFC] sched: x\nFrom: A B\nDate: Tue Aug 04 2026\nwords\n");
        assert_eq!((mail.subject.as_str(), mail.from.as_deref()), ("[PATCH RFC] sched: x", Some("A B")));
        assert_eq!(mail.body, "words\n");
    }

    const DIFF: &str = "diff --git a/f.c b/f.c\n--- a/f.c\n+++ b/f.c\n@@ -1,2 +1,2 @@\n \tone\n-two\n+a rather long line that goes on\n";

    #[test]
    fn flowed_text_is_joined_and_unstuffed() {
        let sent = DIFF.replace("\n \tone", "\n  \tone").replace("long line that", "long line \nthat");
        let mail = format!("Subject: [PATCH] x\nContent-Type: text/plain; format=flowed\n\n{sent}");
        assert_eq!(Mail::parse("m", mail.as_bytes()).body, DIFF);
        let plain = format!("Subject: [PATCH] x\nContent-Type: text/plain; format=flowed\n\n{DIFF}");
        assert_eq!(Mail::parse("m", plain.as_bytes()).body, DIFF);
    }

    #[test]
    fn carriage_returns_go_and_attachments_come() {
        let mail = format!("Subject: [PATCH] x\r\n\r\n{}", DIFF.replace('\n', "\r\n"));
        assert_eq!(Mail::parse("m", mail.as_bytes()).body, DIFF);
        let attached = format!(
            "Subject: [PATCH] x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\nContent-Type: text/plain\n\nsee below\n--B\nContent-Type: text/x-patch; name=x.patch\nContent-Disposition: attachment; filename=x.patch\n\n{DIFF}\n--B--\n"
        );
        let body = Mail::parse("m", attached.as_bytes()).body;
        assert!(body.starts_with("see below\n") && body.contains(DIFF), "{body}");
    }
}
