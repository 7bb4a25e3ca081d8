//! The one place with `unsafe`: a child that must not outlive the lab.

#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the child die with the thread that starts it, and gives it a process group of its own, so that a Ctrl-C meant for
/// the lab reaches it only through the lab.
///
/// `PR_SET_PDEATHSIG` (prctl(2)) follows the parent *thread*: start the child from the thread that waits for it.
pub fn tie_to_this_thread(command: &mut Command) {
    command.process_group(0);
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; prctl is a plain system call, and the
    // closure neither allocates nor touches a lock.
    unsafe {
        command.pre_exec(|| {
            nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
            Ok(())
        });
    }
}
