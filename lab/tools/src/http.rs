//! HTTP/1.1 (RFC 9112) as far as one request per connection needs it.

use crate::error::trying;
use crate::{ToolError, tcp};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// What a header or a chunk's line must fit into, in bytes.
const HEAD_MAX: usize = 64 << 10;

/// A complete answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Sends one request, with a JSON body when there is one, and reads its answer. `patience` bounds the connection and each read.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: Option<&Value>,
    patience: Option<Duration>,
) -> Result<Response, ToolError> {
    let what = || format!("{method} http://{address}{path}");
    let mut stream = tcp::connect(address, patience)?;
    trying(what(), stream.set_nodelay(true))?;
    trying(what(), stream.set_read_timeout(patience))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: application/json\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    trying(what(), stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()))?;
    let mut received = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        let count = match stream.read(&mut part) {
            Ok(count) => count,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return trying(what(), Err(e)),
        };
        received.extend_from_slice(part.get(..count).unwrap_or_default());
        let parsed = parse(&received, count == 0);
        if let Some(response) = parsed.map_err(|said| ToolError::Server { server: what(), said })? {
            return Ok(response);
        }
    }
}

/// Reads an answer from all bytes received; `None` when more must come. `ended`: none will.
fn parse(received: &[u8], ended: bool) -> Result<Option<Response>, String> {
    let cut = || format!("the answer ended early: `{}`", beginning(received));
    let Some((head, rest)) = split(received, b"\r\n\r\n") else {
        return match (ended, received.len() > HEAD_MAX) {
            (false, false) => Ok(None),
            (true, _) => Err(cut()),
            (false, true) => Err(format!("no HTTP header ends within {HEAD_MAX} bytes: `{}`", beginning(received))),
        };
    };
    let no_http = || format!("this is no HTTP/1.1 answer: `{}`", beginning(received));
    let head = std::str::from_utf8(head).map_err(|_| no_http())?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(status).ok_or_else(no_http)?;
    let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(':')).collect();
    let header = |name: &str| headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
    let body = if header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        chunks(rest)?
    } else if let Some(length) = header("content-length") {
        let length: usize = length.parse().map_err(|_| no_http())?;
        rest.get(..length).map(<[u8]>::to_vec)
    } else {
        // The end of the connection is the end of the body.
        ended.then(|| rest.to_vec())
    };
    match body {
        Some(body) => Ok(Some(Response { status, body })),
        None if ended => Err(cut()),
        None => Ok(None),
    }
}

/// The status of `HTTP/1.1 200 OK`.
fn status(line: &str) -> Option<u16> {
    line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

/// The body of chunks (RFC 9112, 7.1); `None` when the last one has not come.
fn chunks(mut rest: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let Some((line, after)) = split(rest, b"\r\n") else { return Ok(None) };
        let bad = || format!("this is no length of a chunk: `{}`", beginning(line));
        let text = std::str::from_utf8(line).map_err(|_| bad())?;
        let digits = text.split(';').next().unwrap_or(text).trim();
        let size = usize::from_str_radix(digits, 16).map_err(|_| bad())?;
        if size == 0 {
            // Trailers, if any, and an empty line.
            let ended = after.starts_with(b"\r\n") || split(after, b"\r\n\r\n").is_some();
            return Ok(ended.then_some(body));
        }
        let Some((chunk, after)) = after.split_at_checked(size) else { return Ok(None) };
        let Some((ending, after)) = after.split_at_checked(2) else { return Ok(None) };
        if ending != b"\r\n" {
            return Err(format!("a chunk of {size} bytes is followed by `{}`", beginning(ending)));
        }
        body.extend_from_slice(chunk);
        rest = after;
    }
}

/// What comes before and after the first occurrence of a mark.
fn split<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some((bytes.get(..at)?, bytes.get(at + mark.len()..)?))
}

/// The first 300 bytes, for an error message.
pub(crate) fn beginning(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..300).unwrap_or(bytes)).trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer must be complete with its last byte and not before.
    fn whole(bytes: &str) -> Response {
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes.as_bytes()[..length], false), Ok(None), "{length} bytes of {bytes}");
            assert!(parse(&bytes.as_bytes()[..length], true).is_err());
        }
        parse(bytes.as_bytes(), false).unwrap().unwrap()
    }

    #[test]
    fn a_body_ends_as_its_header_says() {
        let counted = whole("HTTP/1.1 200 OK\r\ncontent-length: 4\r\nServer: x\r\n\r\n{\n }");
        assert_eq!((counted.status, counted.body.as_slice()), (200, &b"{\n }"[..]));
        let chunked = whole(
            "HTTP/1.1 503 no\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\r\n}\r\nb;x=y\r\n0123456789a\r\n0\r\n\r\n",
        );
        assert_eq!((chunked.status, chunked.body.as_slice()), (503, &b"{\r\n}0123456789a"[..]));
        assert_eq!(
            whole("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n").body,
            b"a"
        );
        let endless = b"HTTP/1.0 200 OK\r\n\r\nabc";
        assert_eq!(parse(endless, false), Ok(None));
        assert_eq!(parse(endless, true).unwrap().unwrap().body, b"abc");
    }

    #[test]
    fn what_is_not_http_is_refused() {
        for bytes in [
            "SSH-2.0-OpenSSH_10\r\n\r\n",
            "HTTP/1.1 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            assert!(parse(bytes.as_bytes(), false).is_err(), "{bytes}");
        }
        assert!(parse(&vec![b'x'; HEAD_MAX + 1], false).is_err());
    }
}
