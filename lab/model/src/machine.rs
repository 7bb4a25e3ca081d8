//! What the machine did while a model was measured: busy time by CPU and wakeups by where they landed.

use crate::wakeups::{self, Wakeups};
use crate::{ModelError, schedstat, trying};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use topolab_wire::ModelOrder;

/// Values by CPU number.
pub(crate) type ByCpu = BTreeMap<u32, u64>;

/// A measurement under way.
pub(crate) struct Watch {
    /// Both reads of a large machine take long, each CPU's line at its place in them: busy time is counted from the start of one to
    /// the start of the other.
    read_at: Instant,
    busy_before: ByCpu,
    began: Instant,
}

impl Watch {
    /// Starts to count. Needs the busy module, so it is no part of what a model's own code does.
    pub(crate) fn start() -> Result<Self, ModelError> {
        trying("count wakeups", wakeups::start())?;
        let read_at = Instant::now();
        let busy_before = trying("/proc/schedstat", schedstat::busy_ns())?;
        Ok(Self { read_at, busy_before, began: Instant::now() })
    }

    /// When it started.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Ends it.
    pub(crate) fn stop(self, order: &ModelOrder) -> Result<Machine, ModelError> {
        let elapsed = self.read_at.elapsed();
        let busy_after = trying("/proc/schedstat", schedstat::busy_ns())?;
        let wakeups = trying("count wakeups", wakeups::stop(&order.llcs, &order.nodes))?;
        let since = |(cpu, after): (&u32, &u64)| (*cpu, after - self.busy_before.get(cpu).unwrap_or(&0));
        Ok(Machine { elapsed, busy: busy_after.iter().map(since).collect(), wakeups })
    }
}

/// What a measurement found.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    /// What busy time was counted in: a little longer than a model's window, by the time that its main thread took to wake.
    pub(crate) elapsed: Duration,
    /// Nanoseconds that tasks ran, by CPU.
    pub(crate) busy: ByCpu,
    /// The wakeups of the model's threads.
    pub(crate) wakeups: Wakeups,
}
