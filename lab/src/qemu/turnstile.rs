//! Gives QEMU the library that makes its main loop and its vCPUs take turns, without which instruction-counted time does not
//! repeat on a loaded host; why, and how, stands in that library (lab/turnstile).

use crate::fault::{Fault, Outcome, Trying};
use crate::sys;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// The library, built and embedded by build.rs.
const LIBRARY: &[u8] = include_bytes!(env!("TOPOLAB_TURNSTILE"));
/// What it says when it first acts (lab/turnstile, `GREETING`).
const GREETING: &str = "topolab-turnstile: taking turns";

/// What it says when it went on without its turn (lab/turnstile, `LATE`).
const LATE: &str = "topolab-turnstile: the vCPUs never rested, and the main loop went on all the same";
/// How each of its lines begins.
const PREFIX: &str = "topolab-turnstile: ";

/// SHA-256 of the library.
pub fn digest() -> String {
    crate::digest::hex(&[LIBRARY])
}

/// Puts the library in front of the child's libc. As a file in memory: a folder may be mounted noexec, and ld.so(8) splits its
/// list at spaces and colons.
pub(super) fn preload(command: &mut Command) -> Outcome<()> {
    let memory = nix::sys::memfd::memfd_create(c"topolab-turnstile", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)
        .map_err(std::io::Error::from)
        .trying("memfd_create")?;
    let mut file = std::fs::File::from(memory);
    file.write_all(LIBRARY).trying("memfd")?;
    let ours = format!("/proc/self/fd/{}", sys::hand_down(command, file.into()));
    let all = match std::env::var("LD_PRELOAD") {
        Ok(theirs) if !theirs.is_empty() => format!("{ours}:{theirs}"),
        Ok(_) | Err(_) => ours,
    };
    command.env("LD_PRELOAD", all);
    Ok(())
}

/// What the library said of its turns that takes something from the promise of a virtual clock: what it was told to do, which goes on
/// the record, and whether it once stopped waiting, which depends on how busy the host is, and therefore does not.
pub(crate) fn cautions(stderr: &Path) -> Outcome<(Vec<String>, bool)> {
    let words = std::fs::read_to_string(stderr).trying(stderr.display())?;
    let ours = words.lines().filter(|line| line.starts_with(PREFIX) && *line != GREETING);
    let (late, told): (Vec<&str>, Vec<&str>) = ours.partition(|line| *line == LATE);
    Ok((told.into_iter().map(str::to_string).collect(), !late.is_empty()))
}

/// Refuses a QEMU that did not take the library.
pub(super) fn require(stderr: &Path) -> Outcome<()> {
    let words = std::fs::read_to_string(stderr).trying(stderr.display())?;
    match words.lines().any(|line| line == GREETING) {
        true => Ok(()),
        false => {
            // ld.so(8) says why it ignores a library.
            let why = words.lines().find(|line| line.contains("LD_PRELOAD")).map(|line| format!(" ({line})"));
            let why = why.unwrap_or_default();
            Err(Fault::lab(format!(
                "this QEMU does not take the library without which its virtual clock does not repeat{why}"
            ))
            .help("a dynamically linked QEMU is needed, as Debian packages it; `--clock real` runs on any"))
        }
    }
}
