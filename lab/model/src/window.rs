//! The measured time of a model that runs for a while and not for a number of loops.

use std::sync::OnceLock;
use std::time::Instant;

/// The end of the measured time, once it has begun. What completes later is not counted: rates are per window, and a long
/// queue that drains after it would flatter the kernel that made it.
#[derive(Default)]
pub(crate) struct Window(OnceLock<Instant>);

impl Window {
    /// Begins the measured time, which ends at `end`.
    pub(crate) fn open_until(&self, end: Instant) {
        let _ = self.0.set(end);
    }

    /// Whether what happens now counts.
    pub(crate) fn counts(&self) -> bool {
        self.0.get().is_some_and(|end| Instant::now() <= *end)
    }
}

/// Nanoseconds since `then`.
pub(crate) fn ns_since(then: Instant) -> u64 {
    u64::try_from(then.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
