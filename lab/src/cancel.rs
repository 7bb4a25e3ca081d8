//! Ctrl-C: one flag that every wait looks at.

use crate::fault::{Fault, FaultKind, Outcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the user wants to stop. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that SIGINT, SIGTERM and SIGHUP raise. A second signal ends the process at once, as people expect when the
    /// first one seems to hang; children then die with it (see `sys`).
    pub fn on_signals() -> Self {
        let cancel = Self::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            // Without the handlers the default action ends the lab, and its children with it.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&cancel.0));
            let _ = signal_hook::flag::register(signal, Arc::clone(&cancel.0));
        }
        cancel
    }

    /// Whether the flag is up.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises the flag.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// An interruption as a fault, when the flag is up.
    pub fn check(&self) -> Outcome<()> {
        match self.requested() {
            true => Err(Fault::new(FaultKind::Interrupted, "interrupted")),
            false => Ok(()),
        }
    }
}
