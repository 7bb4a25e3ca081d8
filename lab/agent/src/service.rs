//! Programs that run beside the measured one: up before it, ready, and down after it.

use crate::exec::{self, Where};
use nix::sys::signal::Signal;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use topolab_wire::{Ready, Service};

/// How often one looks whether a service is ready.
const LOOK: Duration = Duration::from_millis(20);
/// How long a service may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a service's last words that are worth showing.
const LAST_WORDS: usize = 600;

/// A running service; ended when dropped.
pub struct Running {
    child: Child,
    words: PathBuf,
}

impl Running {
    /// Starts a service, its words going to `words`, and waits until it is ready. The error says why it is not.
    pub fn start(service: &Service, place: &Where, words: &Path) -> Result<Self, String> {
        let failed = |what: String| format!("service {}: {what}", service.name);
        let open = || -> io::Result<(Stdio, Stdio)> {
            let file = std::fs::File::create(words)?;
            Ok((file.try_clone()?.into(), file.into()))
        };
        match &service.ready {
            // What an earlier run left says nothing of this one.
            Ready::File(path) => drop(std::fs::remove_file(place.root.join(path.trim_start_matches('/')))),
            Ready::Tcp(port) if answers(*port) => {
                return Err(failed(format!("TCP port {port} answered before it was started")));
            }
            Ready::Tcp(_) | Ready::Says(_) => {}
        }
        let (out, err) = open().map_err(|e| failed(e.to_string()))?;
        let child = exec::start(&mut exec::command(&service.step, place), Stdio::null(), out, err);
        let mut running = Self { child: child.map_err(|e| failed(e.to_string()))?, words: words.to_path_buf() };
        let begun = Instant::now();
        loop {
            if let Some(status) = running.child.try_wait().map_err(|e| failed(e.to_string()))? {
                return Err(failed(format!(
                    "it ended before it was ready ({status}); it said: {}",
                    running.last_words()
                )));
            }
            if running.is_ready(&service.ready, &place.root) {
                return Ok(running);
            }
            if begun.elapsed() > Duration::from_millis(service.step.deadline_ms) {
                let seconds = service.step.deadline_ms / 1000;
                let sign = match &service.ready {
                    Ready::Tcp(port) => format!("TCP port {port} did not open"),
                    Ready::File(path) => format!("{path} did not appear"),
                    Ready::Says(text) => format!("it did not say `{text}`"),
                };
                return Err(failed(format!("not ready after {seconds} s: {sign}; it said: {}", running.last_words())));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn is_ready(&self, ready: &Ready, root: &Path) -> bool {
        match ready {
            Ready::Tcp(port) => answers(*port),
            Ready::File(path) => root.join(path.trim_start_matches('/')).exists(),
            Ready::Says(text) => self.said().contains(text),
        }
    }

    fn said(&self) -> String {
        std::fs::read(&self.words).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    fn last_words(&self) -> String {
        let said = self.said();
        let mut start = said.len().saturating_sub(LAST_WORDS);
        while !said.is_char_boundary(start) {
            start += 1;
        }
        // Whole lines, unless there is only one.
        let tail = &said[start..];
        let whole = if start == 0 { tail } else { tail.split_once('\n').map_or(tail, |(_, rest)| rest) };
        match whole.trim() {
            "" => "nothing".into(),
            words => words.into(),
        }
    }

    /// Whether it still runs; its last words when it does not. A server that died under its client measured nothing.
    pub fn alive(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("it ended during the run ({status}); it said: {}", self.last_words())),
            Err(e) => Err(e.to_string()),
        }
    }
}

fn answers(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

impl Drop for Running {
    fn drop(&mut self) {
        exec::signal(&self.child, Signal::SIGTERM);
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        // Whatever of its group is left.
        exec::signal(&self.child, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}
