//! One guest's life: shares up, QEMU started, the agent's markers followed on the console, every wait bounded, and the end
//! judged. Nothing outlives it.

use crate::cancel::Cancel;
use crate::fault::{Fault, FaultKind, Outcome, Trying};
use crate::image::{Contents, write_initramfs};
use crate::qemu::{self, End, Machine, Qemu, Running, Share};
use crate::share::{self, Access, OpenFlags};
use crate::splat;
use crate::topology::Arch;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use topolab_wire::{
    Clock, DONE_FILE, Done, KERNEL_LOG_FILE, Marker, OBSERVATION_FILE, Observation, Order, PROTOCOL, RESULTS_TAG, Stage,
};

/// How often the console and the process are looked at.
const LOOK: Duration = Duration::from_millis(25);
/// Longest path of a UNIX socket (unix(7), `sun_path`, with its NUL).
const SOCKET_PATH: usize = 107;

/// The host's patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Deadlines {
    /// Until the agent says hello, in seconds of wall time.
    pub boot_s: u64,
    /// Until the guest has powered off, in seconds of wall time.
    pub total_s: u64,
    /// Whether a guest that comes up and does not end by then must have hung: on the real clock, with time for every deadline of its
    /// own. Under the virtual clock it may just be slow, and a user's own patience proves nothing either.
    pub decisive: bool,
}

/// What a guest is started from.
pub struct Birth<'a> {
    /// QEMU.
    pub qemu: &'a Qemu,
    /// The machine; its paths for console, monitor, initrd and shares are filled in here.
    pub machine: Machine,
    /// The order.
    pub order: &'a Order,
    /// Kernel modules, in the order's order.
    pub modules: &'a [PathBuf],
    /// A program tree for the initramfs.
    pub tree: Option<&'a Path>,
    /// A program tree to share read-only under this tag.
    pub inputs: Option<(&'a str, &'a Path)>,
    /// Where the console, QEMU's words and the records go.
    pub folder: &'a Path,
    /// The host's patience.
    pub deadlines: Deadlines,
}

/// What a guest that lived to its end left behind.
#[derive(Debug)]
pub struct Lived {
    /// The done-record.
    pub done: Done,
    /// The kernel's view of the machine.
    pub observation: Observation,
    /// The records' folder.
    pub results: PathBuf,
    /// The console's text.
    pub console: String,
    /// The kernel's log, which has what a large machine does not say on its console.
    pub log: String,
    /// What takes something from the promise of its clock.
    pub cautions: Vec<String>,
    /// Whether its clock's main loop once went on without its turn.
    pub late: bool,
}

impl Lived {
    /// What the kernel complained of, on either way.
    pub fn complaints(&self) -> Vec<(String, usize)> {
        splat::complaints_of_both(&self.console, &self.log)
    }
}

