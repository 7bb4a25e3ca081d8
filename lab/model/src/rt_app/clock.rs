//! The monotonic clock as plain nanoseconds, because timers need points in time that the kernel understands.

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use std::io;
use std::time::Duration;

const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Now.
pub(super) fn now() -> io::Result<u64> {
    let duration = Duration::from(clock_gettime(CLOCK)?);
    Ok(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Sleeps until `at`; not at all if that has passed.
pub(super) fn sleep_until(at: u64) -> io::Result<()> {
    let at = TimeSpec::from_duration(Duration::from_nanos(at));
    loop {
        match clock_nanosleep(CLOCK, ClockNanosleepFlags::TIMER_ABSTIME, &at) {
            Err(Errno::EINTR) => {}
            done => return Ok(done.map(drop)?),
        }
    }
}
