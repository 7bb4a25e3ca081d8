//! The engine core: takes requests from the fronts, forms batches, has the ranks compute, sends tokens back.
//!
//! vLLM's core (vllm/v1/engine/core.py) has threads of its own for its sockets; here one thread does both, since neither
//! computes. As there, requests that came during a step join the next one, and a step's tokens leave in one message a front.

use super::broadcast::Broadcast;
use super::message::{Message, SIZE};
use crate::polled::{POLL_MS, epoll_over};
use nix::sys::epoll::{EpollEvent, EpollTimeout};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes read at once: a whole number of messages.
const READ: usize = 64 * SIZE;

/// A request on its way.
struct Request {
    front: usize,
    connection: u64,
    /// Tokens that it still gets.
    left: u64,
}

/// Serves the fronts until the run is over; returns how many steps that took.
pub(super) fn serve(
    fronts: &[UnixStream],
    batch: usize,
    ranks: u32,
    broadcast: &Broadcast,
    stop: &AtomicBool,
) -> io::Result<u64> {
    let epoll = epoll_over(fronts)?;
    let mut events = [EpollEvent::empty(); 64];
    let mut waiting = VecDeque::new();
    let mut running: Vec<Request> = Vec::new();
    let mut outboxes = vec![Vec::new(); fronts.len()];
    let mut steps = 0;
    while !stop.load(Ordering::SeqCst) {
        let idle = running.is_empty() && waiting.is_empty();
        let ready = epoll.wait(&mut events, EpollTimeout::from(if idle { POLL_MS } else { 0 }))?;
        for event in &events[..ready] {
            let front = event.data() as usize;
            if !take_requests(&mut &fronts[front], front, &mut waiting)? {
                return Ok(steps);
            }
        }
        let free = batch.saturating_sub(running.len()).min(waiting.len());
        running.extend(waiting.drain(..free));
        if running.is_empty() {
            continue;
        }
        broadcast.ask_all(ranks)?;
        steps += 1;
        for request in &mut running {
            request.left = request.left.saturating_sub(1);
            let token = Message { connection: request.connection, tokens: request.left };
            outboxes[request.front].extend(token.bytes());
        }
        running.retain(|request| request.left > 0);
        for (mut front, outbox) in fronts.iter().zip(&mut outboxes) {
            if !outbox.is_empty() {
                front.write_all(outbox)?;
                outbox.clear();
            }
        }
    }
    Ok(steps)
}

/// Takes what a front sent; false if it has hung up.
fn take_requests(from: &mut impl Read, front: usize, waiting: &mut VecDeque<Request>) -> io::Result<bool> {
    let mut bytes = [0; READ];
    let length = from.read(&mut bytes)?;
    for message in Message::all(&bytes[..length])? {
        waiting.push_back(Request { front, connection: message.connection, left: message.tokens });
    }
    Ok(length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gets_its_tokens_one_a_step() {
        let (mut front, core) = UnixStream::pair().expect("a pair");
        let (stop, broadcast) = (AtomicBool::new(false), Broadcast::default());
        let steps = std::thread::scope(|scope| {
            let core = [core];
            let (stop, broadcast) = (&stop, &broadcast);
            let serving = scope.spawn(move || serve(&core, 1, 0, broadcast, stop));
            for connection in [5, 6] {
                front.write_all(&Message { connection, tokens: 2 }.bytes()).expect("a request");
            }
            let mut bytes = [0; 4 * SIZE];
            front.read_exact(&mut bytes).expect("four tokens");
            let got: Vec<_> = Message::all(&bytes).expect("messages").map(|m| (m.connection, m.tokens)).collect();
            // A batch of one: the second request waits for the first.
            assert_eq!(got, [(5, 1), (5, 0), (6, 1), (6, 0)]);
            stop.store(true, Ordering::SeqCst);
            serving.join().expect("the core")
        });
        assert_eq!(steps.expect("steps"), 4);
    }
}
