//! A running QEMU: started with its end already provided for.

use super::turnstile;
use crate::fault::{Fault, Outcome, Trying};
use crate::sys;
use qapi::qmp::{self, Event};
use qapi::{Qmp, Stream};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use topolab_wire::Clock;

/// How long QEMU may take to open its monitor: it maps memory and connects the shares before that.
const MONITOR_DEADLINE: Duration = Duration::from_secs(30);
/// How long QEMU may take to quit when told: a hung one ignores even SIGTERM, so it is killed after that.
const QUIT_GRACE: Duration = Duration::from_secs(3);

type Monitor = Qmp<Stream<BufReader<UnixStream>, UnixStream>>;

/// How a guest's QEMU ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The guest powered off.
    PoweredOff,
    /// The guest reset itself: with panic=-1 that is what a panic looks like.
    Reset,
    /// QEMU ended without the guest's doing: a signal, an abort, an error; in its own words.
    Died(String),
}

/// A QEMU process. Dropping it ends it.
pub struct Running {
    child: Child,
    monitor: Monitor,
    stderr: PathBuf,
}

/// How to start a QEMU.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its words.
    pub words: &'a [String],
    /// The monitor's socket, as the words name it.
    pub monitor: &'a Path,
    /// File for its standard error.
    pub stderr: &'a Path,
    /// Whose time it keeps: under the virtual clock its threads must take turns.
    pub clock: Clock,
}

/// Starts QEMU and shakes hands on its monitor. Must be called from the thread that will wait for it.
pub fn start(launch: Launch<'_>) -> Outcome<Running> {
    let Launch { program, words, monitor, stderr, clock } = launch;
    let errors = std::fs::File::create(stderr).trying(stderr.display())?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    sys::tie_to_this_thread(&mut command);
    match clock {
        Clock::Virtual => turnstile::preload(&mut command)?,
        Clock::Real => {}
    }
    let mut child = command.spawn().trying(program.display())?;
    let begun = connect(&mut child, words, monitor, stderr).and_then(|mut monitor| {
        match clock {
            Clock::Virtual => turnstile::require(stderr)?,
            Clock::Real => {}
        }
        let begun = monitor.execute(&qmp::cont {}).map(|_| ()).map_err(|e| e.to_string());
        match begun {
            Ok(()) => Ok(monitor),
            Err(why) => Err(refusal(&mut child, &why, words, stderr)?),
        }
    });
    match begun {
        Ok(monitor) => Ok(Running { child, monitor, stderr: stderr.to_path_buf() }),
        Err(fault) => {
            // Nothing may be left behind, whatever the reason.
            let _ = child.kill();
            let _ = child.wait();
            Err(fault)
        }
    }
}

