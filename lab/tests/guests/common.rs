//! What the tests with real guests share: starting topolab, finding its guests, and cleaning up.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// topolab with the user's own cache, where CI has built the kernels, and results in a folder of the test's.
pub(crate) fn topolab(results: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_topolab"));
    command.args(words).arg("--results").arg(results).stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn output(results: &Path, words: &[&str]) -> Output {
    topolab(results, words).output().expect("topolab starts")
}

/// Its exit code and what it said on stderr.
pub(crate) fn code_and_words(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The QEMU that a topolab has started, found among its children.
pub(crate) fn qemu_of(parent: u32) -> Option<u32> {
    let is_child = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent_is = |line: &str| line.strip_prefix("PPid:").is_some_and(|p| p.trim().parse() == Ok(parent));
        status.lines().any(parent_is) && status.lines().next().is_some_and(|line| line.contains("qemu-system"))
    };
    let pids =
        std::fs::read_dir("/proc").expect("/proc").flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.into_iter().find(|pid| is_child(*pid))
}

/// Waits until something is there.
pub(crate) fn wait_for<T>(what: &str, seconds: u64, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(seconds), "{what} did not come within {seconds} s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a text is on the console of the run's only trial.
pub(crate) fn wait_for_console(results: &Path, text: &str, seconds: u64) {
    wait_for(&format!("`{text}` on the console"), seconds, || {
        let consoles = walkdir::WalkDir::new(results).into_iter().flatten().filter(|e| e.file_name() == "console.log");
        consoles
            .filter_map(|e| std::fs::read(e.path()).ok())
            .find(|bytes| String::from_utf8_lossy(bytes).contains(text))
    });
}

/// Sends a signal.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id"));
    kill(pid, signal).expect("a living process");
}

/// Ends a child that a failed assertion would leave behind.
pub(crate) struct Guarded(pub(crate) Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
