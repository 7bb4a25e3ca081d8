//! topolab: reproduce a machine's topology in QEMU guests, and judge scheduler patches on it.
//!
//! Data flows one way: topology → plan → machine → guest → records → statistics → verdict → report. DESIGN and
//! docs/ARCHITECTURE.md say which module may import which.

pub mod apt;
pub mod bench;
pub mod bundle;
pub mod cache;
pub mod cancel;
pub mod cli;
mod digest;
pub mod doctor;
pub mod fault;
pub mod guest;
pub mod image;
pub mod kernel;
mod lock;
pub mod mechanism;
pub mod patch;
pub mod paths;
pub mod plan;
pub mod progress;
pub mod prove;
pub mod qemu;
pub mod report;
pub mod results;
pub mod share;
pub mod splat;
pub mod stats;
pub mod sweep;
pub mod sys;
mod tar;
pub mod topology;
pub mod trials;
pub mod verdict;
