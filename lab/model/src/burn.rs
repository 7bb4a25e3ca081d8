//! Occupies the calling task for a time of its own, through the busy module.

use std::fs::File;
use std::io::{self, Write};

/// The busy module's device (lab/busy/topolab_busy.c).
const DEVICE: &str = "/dev/topolab-busy";

/// A thread's own handle on the busy device. Threads must not share one: write() on one file description serialises
/// its callers (fs/file.c, `f_pos_lock`), which would make a queue that no real workload has.
pub(crate) struct Burner(File);

impl Burner {
    /// Opens the device.
    pub(crate) fn new() -> io::Result<Self> {
        File::options().write(true).open(DEVICE).map(Self)
    }

    /// Burns `ns` nanoseconds of the calling task's CPU time.
    pub(crate) fn burn(&mut self, ns: u64) -> io::Result<()> {
        match ns {
            0 => Ok(()),
            _ => self.0.write_all(&ns.to_ne_bytes()),
        }
    }
}
