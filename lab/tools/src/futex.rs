//! The two futex system calls that std does not offer.
#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc::{FUTEX_PRIVATE_FLAG, FUTEX_WAIT, FUTEX_WAKE, SYS_futex, c_int, syscall, timespec};
use std::ptr;
use std::sync::atomic::AtomicU32;

/// How the kernel finds a futex: by its address in this process, or by the page behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// `FUTEX_PRIVATE_FLAG` is set.
    Private,
    /// It is not, as between processes.
    Shared,
}

impl Scope {
    fn flag(self) -> c_int {
        match self {
            Self::Private => FUTEX_PRIVATE_FLAG,
            Self::Shared => 0,
        }
    }
}

/// Sleeps while the word holds `expected`. Returning says nothing of the word. `EAGAIN`: it held something else; `EINTR`: a
/// signal came.
pub(crate) fn wait(word: &AtomicU32, expected: u32, scope: Scope) -> Result<(), Errno> {
    // SAFETY: the word is valid for the whole call, the kernel only reads it; without a timeout it reads nothing else.
    let result =
        unsafe { syscall(SYS_futex, word.as_ptr(), FUTEX_WAIT | scope.flag(), expected, ptr::null::<timespec>()) };
    Errno::result(result).map(drop)
}

/// Wakes one waiter; returns whether there was one.
pub(crate) fn wake_one(word: &AtomicU32, scope: Scope) -> Result<bool, Errno> {
    // SAFETY: the kernel takes the address as a name and does not write to it.
    let result = unsafe { syscall(SYS_futex, word.as_ptr(), FUTEX_WAKE | scope.flag(), 1) };
    Errno::result(result).map(|woken| woken > 0)
}
