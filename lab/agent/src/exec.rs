//! Runs what the order asks for, repetition by repetition, and keeps what it said.

use crate::kmsg;
use crate::results::Outbox;
use nix::sched::{CpuSet as Affinity, sched_setaffinity};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use topolab_wire::{CpuSet, Marker, ModelOrder, ProgramOrder, ProgramOutcome, Repetition};

/// Deadline of one run of a model, in guest seconds. Models end by themselves; this only keeps a broken one from
/// running into the host's deadline without a word.
const MODEL_DEADLINE: Duration = Duration::from_secs(3600);

/// Runs a program's warm-ups and repetitions inside `root`.
pub fn run_program(order: &ProgramOrder, root: &Path, outbox: &mut Outbox) -> io::Result<Vec<Repetition>> {
    if let Some(cpus) = &order.cpus {
        pin_self(cpus)?;
    }
    let deadline = Duration::from_millis(order.deadline_ms);
    for _ in 0..order.warmup {
        supervise(&mut program(order, root), Stdio::null(), Stdio::null(), None, deadline)?;
    }
    let mut repetitions = Vec::new();
    for n in 0..order.repetitions {
        kmsg::say(&Marker::Repetition(n));
        let (stdout, stderr) = (format!("rep-{n}.stdout"), format!("rep-{n}.stderr"));
        let out = outbox.create(&stdout)?;
        let err = outbox.create(&stderr)?;
        let outcome = supervise(&mut program(order, root), out.into(), err.into(), None, deadline)?;
        repetitions.push(Repetition { outcome, stdout, stderr, record: None });
    }
    Ok(repetitions)
}

/// Runs a model's repetitions, each as a process of its own with a seed of its own.
pub fn run_model(order: &ModelOrder, outbox: &mut Outbox) -> io::Result<Vec<Repetition>> {
    let mut repetitions = Vec::new();
    for n in 0..order.repetitions {
        kmsg::say(&Marker::Repetition(n));
        let (stdout, stderr) = (format!("rep-{n}.json"), format!("rep-{n}.stderr"));
        let out = outbox.create(&stdout)?;
        let err = outbox.create(&stderr)?;
        let input = serde_json::to_vec(&ModelOrder { seed: order.seed.wrapping_add(u64::from(n)), ..order.clone() })?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("model");
        let outcome = supervise(&mut command, out.into(), err.into(), Some(&input), MODEL_DEADLINE)?;
        repetitions.push(Repetition { outcome, stdout: stdout.clone(), stderr, record: Some(stdout) });
    }
    Ok(repetitions)
}

/// The program as a command. The dynamic loader named in a program's ELF header is looked up in the caller's root, so a
/// program of an image is started by the agent's own `enter` word, which changes the root first.
fn program(order: &ProgramOrder, root: &Path) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("enter").arg(root).args(&order.argv);
    command.envs(&order.env).env("HOME", "/tmp").env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    command
}

/// Enters `root` and becomes the program in `argv`; returns only to say why it could not.
pub fn enter(root: &Path, argv: &[std::ffi::OsString]) -> io::Error {
    let Some((program, arguments)) = argv.split_first() else {
        return io::Error::other("the order has an empty command line");
    };
    let entered = nix::unistd::chroot(root).and_then(|()| nix::unistd::chdir("/"));
    if let Err(e) = entered {
        return io::Error::other(format!("chroot {}: {}", root.display(), e.desc()));
    }
    let error = Command::new(program).args(arguments).exec();
    io::Error::new(error.kind(), format!("{}: {error}", program.to_string_lossy()))
}

/// Starts a command in a process group of its own, feeds it, and waits for its end or its deadline.
fn supervise(
    command: &mut Command,
    stdout: Stdio,
    stderr: Stdio,
    input: Option<&[u8]>,
    deadline: Duration,
) -> io::Result<ProgramOutcome> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = match command.stdin(stdin).stdout(stdout).stderr(stderr).process_group(0).spawn() {
        Ok(child) => child,
        Err(e) => return Ok(ProgramOutcome::NotStarted(e.to_string())),
    };
    if let (Some(bytes), Some(mut pipe)) = (input, child.stdin.take()) {
        // A child that dies early is judged by its status, not by the broken pipe.
        let _ = pipe.write_all(bytes);
    }
    wait_until(&mut child, deadline)
}

fn wait_until(child: &mut Child, deadline: Duration) -> io::Result<ProgramOutcome> {
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

fn pin_self(cpus: &CpuSet) -> io::Result<()> {
    let mut affinity = Affinity::new();
    for cpu in cpus.iter() {
        affinity.set(cpu as usize).map_err(|e| io::Error::other(format!("CPU {cpu}: {}", e.desc())))?;
    }
    sched_setaffinity(Pid::from_raw(0), &affinity).map_err(|e| io::Error::other(format!("CPUs {cpus}: {}", e.desc())))
}
