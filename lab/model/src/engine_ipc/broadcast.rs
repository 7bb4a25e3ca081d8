//! A message from one thread to all ranks through shared memory, and their answers.
//!
//! vLLM's counterpart (vllm/distributed/device_communicators/shm_broadcast.py, `MessageQueue`) is a ring of blocks in shared
//! memory whose readers spin with sched_yield() and in later versions sleep when nothing comes. Here readers sleep at once,
//! on a futex: a spinning task would cost the host every instruction, and what a scheduler decides is where they wake.

use crate::futex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// One message at a time: the next is sent when all have answered the last.
#[derive(Default)]
pub(super) struct Broadcast {
    /// How many messages were sent; ranks sleep on it.
    sent: AtomicU32,
    /// How many ranks have not answered; the sender sleeps on it.
    unanswered: AtomicU32,
    ended: AtomicBool,
}

impl Broadcast {
    /// Sends the next message to so many ranks and waits for all answers. The ranks of a model that is spread over several
    /// devices reduce their results together, so none answers long before the last.
    pub(super) fn ask_all(&self, ranks: u32) -> io::Result<()> {
        self.unanswered.store(ranks, Ordering::SeqCst);
        self.sent.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.sent, i32::MAX)?;
        loop {
            match self.unanswered.load(Ordering::SeqCst) {
                0 => return Ok(()),
                left => futex::wait(&self.unanswered, left)?,
            }
        }
    }

    /// Waits for the message after number `seen` and returns its number; `None` at the end.
    pub(super) fn next(&self, seen: u32) -> io::Result<Option<u32>> {
        loop {
            if self.ended.load(Ordering::SeqCst) {
                return Ok(None);
            }
            let sent = self.sent.load(Ordering::SeqCst);
            if sent != seen {
                return Ok(Some(sent));
            }
            futex::wait(&self.sent, seen)?;
        }
    }

    /// Answers the message. Only the last answer wakes the sender.
    pub(super) fn answer(&self) -> io::Result<()> {
        match self.unanswered.fetch_sub(1, Ordering::SeqCst) {
            1 => futex::wake(&self.unanswered, 1),
            _ => Ok(()),
        }
    }

    /// Ends the ranks. The number changes with the flag, so that a rank about to sleep does not.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.sent.fetch_add(1, Ordering::SeqCst);
        // A wakeup of a word of this process has no way to fail.
        let _ = futex::wake(&self.sent, i32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_answers_every_message() {
        let broadcast = Broadcast::default();
        let answered = std::thread::scope(|scope| {
            let rank = || {
                let (mut seen, mut answered) = (0, 0);
                while let Some(number) = broadcast.next(seen).expect("a wait") {
                    seen = number;
                    answered += 1;
                    broadcast.answer().expect("an answer");
                }
                answered
            };
            let ranks: Vec<_> = (0..3).map(|_| scope.spawn(rank)).collect();
            for _ in 0..100 {
                broadcast.ask_all(3).expect("answers");
            }
            broadcast.end();
            ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect::<Vec<_>>()
        });
        assert_eq!(answered, [100; 3]);
    }
}
