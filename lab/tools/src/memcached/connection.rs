//! One non-blocking connection with some requests in flight. Reads and writes may be cut anywhere.

use super::plan::Plan;
use super::protocol::{Answer, Request, answer};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A request that was answered.
pub(super) struct Completion {
    pub(super) request: Request,
    pub(super) answer: Answer,
    /// When its last byte had been read.
    pub(super) at: Instant,
    /// From just before its write to `at`.
    pub(super) latency: Duration,
}

/// A connection and its requests. Every error is text of what the server said or did.
pub(super) struct Connection {
    stream: TcpStream,
    plan: Plan,
    pipeline: usize,
    in_flight: VecDeque<(Request, Instant)>,
    outgoing: Vec<u8>,
    /// How much of `outgoing` the kernel has taken.
    written: usize,
    incoming: Vec<u8>,
}

impl Connection {
    /// A connection, non-blocking from now on, that keeps up to `pipeline` requests of the plan in flight.
    pub(super) fn new(stream: TcpStream, plan: Plan, pipeline: usize) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (in_flight, outgoing, incoming) = (VecDeque::with_capacity(pipeline), Vec::new(), Vec::new());
        Ok(Self { stream, plan, pipeline, in_flight, outgoing, written: 0, incoming })
    }

    /// Puts as many requests in flight as may be, and writes what the kernel takes.
    pub(super) fn send(&mut self, value: &[u8]) -> Result<(), String> {
        if self.in_flight.len() < self.pipeline {
            let now = Instant::now();
            while self.in_flight.len() < self.pipeline {
                let request = self.plan.next();
                request.append_to(&mut self.outgoing, value).map_err(|e| e.to_string())?;
                self.in_flight.push_back((request, now));
            }
        }
        self.flush()
    }

    /// Writes until nothing is left or the socket is full.
    fn flush(&mut self) -> Result<(), String> {
        while self.is_blocked() {
            match self.stream.write(self.outgoing.get(self.written..).unwrap_or_default()) {
                Ok(0) => return Err("the connection takes no more bytes".into()),
                Ok(count) => self.written += count,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(format!("write: {e}")),
            }
        }
        self.outgoing.clear();
        self.written = 0;
        Ok(())
    }

    /// Whether bytes wait for the socket to become writable.
    pub(super) fn is_blocked(&self) -> bool {
        self.written < self.outgoing.len()
    }

    /// Reads once, into `scratch` first, and gives every request that this completes.
    pub(super) fn receive(
        &mut self,
        scratch: &mut [u8],
        mut completed: impl FnMut(Completion) -> Result<(), String>,
    ) -> Result<(), String> {
        let count = match self.stream.read(scratch) {
            Ok(0) => return Err("the connection was closed".into()),
            Ok(count) => count,
            // Both come again: epoll is level-triggered.
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => return Ok(()),
            Err(e) => return Err(format!("read: {e}")),
        };
        let at = Instant::now();
        self.incoming.extend_from_slice(scratch.get(..count).unwrap_or_default());
        let mut taken = 0;
        while let Some((answer, size)) = answer(self.incoming.get(taken..).unwrap_or_default())? {
            taken += size;
            let (request, sent) = self.in_flight.pop_front().ok_or("an answer came that nothing had asked for")?;
            if !request.takes(answer) {
                return Err(format!("{answer:?} came in answer to {request:?}"));
            }
            completed(Completion { request, answer, at, latency: at.saturating_duration_since(sent) })?;
        }
        self.incoming.drain(..taken);
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
