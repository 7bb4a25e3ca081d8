//! A client: one request at a time, the next when the last is answered in full.

use super::Shape;
use crate::threads::pin_self;
use crate::window::{Window, ns_since};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Bytes of a request, and of a token's message.
pub(super) const MESSAGE: usize = 64;

/// What clients saw within the window, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// From a request to its first token.
    pub(super) first_tokens: Vec<u64>,
    /// From a token to the next of the same request.
    pub(super) gaps: Vec<u64>,
    /// From a request to its last token.
    pub(super) requests: Vec<u64>,
}

impl Seen {
    /// Adds what another client saw.
    pub(super) fn add(&mut self, other: Self) {
        self.first_tokens.extend(other.first_tokens);
        self.gaps.extend(other.gaps);
        self.requests.extend(other.requests);
    }

    /// How many tokens that were.
    pub(super) fn tokens(&self) -> usize {
        self.first_tokens.len() + self.gaps.len()
    }
}

/// Asks until the run is over.
pub(super) fn ask(shape: &Shape, mut end: &TcpStream, stop: &AtomicBool, window: &Window) -> io::Result<Seen> {
    if let Some(cpus) = &shape.client_cpus {
        pin_self(cpus)?;
    }
    let mut seen = Seen::default();
    while !stop.load(Ordering::SeqCst) {
        let asked = Instant::now();
        // The end of the run shuts the connection down under whatever is under way.
        if !went(end.write_all(&[0; MESSAGE]), stop)? {
            return Ok(seen);
        }
        let mut last = asked;
        for token in 0..shape.tokens {
            if !went(end.read_exact(&mut [0; MESSAGE]), stop)? {
                return Ok(seen);
            }
            let now = Instant::now();
            if window.counts() {
                let since = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
                if token == 0 { seen.first_tokens.push(since) } else { seen.gaps.push(since) }
            }
            last = now;
        }
        if window.counts() {
            seen.requests.push(ns_since(asked));
        }
    }
    Ok(seen)
}

/// Whether it succeeded; false if the run is over, which is no error.
fn went(result: io::Result<()>, stop: &AtomicBool) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(e) if stop.load(Ordering::SeqCst) || e.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}