/// Runs a guest from birth to end.
pub fn live(birth: Birth<'_>, cancel: &Cancel) -> Outcome<Lived> {
    let results = birth.folder.join("results");
    std::fs::create_dir_all(&results).trying(results.display())?;
    let scratch = scratch()?;
    let at = |name: &str| scratch.path().join(name);
    let mut machine = birth.machine;
    let clock = machine.clock;
    machine.console = birth.folder.join("console.log");
    machine.qmp = at("qmp");
    machine.initrd = at("initrd");
    machine.shares = vec![Share { tag: RESULTS_TAG.into(), socket: at("results") }];
    let flags = OpenFlags::of(machine.arch);
    let mut served = vec![share::serve(&results, Access::ReadWrite, flags, RESULTS_TAG, &at("results"))?];
    if let Some((tag, tree)) = birth.inputs {
        served.push(share::serve(tree, Access::ReadOnly, flags, tag, &at("inputs"))?);
        machine.shares.push(Share { tag: tag.into(), socket: at("inputs") });
    }
    if machine.arch == Arch::Aarch64 {
        machine.device_tree = Some(at("dtb"));
        std::fs::write(at("dtb"), qemu::device_tree(birth.qemu, &machine)?).trying("the device tree")?;
    }
    let contents = Contents { arch: machine.arch, order: birth.order, modules: birth.modules, tree: birth.tree };
    write_initramfs(&machine.initrd, &contents)?;
    let words = qemu::argv(&machine);
    let paste = qemu::paste(&birth.qemu.path.display().to_string(), &words);
    std::fs::write(birth.folder.join("qemu.txt"), paste).trying("qemu.txt")?;

    let launch = qemu::Launch {
        program: &birth.qemu.path,
        words: &words,
        monitor: &machine.qmp,
        stderr: &birth.folder.join("qemu.stderr"),
        clock,
    };
    let mut running = qemu::start(launch)?;
    let mut console = Console::new(machine.console);
    let ending = follow(&mut running, &mut console, birth.deadlines, cancel);
    // QEMU first, then the shares: they end when it closes their sockets.
    drop(running);
    let shares: Vec<Outcome<()>> = served.into_iter().map(share::Served::finish).collect();
    let ending = ending?;
    console.read()?;
    if let Some(fault) = judge(&ending, &console, birth.deadlines) {
        return Err(fault);
    }
    shares.into_iter().collect::<Outcome<()>>()?;
    let mut lived = collect(&results, birth.order, console.path)?;
    (lived.cautions, lived.late) = match clock {
        Clock::Virtual => qemu::cautions(&birth.folder.join("qemu.stderr"))?,
        Clock::Real => (Vec::new(), false),
    };
    Ok(lived)
}

/// A short-pathed folder for sockets, removed at the end.
fn scratch() -> Outcome<tempfile::TempDir> {
    let make = |folder: &Path| tempfile::Builder::new().prefix("topolab-").tempdir_in(folder);
    let preferred = std::env::temp_dir();
    // "/topolab-XXXXXX/results" follows.
    let fits = preferred.as_os_str().len() + 24 <= SOCKET_PATH;
    let folder = if fits { preferred } else { PathBuf::from("/tmp") };
    make(&folder).trying(folder.display())
}

/// How following a guest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ending {
    /// QEMU ended.
    Ended(End),
    /// A deadline passed.
    Overdue,
}

fn follow(running: &mut Running, console: &mut Console, deadlines: Deadlines, cancel: &Cancel) -> Outcome<Ending> {
    let begun = Instant::now();
    loop {
        cancel.check()?;
        console.read()?;
        if let Some(end) = running.ended()? {
            return Ok(Ending::Ended(end));
        }
        let limit = if console.said_hello() { deadlines.total_s } else { deadlines.boot_s.min(deadlines.total_s) };
        if begun.elapsed() > Duration::from_secs(limit) {
            // A guest that KVM gave up on waits for a debugger: that is no hang of its kernel.
            if running.paused_by_error() {
                return Ok(Ending::Ended(End::Died("QEMU stopped the guest with an internal error".into())));
            }
            running.stop();
            return Ok(Ending::Overdue);
        }
        std::thread::sleep(LOOK);
    }
}

/// The console file, read as it grows.
struct Console {
    path: PathBuf,
    offset: u64,
    partial: String,
    markers: Vec<Marker>,
    panic: Option<String>,
    /// Whether the kernel said that something does not go on.
    stalled: bool,
    last: Vec<String>,
}

/// Lines of the console that a fault shows.
const LAST_LINES: usize = 20;

