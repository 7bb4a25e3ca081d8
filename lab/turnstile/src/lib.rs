//! A library that `topolab` preloads into QEMU under the virtual clock, so that QEMU's main loop and the thread that runs all
//! vCPUs take turns.
//!
//! Why. Under `-icount` the thread of the vCPUs wakes the main loop at every timer deadline (`icount_notify_aio_contexts`,
//! accel/tcg/icount-common.c, by way of `aio_notify`), and the main loop calls `icount_start_warp_timer` on each turn: when all
//! vCPUs are idle it moves the clock to the next deadline. A vCPU that executes HLT is idle (`cs->halted`) a moment before its
//! instructions are added to the clock (`icount_process_data`, after the big lock is taken). When the host happens to run the
//! main loop in that moment, it measures the way to the deadline with a stale clock, and the guest's time jumps too far by as
//! many nanoseconds as the vCPU had executed. On a loaded host that happens to one boot of 24 CPUs in ten.
//!
//! How. After its `ppoll` returns, the main loop waits until the vCPUs' thread sleeps in `pthread_cond_wait`, which it does when
//! all vCPUs are idle and accounted for; and that thread does not return from there before the main loop polls again. Nothing
//! else in QEMU changes. The two functions are QEMU's own imports, so a preloaded library stands in front of them (ld.so(8)).
//!
//! Environment: [`JITTER`] delays the main loop by a random time of up to 0.25 ms after each poll, which without the turns
//! breaks every run: the proof that they work needs no loaded host. [`TURNS`]`=off` keeps the delays and drops the turns.

// The second and last place with `unsafe`: symbols with C's signatures, and the two calls through pointers that dlsym gives.
#![allow(unsafe_code)]

mod real;
mod turns;

use libc::{c_int, nfds_t, pollfd, pthread_cond_t, pthread_mutex_t, sigset_t, timespec};
use std::time::Duration;
use turns::Turns;

/// Seed of the delays, a decimal number; absent means none.
pub const JITTER: &str = "TOPOLAB_TURNSTILE_JITTER";
/// `off` lets the main loop run whenever it likes.
pub const TURNS: &str = "TOPOLAB_TURNSTILE";
/// What the library says on standard error when it first acts: the lab refuses a QEMU that never says it.
pub const GREETING: &str = "topolab-turnstile: taking turns";

/// What it says when the main loop went on without its turn.
pub const LATE: &str = "topolab-turnstile: the vCPUs never rested, and the main loop went on all the same";

/// What it says when it was told to take no turns.
pub const OFF: &str = "topolab-turnstile: told to take no turns";

/// What it says, with the seed behind it, when it was told to delay the main loop.
pub const DELAYS: &str = "topolab-turnstile: delays from seed";

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// QEMU's main thread, which runs the main loop.
    MainLoop,
    /// The thread that runs all vCPUs.
    Cpus,
    /// Anybody else.
    Other,
}

fn caller() -> Caller {
    // SAFETY: neither call has a precondition.
    if unsafe { libc::gettid() == libc::getpid() } {
        return Caller::MainLoop;
    }
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes (prctl(2)).
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    // "ALL CPUs/TCG", given by rr_start_vcpu_thread (accel/tcg/tcg-accel-ops-rr.c) under -name debug-threads=on.
    match name.starts_with(b"ALL CPUs/TCG") {
        true => Caller::Cpus,
        false => Caller::Other,
    }
}

/// ppoll(2), with the main loop's turn beginning at its return.
///
/// # Safety
/// As ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
    // SAFETY: the caller's arguments are passed on as they came.
    let poll = || unsafe { real::ppoll(fds, n, timeout, mask) };
    match caller() {
        Caller::MainLoop => Turns::get().around_poll(poll, real::shutting_down),
        Caller::Cpus | Caller::Other => poll(),
    }
}

/// What a QEMU compiled with checked libc functions calls instead of [`ppoll`] (glibc, debug/ppoll_chk.c).
///
/// # Safety
/// As ppoll(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _size: usize,
) -> c_int {
    // SAFETY: as above.
    unsafe { ppoll(fds, n, timeout, mask) }
}

/// pthread_cond_wait(3), with the vCPUs' turn beginning at its return.
///
/// # Safety
/// As pthread_cond_wait(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller holds the mutex, and the arguments are passed on as they came.
    let wait = || unsafe { real::cond_wait(condition, mutex) };
    match caller() {
        Caller::MainLoop => Turns::get().around_main_wait(wait),
        // SAFETY: the mutex is held after `wait`, and unlocked and locked in pairs.
        Caller::Cpus => Turns::get().around_idle(
            wait,
            || unsafe { libc::pthread_mutex_unlock(mutex) },
            || unsafe { libc::pthread_mutex_lock(mutex) },
        ),
        Caller::Other => wait(),
    }
}

/// A delay of less than 0.25 ms from a linear congruential sequence (Knuth, TAOCP 2, 3.3.4, line 26).
fn delay(state: &mut u64) -> Duration {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    Duration::from_nanos((*state >> 33) % 250_000)
}
