//! `futex-pair`: two tasks that pass tokens through two futex words; `pipe-pair` with nothing else changed.
//!
//! Its parameters are those of `pipe-pair`, so that both can be run in step. What differs is the kernel's part: a futex
//! wakeup is never synchronous (kernel/futex/waitwake.c, `futex_wake` → `wake_up_q` without wake flags), a pipe's is. The
//! invariant `no_wakeup_was_sync` holds the kernel to that: if it breaks, the comparison of both models means nothing.

use crate::ModelError;
use crate::futex;
use crate::pair::{self, End};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use topolab_wire::{ModelOrder, ModelRecord};

/// How many tokens lie ready for a task.
type Ready = Arc<AtomicU32>;

/// What a task adds to and takes from.
struct Words {
    out: Ready,
    into: Ready,
}

impl End for Words {
    fn give(&mut self) -> io::Result<()> {
        // Only a task that found no token can be asleep, as schbench's fpost() has it: no call without a sleeper.
        match self.out.fetch_add(1, Ordering::SeqCst) {
            0 => futex::wake(&self.out, 1),
            _ => Ok(()),
        }
    }

    fn take(&mut self) -> io::Result<()> {
        while self.into.load(Ordering::SeqCst) == 0 {
            futex::wait(&self.into, 0)?;
        }
        // No other task takes from this word.
        self.into.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

fn open() -> Result<(Words, Words), ModelError> {
    let (there, back) = (Ready::default(), Ready::default());
    Ok((Words { out: there.clone(), into: back.clone() }, Words { out: back, into: there }))
}

/// Runs the workload once.
pub(crate) fn run(order: &ModelOrder) -> Result<ModelRecord, ModelError> {
    let (mut report, machine) = pair::run(order, open)?;
    let (sync, other) = (machine.wakeups.sync.total(), machine.wakeups.other.total());
    report.invariant("no_wakeup_was_sync", sync == 0, format!("{sync} of {} wakeups were synchronous", sync + other));
    Ok(report.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::{Shape, pass};

    #[test]
    fn the_tokens_go_round() {
        for tokens in [1, 2] {
            pass(Shape { loops: 1000, tokens, work_ns: 0 }, open().expect("two words")).expect("all tokens arrive");
        }
    }
}
