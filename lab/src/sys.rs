//! The tool's one place with `unsafe`: what a child is given between fork and exec.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
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

/// Lets the child inherit a file; returns its number there. Every other child still closes it on exec.
pub fn hand_down(command: &mut Command, file: OwnedFd) -> i32 {
    let number = file.as_raw_fd();
    // SAFETY: fcntl is async-signal-safe (signal-safety(7)), and the closure owns the file, so the number is valid.
    unsafe {
        command.pre_exec(move || {
            nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
            Ok(())
        });
    }
    number
}
