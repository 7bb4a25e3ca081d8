//! The futex calls that models need: FUTEX_WAIT and FUTEX_WAKE on words of this process (futex(2)). Neither nix nor the
//! standard library offers them, and the standard library's own locks would hide which wakeups a model makes.

#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use std::io;
use std::ptr;
use std::sync::atomic::AtomicU32;

/// Sleeps if the word still has the value `seen`. Returns after a wakeup, but also at once if the word has changed
/// (EAGAIN), after a signal (EINTR), or for no reason: the caller must look at the word again.
pub(crate) fn wait(word: &AtomicU32, seen: u32) -> io::Result<()> {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let forever = ptr::null::<libc::timespec>();
    // SAFETY: the word lives as long as this call, the kernel reads 4 aligned bytes of it atomically, and a null timeout
    // means none. FUTEX_WAIT looks at no further argument.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, seen, forever) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Wakes up to `count` threads that wait on the word.
pub(crate) fn wake(word: &AtomicU32, count: i32) -> io::Result<()> {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: FUTEX_WAKE uses the address as a key and does not follow it; it looks at no further argument.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, count) };
    Errno::result(result).map(drop).map_err(io::Error::from)
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
