//! Whose turn it is: the protocol, without a line about QEMU.

use crate::{DELAYS, GREETING, JITTER, LATE, OFF, TURNS, delay};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long the main loop waits for vCPUs that never rest before it goes on all the same: it must, or a guest that spins while it
/// waits for a device would hang. A clock that then goes wrong needs a vCPU to halt in that very moment.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a waiting main loop asks whether it is to shut down, which nobody signals.
const ASK: Duration = Duration::from_millis(20);

/// Who does what now.
#[derive(Debug, Default)]
struct Now {
    /// The vCPUs' thread has slept at least once: before that there is nothing to take turns with.
    began: bool,
    /// It sleeps, or wants to return from its sleep.
    cpus_rest: bool,
    /// The main loop is between two polls.
    main_works: bool,
    /// State of the delays.
    jitter: Option<u64>,
}

/// The turnstile.
pub(crate) struct Turns {
    on: bool,
    now: Mutex<Now>,
    changed: Condvar,
}

impl Turns {
    /// The process's one.
    pub(crate) fn get() -> &'static Turns {
        static ONE: OnceLock<Turns> = OnceLock::new();
        ONE.get_or_init(|| {
            eprintln!("{GREETING}");
            let jitter: Option<u64> = std::env::var(JITTER).ok().and_then(|seed| seed.parse().ok());
            if let Some(seed) = jitter {
                eprintln!("{DELAYS} {seed}");
            }
            let on = std::env::var(TURNS).as_deref() != Ok("off");
            if !on {
                eprintln!("{OFF}");
            }
            Turns::new(on, jitter)
        })
    }

    fn new(on: bool, jitter: Option<u64>) -> Self {
        Turns { on, now: Mutex::new(Now { jitter, ..Now::default() }), changed: Condvar::new() }
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut Now)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// The main loop polls: the vCPUs may run. It goes on when they rest, or when `hurry` says that they may not come to rest.
    pub(crate) fn around_poll<T>(&self, poll: impl FnOnce() -> T, hurry: impl Fn() -> bool) -> T {
        self.set(|now| now.main_works = false);
        let polled = poll();
        let wait = self.lock().jitter.as_mut().map(delay);
        if let Some(wait) = wait {
            std::thread::sleep(wait);
        }
        let begun = Instant::now();
        let mut now = self.lock();
        while self.on && now.began && !now.cpus_rest && !hurry() && begun.elapsed() < PATIENCE {
            now = self.changed.wait_timeout(now, ASK).unwrap_or_else(PoisonError::into_inner).0;
        }
        if begun.elapsed() >= PATIENCE && now.began && !now.cpus_rest && !hurry() {
            eprintln!("{LATE}");
        }
        now.main_works = true;
        polled
    }

    /// The main loop waits for the vCPUs (`pause_all_vcpus`, `run_on_cpu`): they may run meanwhile.
    pub(crate) fn around_main_wait<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.set(|now| now.main_works = false);
        let waited = wait();
        self.set(|now| now.main_works = true);
        waited
    }

    /// The vCPUs rest, and go on when the main loop polls. `unlock` and `lock` are of the mutex that `wait` returns with: the main
    /// loop needs it to finish its turn. A condition's waiter must expect to be woken for nothing, so giving the mutex away
    /// once more is within its contract.
    pub(crate) fn around_idle<T, U>(
        &self,
        wait: impl FnOnce() -> T,
        unlock: impl Fn() -> U,
        lock: impl Fn() -> U,
    ) -> T {
        self.set(|now| (now.began, now.cpus_rest) = (true, true));
        let waited = wait();
        let mut now = self.lock();
        while self.on && now.main_works {
            unlock();
            now = self.changed.wait_while(now, |now| now.main_works).unwrap_or_else(PoisonError::into_inner);
            // The mutex comes before this lock, as in every other place.
            drop(now);
            lock();
            now = self.lock();
        }
        now.cpus_rest = false;
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// Two threads as QEMU has them: the vCPUs run and rest, the main loop works between its polls. Returns how often work and
    /// running met.
    fn meetings(on: bool) -> u32 {
        let turns = Turns::new(on, None);
        let running = AtomicBool::new(false);
        let over = AtomicBool::new(false);
        let met = AtomicU32::new(0);
        let big = Mutex::new(());
        let nap = || std::thread::sleep(Duration::from_micros(20));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..500 {
                    // The mutex stands for QEMU's big lock; held on return, as pthread_cond_wait leaves it.
                    let held = std::cell::Cell::new(None);
                    let take = || held.set(Some(big.lock().expect("not poisoned")));
                    turns.around_idle(|| (nap(), take()).1, || drop(held.take()), take);
                    running.store(true, Ordering::SeqCst);
                    drop(held.take());
                    nap();
                    running.store(false, Ordering::SeqCst);
                }
                over.store(true, Ordering::SeqCst);
                turns.set(|now| now.cpus_rest = true);
            });
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    turns.around_poll(nap, || false);
                    let _held = big.lock().expect("not poisoned");
                    for _ in 0..2 {
                        met.fetch_add(u32::from(running.load(Ordering::SeqCst)), Ordering::SeqCst);
                        nap();
                    }
                }
                turns.set(|now| now.main_works = false);
            });
        });
        met.into_inner()
    }

    #[test]
    fn work_and_running_never_meet() {
        assert_eq!(meetings(true), 0);
        assert!(meetings(false) > 0, "without turns they meet, or the test shows nothing");
    }

    #[test]
    fn a_shutdown_is_not_kept_waiting_by_cpus_that_spin() {
        let turns = Turns::new(true, None);
        turns.set(|now| now.began = true);
        let begun = Instant::now();
        turns.around_poll(|| (), || true);
        assert!(begun.elapsed() < PATIENCE);
    }
}
