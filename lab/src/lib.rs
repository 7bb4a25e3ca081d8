//! topolab: reproduce a machine's topology in QEMU guests, and judge scheduler patches on it.
//!
//! Data flows one way: topology → plan → machine → guest → records → statistics → verdict → report. DESIGN and
//! docs/ARCHITECTURE.md say which module may import which.

pub mod apt;
pub mod cancel;
pub mod cli;
pub mod fault;
pub mod kernel;
pub mod paths;
pub mod progress;
pub mod qemu;
pub mod share;
pub mod sys;
pub mod topology;
