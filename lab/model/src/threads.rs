//! What every model does with its threads: places them, ends them, joins them.

use crate::{ModelError, trying};
use nix::sched::{CpuSet as Affinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use topolab_wire::CpuSet;

/// Pins the calling thread.
pub(crate) fn pin_self(cpus: &CpuSet) -> io::Result<()> {
    let mut affinity = Affinity::new();
    for cpu in cpus.iter() {
        affinity.set(cpu as usize)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &affinity)?)
}

/// The CPU that the calling thread runs on.
pub(crate) fn this_cpu() -> io::Result<u32> {
    Ok(u32::try_from(sched_getcpu()?).unwrap_or(u32::MAX))
}

/// Raises the flag when it goes out of scope.
pub(crate) struct RaiseOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What a thread returned.
pub(crate) fn joined<T>(who: &str, handle: ScopedJoinHandle<'_, io::Result<T>>) -> Result<T, ModelError> {
    let result = handle.join().map_err(|_| ModelError::NothingMeasured(format!("a {who} thread panicked")))?;
    trying(who, result)
}
