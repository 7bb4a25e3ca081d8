//! Modelled workloads: real tasks, wakeups and sockets of the running kernel, with computing replaced by burned time.
//!
//! A task that burns is busy for the guest's scheduler and free for the host (lab/busy), so that one host thread runs a
//! machine with every CPU busy. A model takes its [`ModelOrder`] and gives a [`ModelRecord`]; it does no other I/O.

mod burn;
mod epoll_fanin;
mod params;
mod percentile;
mod rng;
mod schedstat;
mod wakeups;

pub use rng::SplitMix64;
use std::io;
use topolab_wire::{ModelOrder, ModelRecord, Setting};

/// Why a model could not give a record.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No model of this name.
    #[error("no model is named `{0}`; there is: epoll-fanin")]
    Unknown(String),
    /// A parameter is missing.
    #[error("parameter `{0}` is missing")]
    Missing(&'static str),
    /// A parameter is out of its range.
    #[error("parameter `{name}` is {value}; it must be {rule}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: Setting,
        /// What is allowed.
        rule: String,
    },
    /// A parameter that the model does not have.
    #[error("parameter `{0}` is unknown to this model")]
    UnknownParameter(String),
    /// The kernel refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The run gave nothing to measure.
    #[error("{0}")]
    NothingMeasured(String),
}

/// Adds what was tried to a system error.
fn trying<T, E: Into<io::Error>>(what: &str, result: Result<T, E>) -> Result<T, ModelError> {
    result.map_err(|e| ModelError::System { what: what.to_string(), source: e.into() })
}

/// Runs the model that the order names, once.
pub fn run(order: &ModelOrder) -> Result<ModelRecord, ModelError> {
    match order.model.as_str() {
        "epoll-fanin" => epoll_fanin::run(order),
        other => Err(ModelError::Unknown(other.to_string())),
    }
}
