//! memcached's text protocol, as far as SET and GET of one key need it (doc/protocol.txt in memcached's source).

use std::io::Write;

/// memtier_benchmark's default `--key-prefix`.
const KEY_PREFIX: &str = "memtier-";
/// The longest line that an answer can hold: a key has at most 250 bytes, error texts are short.
const LINE_MAX: usize = 1024;
/// What ends a line, and a value.
const CRLF: &[u8] = b"\r\n";
/// What ends the answer to a GET.
const END: &[u8] = b"END\r\n";

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Store a value under the key of this number.
    Set(u64),
    /// Get the value of the key of this number.
    Get(u64),
}

/// A complete answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The value was stored.
    Stored,
    /// The value of the key of this number.
    Value(u64),
    /// There is no value under the key.
    Miss,
}

impl Request {
    /// Appends the request; `value` is what a SET stores, without flags or expiry.
    pub(super) fn append_to(self, buffer: &mut Vec<u8>, value: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Set(key) => {
                write!(buffer, "set {KEY_PREFIX}{key} 0 0 {}\r\n", value.len())?;
                buffer.extend_from_slice(value);
                buffer.extend_from_slice(CRLF);
                Ok(())
            }
            Self::Get(key) => write!(buffer, "get {KEY_PREFIX}{key}\r\n"),
        }
    }

    /// Whether this is what the request can be answered with.
    pub(super) fn takes(self, answer: Answer) -> bool {
        match (self, answer) {
            (Self::Set(_), Answer::Stored) | (Self::Get(_), Answer::Miss) => true,
            (Self::Get(asked), Answer::Value(got)) => asked == got,
            (Self::Set(_), Answer::Value(_) | Answer::Miss) | (Self::Get(_), Answer::Stored) => false,
        }
    }
}

/// Reads one answer from the beginning of the bytes received, and how many of them it takes; `None` when it is not complete
/// yet. The error is what the server said instead of an answer.
pub(super) fn answer(received: &[u8]) -> Result<Option<(Answer, usize)>, String> {
    let Some(line_end) = received.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        return if received.len() < LINE_MAX { Ok(None) } else { Err(quoted(received)) };
    };
    let (line, rest) = received.split_at(line_end + CRLF.len() - 1);
    let text = line.strip_suffix(CRLF).and_then(|text| std::str::from_utf8(text).ok());
    match text.ok_or_else(|| quoted(line))? {
        "STORED" => Ok(Some((Answer::Stored, line.len()))),
        "END" => Ok(Some((Answer::Miss, line.len()))),
        text => {
            let (key, size) = value_line(text).ok_or_else(|| quoted(line))?;
            let Some((value, after)) = rest.split_at_checked(size) else { return Ok(None) };
            let ending = CRLF.len() + END.len();
            let Some(ended) = after.get(..ending) else { return Ok(None) };
            match ended.strip_prefix(CRLF) {
                Some(END) => Ok(Some((Answer::Value(key), line.len() + value.len() + ending))),
                Some(_) | None => Err(format!("a value of {size} bytes is followed by {}", quoted(ended))),
            }
        }
    }
}

/// Key number and size in bytes of `VALUE <key> <flags> <bytes>`.
fn value_line(text: &str) -> Option<(u64, usize)> {
    let mut words = text.strip_prefix("VALUE ")?.split(' ');
    let key = words.next()?.strip_prefix(KEY_PREFIX)?.parse().ok()?;
    let _flags: u32 = words.next()?.parse().ok()?;
    let size = words.next()?.parse().ok()?;
    words.next().is_none().then_some((key, size))
}

/// The beginning of what the server said, for an error message.
fn quoted(bytes: &[u8]) -> String {
    let beginning = bytes.get(..200).unwrap_or(bytes);
    format!("`{}`", String::from_utf8_lossy(beginning).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_documented_bytes() {
        let mut buffer = Vec::new();
        Request::Set(7).append_to(&mut buffer, b"xyz").unwrap();
        Request::Get(12).append_to(&mut buffer, b"xyz").unwrap();
        assert_eq!(buffer, b"set memtier-7 0 0 3\r\nxyz\r\nget memtier-12\r\n");
    }

    #[test]
    fn an_answer_is_complete_at_its_last_byte_and_not_before() {
        // A value that holds what ends one.
        let value: &[u8] = b"VALUE memtier-5 0 7\r\nEND\r\nab\r\nEND\r\n";
        for (bytes, expected) in
            [(value, Answer::Value(5)), (b"END\r\n", Answer::Miss), (b"STORED\r\n", Answer::Stored)]
        {
            for length in 0..bytes.len() {
                assert_eq!(answer(&bytes[..length]), Ok(None), "{length} bytes");
            }
            let followed = [bytes, b"STORED\r\n"].concat();
            assert_eq!(answer(&followed), Ok(Some((expected, bytes.len()))));
        }
    }

    #[test]
    fn errors_are_never_answers() {
        for line in ["ERROR", "SERVER_ERROR out of memory storing object", "CLIENT_ERROR bad data chunk", "NOT_STORED"]
        {
            assert_eq!(answer(format!("{line}\r\n").as_bytes()), Err(format!("`{line}`")));
        }
        for bytes in
            ["VALUE other-5 0 3\r\n", "VALUE memtier-5 0\r\n", "STORED\n", "VALUE memtier-5 0 1\r\nab\r\nEND\r\n"]
        {
            assert!(answer(bytes.as_bytes()).is_err(), "{bytes}");
        }
        assert!(answer(&[b'x'; LINE_MAX]).is_err());
        assert_eq!(answer(&[b'x'; LINE_MAX - 1]), Ok(None));
    }

    #[test]
    fn an_answer_must_fit_its_request() {
        assert!(Request::Set(1).takes(Answer::Stored) && Request::Get(1).takes(Answer::Value(1)));
        assert!(Request::Get(1).takes(Answer::Miss));
        assert!(!Request::Set(1).takes(Answer::Miss) && !Request::Get(1).takes(Answer::Value(2)));
        assert!(!Request::Get(1).takes(Answer::Stored));
    }
}
