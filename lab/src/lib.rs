//! topolab: reproduce a machine's topology in QEMU guests, and judge scheduler patches on it.
//!
//! Data flows one way: topology → plan → machine → guest → records → statistics → verdict → report. DESIGN and
//! docs/ARCHITECTURE.md say which module may import which.

pub mod cancel;
pub mod fault;
pub mod paths;
pub mod progress;
pub mod sys;
pub mod topology;
