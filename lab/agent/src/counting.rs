//! What the scheduler does during a run: the busy module's counters and /proc/schedstat around it.

use std::io;
use std::path::Path;
use std::time::Instant;
use topolab_wire::{Counts, CpuSet};

/// The module's control and data file (lab/busy).
const FILE: &str = "/sys/kernel/debug/topolab/mechanism";
const SCHEDSTAT: &str = "/proc/schedstat";

/// A count that has begun.
pub struct Counting {
    missing: Option<String>,
    before: String,
    begun: Instant,
}

impl Counting {
    /// Begins to count. A kernel that takes no module still has its own statistics.
    pub fn start(llcs: &[CpuSet]) -> io::Result<Self> {
        let missing = begin(llcs).err().map(|e| match Path::new(FILE).exists() {
            true => e.to_string(),
            false => "this kernel has no busy module: let topolab build it".to_string(),
        });
        // From the start of one read to the start of the other, as each CPU's line has its place in both.
        let begun = Instant::now();
        let before = std::fs::read_to_string(SCHEDSTAT)?;
        Ok(Self { missing, before, begun })
    }

    /// Ends the count and returns it.
    pub fn stop(self) -> io::Result<Counts> {
        let elapsed_ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let after = std::fs::read_to_string(SCHEDSTAT)?;
        let module = match &self.missing {
            Some(_) => String::new(),
            None => {
                std::fs::write(FILE, "stop")?;
                std::fs::read_to_string(FILE)?
            }
        };
        Ok(Counts { module, missing: self.missing, before: self.before, after, elapsed_ns })
    }
}

fn begin(llcs: &[CpuSet]) -> io::Result<()> {
    for (id, llc) in llcs.iter().enumerate() {
        for cpu in llc.iter() {
            std::fs::write(FILE, format!("llc {cpu} {id}"))?;
        }
    }
    std::fs::write(FILE, "start")
}
