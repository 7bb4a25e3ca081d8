//! What the host and the guest agent say to each other.
//!
//! The crate holds types and their serde forms, and refuses to do I/O: the host writes an [`Order`] into the
//! initramfs, the agent answers with marker lines on the kernel log ([`Marker`]) and with files in its results
//! share ([`Observation`], [`Done`]). A trial without its [`Done`] never happened.

mod cpuset;
mod marker;
mod observation;
mod order;

pub use cpuset::{CpuSet, CpuSetError};
pub use marker::{MARKER_PREFIX, Marker, Stage};
pub use observation::{Cache, CacheKind, Cpu, CpuModel, Domain, Firmware, Node, Observation};
pub use order::{
    Clock, Counted, Counts, DONE_FILE, Done, KERNEL_LOG_FILE, ModelOrder, ModelRecord, OBSERVATION_FILE, ORDER_PATH,
    Order, PROTOCOL, ProgramOrder, ProgramOutcome, RESULTS_TAG, Ready, Repetition, RootFrom, Service, Setting, Step,
    Value, Work,
};