impl Console {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            offset: 0,
            partial: String::new(),
            markers: Vec::new(),
            panic: None,
            stalled: false,
            last: Vec::new(),
        }
    }

    fn read(&mut self) -> Outcome<()> {
        let mut bytes = Vec::new();
        let read = std::fs::File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.offset))?;
            file.read_to_end(&mut bytes)
        });
        match read {
            Ok(n) => self.offset += n as u64,
            // QEMU makes the file when it starts.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(Fault::lab(format!("{}: {e}", self.path.display()))),
        }
        self.take(&String::from_utf8_lossy(&bytes));
        Ok(())
    }

    fn take(&mut self, text: &str) {
        self.partial.push_str(text);
        while let Some(end) = self.partial.find('\n') {
            let line = self.partial[..end].trim_end_matches('\r').to_string();
            self.partial.drain(..=end);
            self.markers.extend(Marker::parse(&line));
            if self.panic.is_none() && line.contains("Kernel panic") {
                self.panic = Some(line.clone());
            }
            self.stalled |= splat::is_stall(&line);
            if !line.trim().is_empty() {
                self.last.push(line);
            }
            if self.last.len() > LAST_LINES {
                self.last.remove(0);
            }
        }
    }

    fn said_hello(&self) -> bool {
        self.markers.iter().any(|marker| matches!(marker, Marker::Hello(_)))
    }
}

/// Sorts an ending into "all is well so far" or a fault. Pure: the console's markers and QEMU's end decide, nothing else.
fn judge(ending: &Ending, console: &Console, deadlines: Deadlines) -> Option<Fault> {
    let last = if console.last.is_empty() { "(the console stayed empty)".to_string() } else { console.last.join("\n") };
    let panic = console.panic.as_ref().map(|line| format!("{line}\n\n")).unwrap_or_default();
    let stage = |kind: FaultKind, message: String| {
        Some(Fault::new(kind, message).detail(format!("{panic}last console lines:\n{last}")))
    };
    // What the agent says of itself comes first: it knows why.
    let failed = console.markers.iter().find_map(|marker| match marker {
        Marker::Failed(stage, why) => Some((*stage, why)),
        Marker::Hello(_) | Marker::Observed | Marker::Repetition(_) | Marker::Measured | Marker::Done => None,
    });
    match (ending, failed) {
        // QEMU's own death is the lab's, whatever the guest had said before.
        (Ending::Ended(End::Died(how)), _) => Some(Fault::lab(format!("QEMU died under the guest: {how}"))),
        (_, Some((Stage::Work, why))) => stage(FaultKind::Bundle, format!("the bundle could not run: {why}")),
        (_, Some((Stage::Module, why))) => {
            stage(FaultKind::Kernel, format!("this kernel does not take a module: {why}"))
        }
        (_, Some((Stage::Setup | Stage::Observe | Stage::Results, why))) => {
            stage(FaultKind::Lab, format!("the guest's agent failed: {why}"))
        }
        (Ending::Ended(End::PoweredOff), None) => match console.markers.contains(&Marker::Done) {
            true => None,
            false if console.said_hello() => {
                stage(FaultKind::Kernel, "the guest powered off without a done-record".into())
            }
            false => stage(FaultKind::Boot, "the guest powered off before its agent ran".into()),
        },
        (Ending::Ended(End::Reset), None) => match console.said_hello() {
            false => stage(FaultKind::Boot, "the kernel died before its agent ran".into()),
            true => stage(FaultKind::Kernel, "the kernel died under the workload".into()),
        },
        (Ending::Overdue, None) => match console.said_hello() {
            false => stage(
                FaultKind::Boot,
                format!("the kernel did not come up within {} s", deadlines.boot_s.min(deadlines.total_s)),
            ),
            true if deadlines.decisive || console.stalled => {
                stage(FaultKind::Kernel, format!("the guest did not finish within {} s", deadlines.total_s))
            }
            true => {
                let what = format!("the work was not over within {} s of wall time", deadlines.total_s);
                stage(FaultKind::Bundle, format!("{what}, and the kernel complains of nothing"))
                    .map(|fault| fault.help("less work, or more patience: --deadline SECONDS"))
            }
        },
    }
}

