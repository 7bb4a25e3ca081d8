//! The functions behind the turnstile: the next definition in the search order, which is libc's, and QEMU's word on whether it
//! is shutting down.

use libc::{c_char, c_int, c_void, nfds_t, pollfd, pthread_cond_t, pthread_mutex_t, sigset_t, timespec};
use std::sync::OnceLock;

type Ppoll = unsafe extern "C" fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
type CondWait = unsafe extern "C" fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
type Asked = unsafe extern "C" fn() -> c_int;

/// glibc's version of `pthread_cond_wait` that goes with today's `pthread_cond_t`; dlsym without a version may give the
/// one of 2002, with another layout (x86-64's alone has two).
const COND_VERSION: *const c_char = c"GLIBC_2.3.2".as_ptr();

fn next(name: *const c_char, version: *const c_char) -> *mut c_void {
    // SAFETY: both are NUL-terminated literals, or null for "any version".
    unsafe {
        let versioned =
            if version.is_null() { std::ptr::null_mut() } else { libc::dlvsym(libc::RTLD_NEXT, name, version) };
        if versioned.is_null() { libc::dlsym(libc::RTLD_NEXT, name) } else { versioned }
    }
}

/// libc's ppoll.
///
/// # Safety
/// As ppoll(2).
pub(crate) unsafe fn ppoll(fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
    static REAL: OnceLock<Option<Ppoll>> = OnceLock::new();
    // SAFETY: libc's ppoll has this type; a null pointer becomes None.
    let real = REAL.get_or_init(|| unsafe { std::mem::transmute(next(c"ppoll".as_ptr(), std::ptr::null())) });
    match real {
        // SAFETY: the caller's promise.
        Some(real) => unsafe { real(fds, n, timeout, mask) },
        None => -1,
    }
}

/// libc's pthread_cond_wait.
///
/// # Safety
/// As pthread_cond_wait(3).
pub(crate) unsafe fn cond_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    static REAL: OnceLock<Option<CondWait>> = OnceLock::new();
    // SAFETY: libc's pthread_cond_wait has this type; a null pointer becomes None.
    let real = REAL.get_or_init(|| unsafe { std::mem::transmute(next(c"pthread_cond_wait".as_ptr(), COND_VERSION)) });
    match real {
        // SAFETY: the caller's promise.
        Some(real) => unsafe { real(condition, mutex) },
        None => libc::EINVAL,
    }
}

/// Whether QEMU was asked to shut down: its vCPUs may spin from then on, waiting for the main loop to end it all. QEMU exports
/// the question for its modules (system/runstate.c); one that does not is waited for a little longer at its end.
pub(crate) fn shutting_down() -> bool {
    static REAL: OnceLock<Option<Asked>> = OnceLock::new();
    // SAFETY: `ShutdownCause qemu_shutdown_requested_get(void)` returns an enum, which is an int; it only reads a variable.
    let real = REAL.get_or_init(|| unsafe {
        std::mem::transmute(libc::dlsym(libc::RTLD_DEFAULT, c"qemu_shutdown_requested_get".as_ptr()))
    });
    // SAFETY: as above.
    real.is_some_and(|real| unsafe { real() } != 0)
}
