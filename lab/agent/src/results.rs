//! The outbox: everything that must come back, kept in memory until the last point that counts.
//!
//! virtiofs answers arrive at times that the host decides, so under the virtual clock nothing may be read or written
//! through it before the measurement is over. The same order is kept on the real clock: one path, tested once.

use crate::init;
use serde_json::to_vec_pretty;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use topolab_wire::{DONE_FILE, Done, KERNEL_LOG_FILE, OBSERVATION_FILE, Observation, PROTOCOL, Repetition};

/// Files waiting in a tmpfs.
pub struct Outbox {
    folder: PathBuf,
    names: Vec<String>,
}

impl Outbox {
    /// An empty outbox under /run.
    pub fn new() -> io::Result<Self> {
        let folder = PathBuf::from("/run/outbox");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, names: Vec::new() })
    }

    /// Opens a new file of the outbox for writing.
    pub fn create(&mut self, name: &str) -> io::Result<File> {
        let file = File::create(self.folder.join(name))?;
        self.names.push(name.to_string());
        Ok(file)
    }

    /// Where a file of the outbox lies until it is delivered.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What has been written to a file.
    pub fn text(&self, name: &str) -> String {
        std::fs::read(self.path(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Adds the kernel's view of the machine.
    pub fn add_observation(&mut self, observation: &Observation) -> io::Result<()> {
        let mut file = self.create(OBSERVATION_FILE)?;
        file.write_all(&to_vec_pretty(observation)?)
    }

    /// Adds the kernel's log.
    pub fn add_log(&mut self, log: &str) -> io::Result<()> {
        self.create(KERNEL_LOG_FILE)?.write_all(log.as_bytes())
    }

    /// Copies everything to the results share, synced, and writes the done-record last.
    pub fn deliver(self, trial: &str, repetitions: Vec<Repetition>) -> io::Result<()> {
        let share = init::mount_results()?;
        let mut files = BTreeMap::new();
        for name in &self.names {
            let length = copy_synced(&self.folder.join(name), &share.join(name))?;
            files.insert(name.clone(), length);
        }
        let done = Done { protocol: PROTOCOL, trial: trial.to_string(), repetitions, files };
        // Written under another name and renamed, so that the done-record is whole or absent.
        let partial = share.join("done.partial");
        std::fs::write(&partial, to_vec_pretty(&done)?)?;
        File::open(&partial)?.sync_all()?;
        std::fs::rename(&partial, share.join(DONE_FILE))?;
        File::open(&share)?.sync_all()
    }
}

fn copy_synced(from: &Path, to: &Path) -> io::Result<u64> {
    let mut target = File::create(to)?;
    let length = io::copy(&mut File::open(from)?, &mut target)?;
    target.sync_all()?;
    Ok(length)
}
