//! The futex calls that models and tools need: FUTEX_WAIT and FUTEX_WAKE (futex(2)). Neither nix nor the
//! standard library offers them, and the standard library's own locks would hide which wakeups a model makes.

#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use std::io;
use std::ptr;
use std::sync::atomic::AtomicU32;

/// How the kernel finds a futex: by its address in this process, or by the page behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// `FUTEX_PRIVATE_FLAG` is set.
    Private,
    /// It is not, as between processes.
    Shared,
}

impl Scope {
    fn flag(self) -> libc::c_int {
        match self {
            Self::Private => libc::FUTEX_PRIVATE_FLAG,
            Self::Shared => 0,
        }
    }
}

/// Sleeps while the word has the value `seen`. Returning says nothing of the word. `EAGAIN`: it had another one; `EINTR`: a signal
/// came.
pub fn futex_wait(word: &AtomicU32, seen: u32, scope: Scope) -> Result<(), Errno> {
    let forever = ptr::null::<libc::timespec>();
    // SAFETY: the word lives as long as this call, the kernel reads 4 aligned bytes of it atomically, and a null timeout
    // means none. FUTEX_WAIT looks at no further argument.
    let result =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | scope.flag(), seen, forever) };
    Errno::result(result).map(drop)
}

/// Wakes up to `count` waiters; returns how many there were.
pub fn futex_wake(word: &AtomicU32, count: i32, scope: Scope) -> Result<usize, Errno> {
    // SAFETY: FUTEX_WAKE uses the address as a key and does not follow it; it looks at no further argument.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | scope.flag(), count) };
    Errno::result(result).map(|woken| usize::try_from(woken).unwrap_or(0))
}

/// Sleeps if the word still has the value `seen`. Returns after a wakeup, but also at once if the word has changed
/// (EAGAIN), after a signal (EINTR), or for no reason: the caller must look at the word again.
pub(crate) fn wait(word: &AtomicU32, seen: u32) -> io::Result<()> {
    match futex_wait(word, seen, Scope::Private) {
        Ok(()) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Wakes up to `count` threads that wait on the word.
pub(crate) fn wake(word: &AtomicU32, count: i32) -> io::Result<()> {
    futex_wake(word, count, Scope::Private).map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_word_that_changed_is_not_waited_for() {
        assert!(wait(&AtomicU32::new(1), 0).is_ok());
    }

    #[test]
    fn a_wakeup_ends_a_wait() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(Ordering::SeqCst) == 0 {
                    wait(&word, 0).expect("a wait");
                }
            });
            word.store(1, Ordering::SeqCst);
            wake(&word, 1).expect("a wakeup");
        });
    }
}
