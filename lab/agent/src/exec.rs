//! Starts programs where they belong, and waits for their end or their deadline.

use nix::sched::{CpuSet as Affinity, sched_setaffinity};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use topolab_wire::{CpuSet, ProgramOutcome, Step};

/// Where a step runs: its root directory and, where its CPUs are apart, the cgroup that has them.
#[derive(Debug, Clone)]
pub struct Where {
    /// The root directory.
    pub root: PathBuf,
    /// CPUs in partitions of their own, and their cgroups.
    pub partitions: Vec<(CpuSet, PathBuf)>,
}

/// The step as a command. The dynamic loader named in a program's ELF header is looked up in the caller's root, so a program of an
/// image is started by the agent's own `enter` word, which joins the cgroup, takes the CPUs and changes the root first.
pub fn command(step: &Step, place: &Where) -> Command {
    let mut command = Command::new("/proc/self/exe");
    let cpus = step.cpus.as_ref().map_or("-".to_string(), CpuSet::to_string);
    let within = |cpus: &CpuSet| place.partitions.iter().find(|(partition, _)| cpus.is_subset(partition));
    let group = step.cpus.as_ref().and_then(within).map_or(Path::new("-"), |(_, group)| group.as_path());
    command.arg("enter").arg(&place.root).arg(cpus).arg(group).arg(step.folder.as_deref().unwrap_or("/"));
    command.args(&step.argv);
    command.env_clear().env("HOME", "/tmp").env("TOPOLAB_OUT", "/out");
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    // What the bundle says has the last word.
    command.envs(&step.env);
    command
}

/// `enter ROOT CPUS CGROUP FOLDER PROGRAM ARGUMENT…`: becomes the program in its place; returns only to say why it could not.
pub fn enter(words: &[OsString]) -> io::Error {
    let [root, cpus, group, folder, argv @ ..] = words else {
        return io::Error::other("enter: a root, CPUs, a cgroup, a folder and a program are needed");
    };
    match place(Path::new(root), &cpus.to_string_lossy(), Path::new(group), Path::new(folder)) {
        Ok(()) => {}
        Err(e) => return e,
    }
    let Some((program, arguments)) = argv.split_first() else {
        return io::Error::other("the order has an empty command line");
    };
    let mut command = match program.to_string_lossy().strip_prefix('@') {
        // The image brings /proc, and the link leads out of it to the agent's own file.
        Some(tool) => {
            let mut command = Command::new("/proc/self/exe");
            command.arg("tool").arg(tool);
            command
        }
        None => Command::new(program),
    };
    let error = command.args(arguments).exec();
    io::Error::new(error.kind(), format!("{}: {error}", program.to_string_lossy()))
}

fn place(root: &Path, cpus: &str, group: &Path, folder: &Path) -> io::Result<()> {
    if group != Path::new("-") {
        let procs = group.join("cgroup.procs");
        std::fs::write(&procs, std::process::id().to_string())
            .map_err(|e| io::Error::other(format!("{}: {e}", procs.display())))?;
    }
    if cpus != "-" {
        pin_self(&cpus.parse().map_err(io::Error::other)?)?;
    }
    if root != Path::new("/") {
        let entered = nix::unistd::chroot(root).and_then(|()| nix::unistd::chdir("/"));
        entered.map_err(|e| io::Error::other(format!("chroot {}: {}", root.display(), e.desc())))?;
    }
    nix::unistd::chdir(folder).map_err(|e| io::Error::other(format!("{}: {}", folder.display(), e.desc())))
}

fn pin_self(cpus: &CpuSet) -> io::Result<()> {
    let mut affinity = Affinity::new();
    for cpu in cpus.iter() {
        affinity.set(cpu as usize).map_err(|e| io::Error::other(format!("CPU {cpu}: {}", e.desc())))?;
    }
    sched_setaffinity(Pid::from_raw(0), &affinity).map_err(|e| io::Error::other(format!("CPUs {cpus}: {}", e.desc())))
}

/// Starts a command in a process group of its own.
pub fn start(command: &mut Command, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> io::Result<Child> {
    command.stdin(stdin).stdout(stdout).stderr(stderr).process_group(0).spawn()
}

/// Starts a command, feeds it, and waits for its end or its deadline.
pub fn supervise(
    command: &mut Command,
    stdout: Stdio,
    stderr: Stdio,
    input: Option<&[u8]>,
    deadline: Duration,
) -> io::Result<ProgramOutcome> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = match start(command, stdin, stdout, stderr) {
        Ok(child) => child,
        Err(e) => return Ok(ProgramOutcome::NotStarted(e.to_string())),
    };
    if let (Some(bytes), Some(mut pipe)) = (input, child.stdin.take()) {
        // A child that dies early is judged by its status, not by the broken pipe.
        let _ = pipe.write_all(bytes);
    }
    wait_until(&mut child, deadline)
}

/// Sends a signal to a child and everything that it has started, as far as it stayed in its group.
pub fn signal(child: &Child, signal: Signal) {
    if let Ok(group) = i32::try_from(child.id()) {
        let _ = killpg(Pid::from_raw(group), signal);
    }
}

/// How long killed processes may take to be gone.
const GONE: Duration = Duration::from_secs(10);

/// Ends every process but this one, PID 1, and reaps it: whatever a run leaves behind, in a group or a session of its own, would run
/// beside the next one.
pub fn end_everything() {
    let _ = nix::sys::signal::kill(Pid::from_raw(-1), Signal::SIGKILL);
    let begun = std::time::Instant::now();
    // Orphans are PID 1's children; none left is an error, ECHILD.
    while let Ok(status) = nix::sys::wait::waitpid(None, Some(nix::sys::wait::WaitPidFlag::WNOHANG)) {
        if status == nix::sys::wait::WaitStatus::StillAlive {
            if begun.elapsed() > GONE {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Waits for a child's end; at the deadline it and its group are killed.
pub fn wait_until(child: &mut Child, deadline: Duration) -> io::Result<ProgramOutcome> {
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let ended = Mutex::new(false);
    let changed = Condvar::new();
    let mut overdue = false;
    let status = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let guard = ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let waited = changed.wait_timeout_while(guard, deadline, |ended| !*ended);
            let late = waited.map(|(guard, timeout)| !*guard && timeout.timed_out()).unwrap_or(false);
            if late {
                let _ = killpg(group, Signal::SIGKILL);
            }
            late
        });
        let status = child.wait();
        *ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        changed.notify_all();
        overdue = watch.join().unwrap_or(false);
        status
    })?;
    Ok(match (overdue, status.code(), status.signal()) {
        (true, _, _) => ProgramOutcome::Deadline,
        (false, Some(code), _) => ProgramOutcome::Exit(code),
        (false, None, signal) => ProgramOutcome::Signal(signal.unwrap_or(0)),
    })
}
