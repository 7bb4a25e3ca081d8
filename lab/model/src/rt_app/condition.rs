//! A condition variable as the C library makes it: waiters sleep on one futex word of their group, a signal wakes one of
//! the oldest group and a broadcast all with one call (glibc's nptl/pthread_cond_wait.c, with its two groups). A profile has no
//! predicate to check again, so there must be no wakeup without a signal, and none may be stolen by a thread that came later.

use super::clock;
use super::mutex::Mutex;
use crate::futex;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex as Guarded, MutexGuard, PoisonError};

/// Instead of a number of signals: nobody waits any more.
const ENDED: u32 = u32::MAX;

/// Those who began to wait before a signal that was not for those before them.
#[derive(Debug, Default)]
struct Group {
    /// Signals that nobody has taken yet.
    signals: AtomicU32,
    /// Signals that were taken.
    taken: AtomicUsize,
    /// When each signal was given.
    given: Guarded<Vec<u64>>,
}

impl Group {
    /// Sleeps until a signal can be taken, and says when it was given; `None` at the end.
    fn take(&self) -> io::Result<Option<u64>> {
        loop {
            match self.signals.load(SeqCst) {
                ENDED => return Ok(None),
                0 => futex::wait(&self.signals, 0)?,
                some if self.signals.compare_exchange(some, some - 1, SeqCst, SeqCst).is_ok() => {
                    let nth = self.taken.fetch_add(1, SeqCst);
                    return Ok(held(&self.given).get(nth).copied());
                }
                _ => {}
            }
        }
    }

    fn give(&self, signals: u32, now: u64) -> io::Result<()> {
        held(&self.given).extend((0..signals).map(|_| now));
        let add = |some: u32| (some != ENDED).then_some(some + signals);
        match self.signals.fetch_update(SeqCst, SeqCst, add) {
            Ok(_) if signals > 0 => futex::wake(&self.signals, if signals == 1 { 1 } else { i32::MAX }),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn end(&self) -> io::Result<()> {
        self.signals.store(ENDED, SeqCst);
        futex::wake(&self.signals, i32::MAX)
    }
}

#[derive(Debug, Default)]
struct Groups {
    /// Who is signalled next, and how many of them were not yet.
    old: (Arc<Group>, u32),
    /// Who comes now, and how many.
    new: (Arc<Group>, u32),
    ended: bool,
}

/// A condition variable.
#[derive(Debug, Default)]
pub(super) struct Condition(Guarded<Groups>);

impl Condition {
    /// Unlocks the mutex and waits for a signal, in one step for who locks that mutex, and locks it again. Says how long ago
    /// the signal was given when this thread ran; `None` at the end.
    pub(super) fn wait(&self, mutex: &Mutex) -> io::Result<Option<u64>> {
        let group = {
            let mut groups = held(&self.0);
            if groups.ended {
                return Ok(None);
            }
            groups.new.1 += 1;
            groups.new.0.clone()
        };
        mutex.unlock()?;
        let given = group.take()?;
        let running = clock::now()?;
        mutex.lock()?;
        Ok(given.map(|given| running.saturating_sub(given)))
    }

    /// Wakes one.
    pub(super) fn signal(&self) -> io::Result<()> {
        let group = {
            let mut groups = held(&self.0);
            if groups.old.1 == 0 {
                groups.old = std::mem::take(&mut groups.new);
            }
            if groups.old.1 == 0 || groups.ended {
                return Ok(());
            }
            groups.old.1 -= 1;
            groups.old.0.clone()
        };
        group.give(1, clock::now()?)
    }

    /// Wakes all.
    pub(super) fn broadcast(&self) -> io::Result<()> {
        let (old, new) = {
            let mut groups = held(&self.0);
            if groups.ended {
                return Ok(());
            }
            (std::mem::take(&mut groups.old), std::mem::take(&mut groups.new))
        };
        let now = clock::now()?;
        old.0.give(old.1, now)?;
        new.0.give(new.1, now)
    }

    /// Releases everyone who waits, now and later.
    pub(super) fn end(&self) -> io::Result<()> {
        let (old, new) = {
            let mut groups = held(&self.0);
            groups.ended = true;
            (groups.old.0.clone(), groups.new.0.clone())
        };
        old.end()?;
        new.end()
    }
}

/// Holds a lock that is never held across anything that can fail or wait.
fn held<T>(lock: &Guarded<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Lets `n` threads wait, each of which says how it was woken; `then` runs when all of them wait.
    fn waiters(n: u32, condition: &Condition, then: impl FnOnce(&dyn Fn() -> usize)) -> Vec<Option<u64>> {
        let (mutex, woken) = (Mutex::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let wait = || {
                mutex.lock().expect("a lock");
                let given = condition.wait(&mutex).expect("a wait");
                woken.fetch_add(1, SeqCst);
                mutex.unlock().expect("an unlock");
                given
            };
            let threads: Vec<_> = (0..n).map(|_| scope.spawn(wait)).collect();
            while held(&condition.0).new.1 < n {
                std::thread::yield_now();
            }
            then(&|| {
                std::thread::sleep(Duration::from_millis(20));
                woken.load(SeqCst)
            });
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    #[test]
    fn a_signal_wakes_one_and_a_broadcast_the_rest() {
        let condition = Condition::default();
        let woken = waiters(5, &condition, |woken| {
            for n in 1..=2 {
                condition.signal().expect("a signal");
                assert_eq!(woken(), n);
            }
            condition.broadcast().expect("a broadcast");
            assert_eq!(woken(), 5);
        });
        assert!(woken.iter().all(Option::is_some));
    }

    #[test]
    fn a_signal_that_nobody_waits_for_is_lost() {
        let condition = Condition::default();
        condition.signal().expect("a signal");
        condition.broadcast().expect("a broadcast");
        let woken = waiters(1, &condition, |woken| {
            assert_eq!(woken(), 0);
            condition.signal().expect("a signal");
        });
        assert!(woken[0].is_some());
    }

    #[test]
    fn an_end_releases_who_waits_and_who_comes_later() {
        let condition = Condition::default();
        let woken = waiters(3, &condition, |_| {
            condition.signal().expect("a signal");
            condition.end().expect("an end");
        });
        assert!(woken.iter().filter(|given| given.is_none()).count() >= 2);
        assert_eq!(condition.wait(&Mutex::default()).expect("at once"), None);
        condition.signal().expect("no effect");
        condition.broadcast().expect("no effect");
    }
}
