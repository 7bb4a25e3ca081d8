//! Occupies the calling task for a time of its own, through the busy module.

use std::fs::File;
use std::io::{self, Write};

/// The busy module's device (lab/busy/topolab_busy.c).
const DEVICE: &str = "/dev/topolab-busy";

/// A thread's own handle on the busy device. Threads must not share one: write() on one file description serialises
/// its callers (fs/file.c, `f_pos_lock`), which would make a queue that no real workload has.
pub(crate) struct Burner(Option<File>);

impl Burner {
    /// Opens the device for burns of at most `longest_ns`. Who burns nothing needs no device, so that a model without
    /// modelled work runs, and is tested, where there is none.
    pub(crate) fn new(longest_ns: u64) -> io::Result<Self> {
        match longest_ns {
            0 => Ok(Self(None)),
            _ => File::options().write(true).open(DEVICE).map(|device| Self(Some(device))),
        }
    }

    /// Burns `ns` nanoseconds of the calling task's CPU time.
    pub(crate) fn burn(&mut self, ns: u64) -> io::Result<()> {
        match (ns, &mut self.0) {
            (0, _) => Ok(()),
            (_, Some(device)) => device.write_all(&ns.to_ne_bytes()),
            (_, None) => Err(io::Error::other("a burn by a thread that said it would burn nothing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_burns_nothing_needs_no_device() {
        let mut burner = Burner::new(0).expect("no device is opened");
        assert!(burner.burn(0).is_ok());
        assert!(burner.burn(1).is_err());
    }
}
