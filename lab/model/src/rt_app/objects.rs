//! The kernel objects that the tasks of a profile share, and timers.

use super::condition::Condition;
use super::mutex::Mutex;
use super::profile::{Objects, TimerKind};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

/// All of them, by the profile's indices.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) mutexes: Vec<Mutex>,
    pub(super) conditions: Vec<Condition>,
    pub(super) barriers: Vec<Barrier>,
    pub(super) timers: Vec<Timer>,
}

impl Shared {
    pub(super) fn new(objects: &Objects) -> Self {
        Self {
            mutexes: objects.mutexes.iter().map(|_| Mutex::default()).collect(),
            conditions: objects.conditions.iter().map(|_| Condition::default()).collect(),
            barriers: objects.barriers.iter().map(|(_, users)| Barrier::new(*users)).collect(),
            timers: objects.timers.iter().map(Timer::new).collect(),
        }
    }

    /// Releases everyone who waits for any of them, now and later.
    pub(super) fn end(&self) {
        // A wakeup of a word of this process has no way to fail. Mutexes last: who is released from a condition locks one.
        for condition in &self.conditions {
            let _ = condition.end();
        }
        for barrier in &self.barriers {
            let _ = barrier.end();
        }
        for mutex in &self.mutexes {
            let _ = mutex.end();
        }
    }
}

/// A barrier of a mutex and a condition, as rt-app makes it. There, a waiter counts itself out when it runs again, so that
/// the last to come may pass the barrier once more before that; here it stands again when it opens, as the manual has it.
#[derive(Debug)]
pub(super) struct Barrier {
    mutex: Mutex,
    opened: Condition,
    /// Who must come before the last; written with the mutex held only.
    missing: AtomicUsize,
    others: usize,
}

impl Barrier {
    fn new(users: usize) -> Self {
        let others = users.saturating_sub(1);
        Self { mutex: Mutex::default(), opened: Condition::default(), missing: AtomicUsize::new(others), others }
    }

    /// Waits for all others. Says how long ago the last one came when this thread ran; `None` for the last one itself.
    pub(super) fn wait(&self) -> io::Result<Option<u64>> {
        self.mutex.lock()?;
        let woken = match self.missing.load(SeqCst) {
            0 => {
                self.missing.store(self.others, SeqCst);
                self.opened.broadcast()?;
                None
            }
            missing => {
                self.missing.store(missing - 1, SeqCst);
                self.opened.wait(&self.mutex)?
            }
        };
        self.mutex.unlock()?;
        Ok(woken)
    }

    fn end(&self) -> io::Result<()> {
        self.opened.end()?;
        self.mutex.end()
    }
}

/// A timer: the end of its last period.
#[derive(Debug)]
pub(super) struct Timer {
    /// 0 before its first period.
    end: AtomicU64,
    absolute: bool,
}

impl Timer {
    pub(super) fn new(kind: &TimerKind) -> Self {
        Self { end: AtomicU64::new(0), absolute: kind.absolute }
    }

    /// The end of the next period; the first begins at `first`.
    pub(super) fn next(&self, first: u64, period: u64) -> u64 {
        let from = |end| if end == 0 { first } else { end };
        let add = |end| Some(from(end) + period);
        from(self.end.fetch_update(SeqCst, SeqCst, add).unwrap_or(0)) + period
    }

    /// Says that a period had ended before somebody came to sleep: a relative timer goes on from `now`.
    pub(super) fn missed(&self, now: u64) {
        if !self.absolute {
            self.end.store(now, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_passes_a_barrier_before_all_have_come() {
        let (barrier, came) = (Barrier::new(3), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=500 {
                        came.fetch_add(1, SeqCst);
                        barrier.wait().expect("a wait");
                        assert!(came.load(SeqCst) >= 3 * round);
                    }
                });
            }
        });
        assert_eq!(came.load(SeqCst), 1500);
        assert_eq!(Barrier::new(1).wait().expect("alone"), None);
    }

    #[test]
    fn a_missed_period_moves_a_relative_timer_only() {
        for (absolute, after) in [(false, 1060), (true, 30)] {
            let timer = Timer::new(&TimerKind { name: "t".into(), absolute });
            assert_eq!((timer.next(1, 10), timer.next(1, 9)), (11, 20));
            timer.missed(1050);
            assert_eq!(timer.next(1, 10), after);
        }
    }
}