fn connect(child: &mut Child, words: &[String], socket: &Path, stderr: &Path) -> Outcome<Monitor> {
    let begun = Instant::now();
    let stream = loop {
        if let Ok(stream) = UnixStream::connect(socket) {
            break stream;
        }
        if let Some(status) = child.try_wait().trying("wait for QEMU")? {
            return Err(refused(status, words, stderr));
        }
        if begun.elapsed() > MONITOR_DEADLINE {
            return Err(Fault::lab(format!("QEMU did not open its monitor in {} s", MONITOR_DEADLINE.as_secs()))
                .detail(words_of(stderr)));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let writer = stream.try_clone().trying("QMP")?;
    // A QEMU that dies closes the socket, so a read cannot hang on a dead one; this bounds a hung one.
    stream.set_read_timeout(Some(MONITOR_DEADLINE)).trying("QMP")?;
    let mut reader = BufReader::new(stream);
    // QEMU listens before it looks at CPU models and memory, so it may still refuse after the connection: then the greeting
    // never comes, which qapi takes for impossible, or the rest of the handshake fails.
    let greeted = reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
    let mut monitor = Qmp::new(Stream::new(reader, writer));
    let shaken = match greeted {
        true => monitor.handshake().map(|_| ()).map_err(|e| e.to_string()),
        false => Err("no greeting".to_string()),
    };
    match shaken {
        Ok(()) => Ok(monitor),
        Err(why) => Err(refusal(child, &why, words, stderr)?),
    }
}

/// A QEMU that ended before the guest began, in its own words, with the options that they are about.
fn refused(status: ExitStatus, words: &[String], stderr: &Path) -> Fault {
    let said = words_of(stderr);
    let blamed = super::argv::blamed(words, &said);
    Fault::lab(format!("QEMU refused to start ({status})")).detail(format!("{said}\n\nasked for:\n{blamed}"))
}

/// Why a QEMU whose handshake failed did so: it is about to end, or it is alive and talks nonsense.
fn refusal(child: &mut Child, why: &str, words: &[String], stderr: &Path) -> Outcome<Fault> {
    let begun = Instant::now();
    while begun.elapsed() < QUIT_GRACE {
        if let Some(status) = child.try_wait().trying("wait for QEMU")? {
            return Ok(refused(status, words, stderr));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Fault::lab(format!("QMP handshake: {why}")).detail(words_of(stderr)))
}

/// QEMU's own words, without the warnings about features that emulation lacks, of which a modern CPU model has dozens.
fn words_of(stderr: &Path) -> String {
    let text = std::fs::read_to_string(stderr).unwrap_or_default();
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.contains("TCG doesn't support requested feature")).collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

impl Running {
    /// QEMU's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether QEMU has stopped the guest because of an internal error, as it does when KVM gives up: it then waits for a
    /// debugger that never comes.
    pub fn paused_by_error(&mut self) -> bool {
        let status = self.monitor.execute(&qmp::query_status {});
        status.is_ok_and(|info| matches!(info.status, qmp::RunState::internal_error))
    }

    /// How it ended, once it has.
    pub fn ended(&mut self) -> Outcome<Option<End>> {
        let status = self.child.try_wait().trying("wait for QEMU")?;
        Ok(status.map(|status| self.judge(status)))
    }

    /// Reads the last events: QEMU says why it shuts down before it closes the monitor.
    fn judge(&mut self, status: ExitStatus) -> End {
        let mut reason = None;
        // Each read gives an event, an unknown message or the end of the stream; a bound keeps a babbling one finite.
        for _ in 0..1000 {
            let read = self.monitor.read_response::<qmp::query_status>();
            for event in self.monitor.events() {
                if let Event::SHUTDOWN { data, .. } = event {
                    reason = Some(data.reason);
                }
            }
            if let Err(qapi::ExecuteError::Io(error)) = read
                && error.kind() != std::io::ErrorKind::InvalidData
            {
                break;
            }
        }
        use qmp::ShutdownCause as Cause;
        match (status.success(), reason) {
            (true, Some(Cause::guest_shutdown)) => End::PoweredOff,
            (true, Some(Cause::guest_reset | Cause::guest_panic)) => End::Reset,
            (_, reason) => {
                let how = match (status.code(), status.signal()) {
                    (_, Some(signal)) => format!("killed by signal {signal}"),
                    (Some(code), None) => format!("exit status {code}"),
                    (None, None) => "no exit status".to_string(),
                };
                let why = reason.map(|r| format!(", shutdown reason {r:?}")).unwrap_or_default();
                let words = words_of(&self.stderr);
                let words = if words.is_empty() { String::new() } else { format!("\n{words}") };
                End::Died(format!("{how}{why}{words}"))
            }
        }
    }

    /// Ends it: politely, then by SIGKILL. By SIGTERM beside QMP's quit, since a main loop that waits for its turn sees only
    /// that; both mean the same to QEMU.
    pub fn stop(&mut self) {
        let _ = self.monitor.write_command(&qmp::quit {});
        if let Ok(id) = i32::try_from(self.child.id()) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGTERM);
        }
        let begun = Instant::now();
        while begun.elapsed() < QUIT_GRACE {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.stop();
        }
    }
}
