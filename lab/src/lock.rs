//! One lab at a time: a file's lock that a waiter can be interrupted in.

use crate::cancel::Cancel;
use crate::fault::{Fault, Outcome, Trying};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// How often a waiter looks whether the lock is free, or whether it should give up.
const LOOK: Duration = Duration::from_millis(100);

/// A held lock; dropping it, or the end of the process, frees it.
pub(crate) type Held = Flock<File>;

/// Waits for the file's lock; Ctrl-C ends the wait.
pub(crate) fn exclusive(path: &Path, cancel: &Cancel) -> Outcome<Held> {
    let mut file = File::create(path).trying(path.display())?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => return Ok(held),
            Err((again, Errno::EWOULDBLOCK | Errno::EINTR)) => file = again,
            Err((_, e)) => return Err(Fault::lab(format!("lock {}: {e}", path.display()))),
        }
        cancel.check()?;
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultKind;

    #[test]
    fn a_waiter_can_be_interrupted_and_a_freed_lock_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let cancel = Cancel::default();
        let held = exclusive(&path, &cancel).expect("free");
        cancel.request();
        assert_eq!(exclusive(&path, &cancel).expect_err("held").kind, FaultKind::Interrupted);
        drop(held);
        assert!(exclusive(&path, &cancel).is_ok());
    }
}
