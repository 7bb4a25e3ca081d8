//! One thread of the load: one epoll loop over its connections, as memtier_benchmark's threads have through libevent.

use super::connection::{Completion, Connection};
use super::protocol::{Answer, Request};
use crate::ToolError;
use crate::error::trying;
use crate::latency::Latencies;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a thread waits in epoll before it looks whether the run is over.
const POLL_MS: u8 = 100;
/// Bytes of one read at most.
const SCRATCH: usize = 64 << 10;

/// The measured time; what completes outside is not counted.
pub(super) struct Window {
    pub(super) begin: Instant,
    pub(super) end: Instant,
}

impl Window {
    /// The time of this length that begins after the warmup.
    pub(super) fn after(warmup: Duration, length: Duration) -> Self {
        let begin = Instant::now() + warmup;
        Self { begin, end: begin + length }
    }

    fn holds(&self, at: Instant) -> bool {
        self.begin <= at && at <= self.end
    }
}

/// What all threads of a run share.
pub(super) struct Run<'a> {
    pub(super) address: SocketAddr,
    /// What a SET stores.
    pub(super) value: &'a [u8],
    /// Set once every thread has been started.
    pub(super) window: OnceLock<Window>,
    /// Raised when any thread has failed.
    pub(super) stop: AtomicBool,
}

/// What was counted within the window.
pub(super) struct Tally {
    pub(super) sets: Latencies,
    pub(super) gets: Latencies,
    pub(super) misses: u64,
}

impl Tally {
    pub(super) fn new() -> Result<Self, ToolError> {
        Ok(Self { sets: Latencies::new()?, gets: Latencies::new()?, misses: 0 })
    }

    pub(super) fn add(&mut self, other: &Self) -> Result<(), ToolError> {
        self.sets.add(&other.sets)?;
        self.gets.add(&other.gets)?;
        self.misses += other.misses;
        Ok(())
    }

    fn count(&mut self, completion: &Completion) -> Result<(), ToolError> {
        match completion.answer {
            Answer::Miss => self.misses += 1,
            Answer::Stored | Answer::Value(_) => {}
        }
        match completion.request {
            Request::Set(_) => self.sets.record(completion.latency),
            Request::Get(_) => self.gets.record(completion.latency),
        }
    }
}

impl Run<'_> {
    /// Keeps the connections busy until the window is over, or until another thread fails.
    pub(super) fn drive(&self, connections: &mut [Connection]) -> Result<Tally, ToolError> {
        let result = self.looped(connections);
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        result
    }

    fn looped(&self, connections: &mut [Connection]) -> Result<Tally, ToolError> {
        let server = |said| ToolError::Server { server: self.address.to_string(), said };
        let mut tally = Tally::new()?;
        let epoll = trying("epoll_create1", Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC))?;
        let mut watched = Vec::new();
        for (index, connection) in connections.iter_mut().enumerate() {
            connection.send(self.value).map_err(server)?;
            let flags = interest(connection);
            trying("EPOLL_CTL_ADD", epoll.add(&*connection, EpollEvent::new(flags, index as u64)))?;
            watched.push(flags);
        }
        let mut events = [EpollEvent::empty(); 64];
        let mut scratch = vec![0; SCRATCH];
        while !self.is_over(Instant::now()) {
            let ready = match epoll.wait(&mut events, EpollTimeout::from(POLL_MS)) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(e) => return trying("epoll_wait", Err(e)),
            };
            for event in events.iter().take(ready) {
                let index = usize::try_from(event.data()).unwrap_or(usize::MAX);
                let (Some(connection), Some(before)) = (connections.get_mut(index), watched.get_mut(index)) else {
                    continue;
                };
                // An error or a hang-up shows itself in a read.
                if event.events() != EpollFlags::EPOLLOUT {
                    let window = self.window.get();
                    let counted = |completion: Completion| match window.is_some_and(|w| w.holds(completion.at)) {
                        true => tally.count(&completion).map_err(|e| e.to_string()),
                        false => Ok(()),
                    };
                    connection.receive(&mut scratch, counted).map_err(server)?;
                }
                connection.send(self.value).map_err(server)?;
                let flags = interest(connection);
                if flags != *before {
                    trying("EPOLL_CTL_MOD", epoll.modify(&*connection, &mut EpollEvent::new(flags, index as u64)))?;
                    *before = flags;
                }
            }
        }
        Ok(tally)
    }

    fn is_over(&self, now: Instant) -> bool {
        self.stop.load(Ordering::Relaxed) || self.window.get().is_some_and(|window| now > window.end)
    }
}

/// What a connection waits for.
fn interest(connection: &Connection) -> EpollFlags {
    match connection.is_blocked() {
        true => EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT,
        false => EpollFlags::EPOLLIN,
    }
}
