//! Modelled workloads: real tasks, wakeups and sockets of the running kernel, with computing replaced by burned time.
//!
//! A task that burns is busy for the guest's scheduler and free for the host (lab/busy), so that one host thread runs a
//! machine with every CPU busy. A model takes its [`ModelOrder`] and gives a [`ModelRecord`]; it does no other I/O.

mod burn;
mod engine_ipc;
mod epoll_fanin;
mod futex;
mod futex_pair;
mod machine;
mod message_groups;
mod pair;
mod params;
mod percentile;
mod pipe_pair;
mod polled;
mod report;
mod rng;
mod rt_app;
mod schedstat;
mod scheduler_messages;
mod threads;
mod wakeups;
mod window;

pub use futex::{Scope, futex_wait, futex_wake};
pub use percentile::is_thin;
pub use rng::SplitMix64;
use std::io;
use topolab_wire::{ModelOrder, ModelRecord, Setting};

/// How a model is run.
type Run = fn(&ModelOrder) -> Result<ModelRecord, ModelError>;

/// Every model, sorted by name.
const MODELS: [(&str, Run); 7] = [
    ("engine-ipc", engine_ipc::run),
    ("epoll-fanin", epoll_fanin::run),
    ("futex-pair", futex_pair::run),
    ("message-groups", message_groups::run),
    ("pipe-pair", pipe_pair::run),
    ("rt-app", rt_app::run),
    ("scheduler-messages", scheduler_messages::run),
];

/// The models' names, in one line.
fn names() -> String {
    MODELS.map(|(name, _)| name).join(" ")
}

/// Why a model could not give a record.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No model of this name.
    #[error("no model is named `{0}`; there is: {names}", names = names())]
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
    /// A profile says something that the model cannot do, or that is wrong.
    #[error("{path}: {why}")]
    Profile {
        /// Where in the profile, as keys joined by dots.
        path: String,
        /// What is wrong.
        why: String,
    },
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
    let named = MODELS.iter().find(|(name, _)| *name == order.model);
    let (_, run) = named.ok_or_else(|| ModelError::Unknown(order.model.clone()))?;
    run(order)
}

/// An order for tests: one run, seed 1, of `defaults` with what is `given` over them, on these nodes.
#[cfg(test)]
fn test_order(
    model: &str,
    defaults: &[(&str, i64)],
    given: &[(&str, i64)],
    nodes: &[topolab_wire::CpuSet],
) -> ModelOrder {
    let all = defaults.iter().chain(given);
    ModelOrder {
        model: model.into(),
        params: all.map(|(name, value)| (name.to_string(), Setting::Number(*value))).collect(),
        profile: None,
        seed: 1,
        repetitions: 1,
        nodes: nodes.to_vec(),
        llcs: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_model_is_told_which_there_are() {
        let said = ModelError::Unknown("x".into()).to_string();
        assert!(MODELS.iter().all(|(name, _)| said.contains(name)), "{said}");
        assert!(MODELS.is_sorted_by_key(|(name, _)| *name));
    }
}
