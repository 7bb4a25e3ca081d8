//! Who is there: tasks begin together when all have come, and the run is over when all have ended, one has failed, or time
//! is up.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// When the tasks began and when their time is up, in nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// The beginning, from which timers count.
    pub(super) start: u64,
    /// Nothing counts afterwards.
    pub(super) end: u64,
}

#[derive(Debug, Default)]
struct State {
    came: usize,
    left: usize,
    failed: bool,
    begun: Option<Span>,
    over: bool,
}

/// The roll of a run.
#[derive(Debug)]
pub(super) struct Roll {
    /// How many tasks there are.
    tasks: usize,
    state: Mutex<State>,
    /// For the tasks.
    begun: Condvar,
    /// For who waits for the tasks.
    changed: Condvar,
}

impl Roll {
    pub(super) fn new(tasks: usize) -> Self {
        Self { tasks, state: Mutex::default(), begun: Condvar::new(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task has come. Waits for the beginning; `None` if there will be none.
    pub(super) fn come(&self) -> Option<Span> {
        let mut state = self.state();
        state.came += 1;
        // Who waits for the tasks is woken when it matters only: it is no part of the workload.
        if state.came == self.tasks {
            self.changed.notify_all();
        }
        while state.begun.is_none() && !state.over {
            state = self.begun.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.begun.filter(|_| !state.over)
    }

    /// A task ends, and why it has failed does not matter here.
    fn leave(&self, failed: bool) {
        let mut state = self.state();
        state.left += 1;
        state.failed |= failed;
        if failed || state.left == self.tasks {
            self.changed.notify_all();
        }
    }

    /// Waits until all tasks have come.
    pub(super) fn until_all_came(&self) {
        let waiting = |state: &mut State| state.came < self.tasks && !state.failed;
        drop(self.changed.wait_while(self.state(), waiting));
    }

    /// Begins.
    pub(super) fn begin(&self, span: Span) {
        self.state().begun = Some(span);
        self.begun.notify_all();
    }

    /// Waits until all tasks have ended or one has failed, but not longer than `longest`.
    pub(super) fn until_all_left(&self, longest: Duration) {
        let going_on = |state: &mut State| state.left < self.tasks && !state.failed;
        drop(self.changed.wait_timeout_while(self.state(), longest, going_on));
    }

    /// Ends the run.
    pub(super) fn end(&self) {
        self.state().over = true;
        self.begun.notify_all();
    }
}

/// Says that a task has left when it goes out of scope: failed, unless told otherwise.
pub(super) struct Leaving<'a> {
    roll: &'a Roll,
    failed: bool,
}

impl<'a> Leaving<'a> {
    pub(super) fn new(roll: &'a Roll) -> Self {
        Self { roll, failed: true }
    }

    /// The task has done what it should.
    pub(super) fn well(mut self) {
        self.failed = false;
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.roll.leave(self.failed);
    }
}
