//! The guest's side of topolab, as a library so that the host can read a /sys tree with the same eyes.
//!
//! The binary is PID 1 of every guest. Its life is one straight line: mount, say hello, read the order, observe, run,
//! write the records, say done, power off. It never waits for the host and never retries: the host holds the deadlines.

pub mod counting;
pub mod exec;
pub mod init;
pub mod kmsg;
pub mod observe;
pub mod results;
pub mod service;
pub mod work;