/// Reads the records and holds them against the done-record.
fn collect(results: &Path, order: &Order, console: PathBuf) -> Outcome<Lived> {
    let absent = |what: String| Fault::lab(format!("{what}: the trial does not count"));
    let path = results.join(DONE_FILE);
    let text = std::fs::read(&path).map_err(|e| absent(format!("no done-record ({}: {e})", path.display())))?;
    let done: Done = serde_json::from_slice(&text).map_err(|e| absent(format!("{}: {e}", path.display())))?;
    if done.protocol != PROTOCOL || done.trial != order.trial {
        return Err(absent(format!("{} is of trial {}, not of {}", path.display(), done.trial, order.trial)));
    }
    for (name, length) in &done.files {
        let found = std::fs::metadata(results.join(name)).map(|m| m.len()).ok();
        if found != Some(*length) {
            return Err(absent(format!("{name} has {found:?} bytes where the guest wrote {length}")));
        }
    }
    let path = results.join(OBSERVATION_FILE);
    let text = std::fs::read(&path).map_err(|e| absent(format!("{}: {e}", path.display())))?;
    let observation = serde_json::from_slice(&text).map_err(|e| absent(format!("{}: {e}", path.display())))?;
    let lossy = |path: &Path| {
        std::fs::read(path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .map_err(|e| absent(format!("{}: {e}", path.display())))
    };
    let (console, log) = (lossy(&console)?, lossy(&results.join(KERNEL_LOG_FILE))?);
    Ok(Lived { done, observation, results: results.to_path_buf(), console, log, cautions: Vec::new(), late: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Deadlines = Deadlines { boot_s: 9, total_s: 99, decisive: true };

    fn judged(ending: Ending, console: &str) -> Option<FaultKind> {
        let mut lines = Console::new(PathBuf::new());
        lines.take(console);
        judge(&ending, &lines, PATIENCE).map(|fault| fault.kind)
    }

    #[test]
    fn an_ending_is_the_kernels_fault_or_the_labs_by_what_the_console_shows() {
        let hello = "[ 1.0] topolab: hello 1\n";
        let done = "[ 1.0] topolab: hello 1\n[ 2.0] topolab: done\n";
        let off = || Ending::Ended(End::PoweredOff);
        let reset = || Ending::Ended(End::Reset);
        assert_eq!(judged(off(), done), None);
        assert_eq!(judged(off(), hello), Some(FaultKind::Kernel));
        assert_eq!(judged(off(), ""), Some(FaultKind::Boot));
        assert_eq!(judged(reset(), ""), Some(FaultKind::Boot));
        assert_eq!(judged(reset(), hello), Some(FaultKind::Kernel));
        // A reset after the records are safe is still a kernel that cannot power off.
        assert_eq!(judged(reset(), done), Some(FaultKind::Kernel));
        assert_eq!(judged(Ending::Overdue, ""), Some(FaultKind::Boot));
        assert_eq!(judged(Ending::Overdue, hello), Some(FaultKind::Kernel));
        let unproven = |console: &str| {
            let mut lines = Console::new(PathBuf::new());
            lines.take(console);
            judge(&Ending::Overdue, &lines, Deadlines { decisive: false, ..PATIENCE }).map(|fault| fault.kind)
        };
        assert_eq!(unproven(hello), Some(FaultKind::Bundle));
        let stalled = format!("{hello}[ 60.0] rcu: INFO: rcu_sched self-detected stall on CPU\n");
        assert_eq!(unproven(&stalled), Some(FaultKind::Kernel));
        for console in ["", hello, done] {
            assert_eq!(judged(Ending::Ended(End::Died("killed by signal 9".into())), console), Some(FaultKind::Lab));
        }
        assert_eq!(judged(off(), "topolab: hello 1\ntopolab: failed work no perf\n"), Some(FaultKind::Bundle));
        assert_eq!(judged(off(), "topolab: hello 1\ntopolab: failed results gone\n"), Some(FaultKind::Lab));
    }

    #[test]
    fn a_line_that_arrives_in_pieces_is_one_line() {
        let mut console = Console::new(PathBuf::new());
        for piece in ["[ 1.0] topo", "lab: hel", "lo 1\r\n[ 2.0] x"] {
            console.take(piece);
        }
        assert!(console.said_hello());
        assert_eq!(console.last, ["[ 1.0] topolab: hello 1"]);
    }
}
