//! A mutex as the C library makes it: one futex word, no call without contention (Drepper, "Futexes Are Tricky", the
//! second mutex; glibc's lll_lock is the same). Unlike the standard library's, it may be locked in one event and unlocked in
//! another, by whom the profile says, and it can be ended under those who wait.

use crate::futex;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

const FREE: u32 = 0;
const LOCKED: u32 = 1;
/// Locked, and somebody may wait.
const CONTENDED: u32 = 2;
/// Nobody waits any more, and everybody gets it.
const ENDED: u32 = 3;

/// A mutex.
#[derive(Debug, Default)]
pub(super) struct Mutex(AtomicU32);

impl Mutex {
    /// Locks it.
    pub(super) fn lock(&self) -> io::Result<()> {
        if self.0.compare_exchange(FREE, LOCKED, SeqCst, SeqCst).is_ok() {
            return Ok(());
        }
        loop {
            let contended = |state| (state != ENDED).then_some(CONTENDED);
            match self.0.fetch_update(SeqCst, SeqCst, contended) {
                Ok(FREE) | Err(_) => return Ok(()),
                Ok(_) => futex::wait(&self.0, CONTENDED)?,
            }
        }
    }

    /// Unlocks it, whoever has locked it.
    pub(super) fn unlock(&self) -> io::Result<()> {
        let free = |state| (state != ENDED).then_some(FREE);
        match self.0.fetch_update(SeqCst, SeqCst, free) {
            Ok(CONTENDED) => futex::wake(&self.0, 1),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Releases everyone who waits, now and later.
    pub(super) fn end(&self) -> io::Result<()> {
        self.0.store(ENDED, SeqCst);
        futex::wake(&self.0, i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    #[test]
    fn one_at_a_time() {
        let (mutex, inside) = (Mutex::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        mutex.lock().expect("a lock");
                        // Not atomic as a whole: two at a time would lose some.
                        inside.store(inside.load(SeqCst) + 1, SeqCst);
                        mutex.unlock().expect("an unlock");
                    }
                });
            }
        });
        assert_eq!(inside.load(SeqCst), 8000);
        assert_eq!(mutex.0.load(SeqCst), FREE);
    }

    #[test]
    fn an_end_releases_who_waits_and_who_comes_later() {
        let mutex = Mutex::default();
        mutex.lock().expect("a lock");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| mutex.lock());
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished());
            mutex.end().expect("a wakeup");
        });
        mutex.unlock().expect("no effect");
        mutex.lock().expect("at once");
        mutex.lock().expect("at once");
    }
}
