//! `futex-pingpong`: two threads pass a token through two futex words. One op is a round trip: two wakeups.

use crate::ToolError;
use crate::arguments::Arguments;
use crate::error::trying;
use nix::errno::Errno;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::Builder;
use std::time::Instant;
use topolab_model::{Scope, futex_wait, futex_wake};

/// Nothing is in the word.
const EMPTY: u32 = 0;
/// The token is in the word.
const TOKEN: u32 = 1;
/// The other side has failed.
const BROKEN: u32 = 2;

/// A word by itself on its cache line (128 bytes on POWER): two words on one would bounce between CPUs for another reason.
#[repr(align(128))]
struct Word(AtomicU32);

/// What one side did.
#[derive(Debug, Default)]
struct Counts {
    /// Waits that slept until a wake.
    waits: u64,
    /// Wakes.
    wakes: u64,
    /// Wakes that found a waiter.
    found: u64,
}

/// One side: the word it waits on, and the word it passes the token to.
struct Side<'a> {
    own: &'a Word,
    other: &'a Word,
    scope: Scope,
    counts: Counts,
}

impl Side<'_> {
    /// Waits for the token, and takes it.
    fn take(&mut self) -> Result<(), ToolError> {
        loop {
            match self.own.0.swap(EMPTY, Ordering::Acquire) {
                TOKEN => return Ok(()),
                EMPTY => {}
                _ => return Err(ToolError::NothingMeasured("the other thread failed".into())),
            }
            match futex_wait(&self.own.0, EMPTY, self.scope) {
                Ok(()) => self.counts.waits += 1,
                // The token came in between, or a signal did.
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(e) => return trying("FUTEX_WAIT", Err(e)),
            }
        }
    }

    /// Passes the token on.
    fn pass(&mut self) -> Result<(), ToolError> {
        self.other.0.store(TOKEN, Ordering::Release);
        self.counts.wakes += 1;
        self.counts.found += trying("FUTEX_WAKE", futex_wake(&self.other.0, 1, self.scope))? as u64;
        Ok(())
    }

    /// Goes round once uncounted, for both threads to be there, then `loops` times. Returns what was counted, and when.
    fn rounds(
        mut self,
        loops: u64,
        round: impl Fn(&mut Self) -> Result<(), ToolError>,
    ) -> Result<(Counts, Instant), ToolError> {
        let result = (|| {
            round(&mut self)?;
            self.counts = Counts::default();
            let began = Instant::now();
            (0..loops).try_for_each(|_| round(&mut self))?;
            Ok(began)
        })();
        if result.is_err() {
            self.other.0.store(BROKEN, Ordering::Release);
            let _ = futex_wake(&self.other.0, 1, self.scope);
        }
        result.map(|began| (self.counts, began))
    }
}

/// Runs the ping-pong once.
pub(crate) fn run(words: &[String]) -> Result<Value, ToolError> {
    let mut given = Arguments::new(words)?;
    let loops = given.number("loops", 1..=1_000_000_000_000, None)?;
    let scope = if given.yes_or_no("shared", false)? { Scope::Shared } else { Scope::Private };
    given.finish()?;
    let (ping, pong) = (Word(AtomicU32::new(EMPTY)), Word(AtomicU32::new(EMPTY)));
    let near = Side { own: &pong, other: &ping, scope, counts: Counts::default() };
    let far = Side { own: &ping, other: &pong, scope, counts: Counts::default() };
    let (near, far, elapsed) = std::thread::scope(|scope| {
        let answering = Builder::new().name("pong".into()).spawn_scoped(scope, move || {
            far.rounds(loops, |side| {
                side.take()?;
                side.pass()
            })
        });
        let answering = trying("start a thread", answering)?;
        let near = near.rounds(loops, |side| {
            side.pass()?;
            side.take()
        });
        let elapsed = near.as_ref().map(|(_, began)| began.elapsed()).unwrap_or_default();
        let far = answering.join().map_err(|_| ToolError::Panicked)?;
        Ok((near?.0, far?.0, elapsed))
    })?;
    let seconds = elapsed.as_secs_f64();
    Ok(json!({
        "tool": "futex-pingpong",
        "loops": loops,
        "usecs_per_op": seconds * 1e6 / loops as f64,
        "ops_per_s": loops as f64 / seconds,
        "waits": near.waits + far.waits,
        "wakes": near.wakes + far.wakes,
        "wakes_that_found_a_waiter": near.found + far.found,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(line: &str) -> Result<Value, ToolError> {
        run(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn every_round_passes_the_token_twice() {
        for shared in ["yes", "no"] {
            let record = record(&format!("--loops 1000 --shared {shared}")).unwrap();
            let number = |name: &str| record[name].as_f64().unwrap();
            assert_eq!((number("loops"), number("wakes")), (1000.0, 2000.0));
            assert!(number("wakes_that_found_a_waiter") <= 2000.0 && number("waits") <= 2001.0, "{record}");
            assert!((number("usecs_per_op") * number("ops_per_s") / 1e6 - 1.0).abs() < 1e-9, "{record}");
        }
    }

    #[test]
    fn a_failed_side_does_not_leave_the_other_waiting() {
        let (a, b) = (Word(AtomicU32::new(EMPTY)), Word(AtomicU32::new(EMPTY)));
        let side = |own, other| Side { own, other, scope: Scope::Private, counts: Counts::default() };
        let failed = side(&a, &b).rounds(1, |_| Err(ToolError::Panicked));
        assert!(matches!(failed, Err(ToolError::Panicked)));
        assert!(side(&b, &a).rounds(1, Side::take).is_err());
    }

    #[test]
    fn loops_are_needed() {
        assert!(matches!(record("--shared no"), Err(ToolError::MissingFlag("loops"))));
        assert!(matches!(record("--loops 0"), Err(ToolError::BadValue { flag: "loops", .. })));
    }
}
