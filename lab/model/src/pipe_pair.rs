//! `pipe-pair`: two tasks that pass tokens through two pipes, the twin of `perf bench sched pipe`.
//!
//! | here | perf |
//! |---|---|
//! | `loops` | `-l`, `--loop` |
//! | threads of one process | `-T`, `--threaded` (perf's default is two processes) |
//! | `tokens` | none: 2 in Linux 7.2, 1 in older versions |
//! | `work_us` | none: 0 |
//!
//! A write to a pipe wakes its reader synchronously (fs/pipe.c, `wake_up_interruptible_sync_poll`).

use crate::pair::{self, End};
use crate::{ModelError, trying};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use std::fs::File;
use std::io::{self, Read, Write};
use topolab_wire::{ModelOrder, ModelRecord};

/// Bytes of a token: perf writes an int.
const TOKEN: usize = 4;

/// What a task writes to and reads from.
struct Pipes {
    out: File,
    into: File,
}

impl End for Pipes {
    fn give(&mut self) -> io::Result<()> {
        self.out.write_all(&[0; TOKEN])
    }

    fn take(&mut self) -> io::Result<()> {
        self.into.read_exact(&mut [0; TOKEN])
    }
}

fn open() -> Result<(Pipes, Pipes), ModelError> {
    let pipe = || trying("pipe", pipe2(OFlag::O_CLOEXEC)).map(|(read, write)| (File::from(read), File::from(write)));
    let ((near_into, far_out), (far_into, near_out)) = (pipe()?, pipe()?);
    Ok((Pipes { out: near_out, into: near_into }, Pipes { out: far_out, into: far_into }))
}

/// Runs the workload once.
pub(crate) fn run(order: &ModelOrder) -> Result<ModelRecord, ModelError> {
    let (report, _machine) = pair::run(order, open)?;
    Ok(report.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::{Shape, pass};

    #[test]
    fn the_tokens_go_round() {
        for tokens in [1, 2] {
            pass(Shape { loops: 100, tokens, work_ns: 0 }, open().expect("two pipes")).expect("all tokens arrive");
        }
    }
}
