//! What can go wrong in a tool, said so that a bundle's author can act on it.

use std::io;
use std::net::SocketAddr;

/// Why a tool gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No tool of this name.
    #[error("no tool is named `{name}`; there is: {known}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A word stands where a flag should.
    #[error("`{0}` is no flag; arguments are pairs of --NAME VALUE")]
    NotAFlag(String),
    /// A flag is the last word.
    #[error("--{0} has no value after it")]
    NoValue(String),
    /// A flag is given more than once.
    #[error("--{0} is given twice; give it once")]
    Twice(String),
    /// A flag without a default is not given.
    #[error("--{0} is missing")]
    MissingFlag(&'static str),
    /// A flag that the tool does not have.
    #[error("--{flag} is unknown to this tool; it takes: {known}")]
    UnknownFlag {
        /// The flag, without its dashes.
        flag: String,
        /// What the tool takes.
        known: String,
    },
    /// A value that its flag does not allow.
    #[error("--{flag} is `{value}`; it must be {rule}")]
    BadValue {
        /// The flag, without its dashes.
        flag: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        rule: String,
    },
    /// Nobody listens at the address.
    #[error("{address} refused the connection; is the server up, and does it listen on this address?")]
    Refused {
        /// Where the tool connected to.
        address: SocketAddr,
    },
    /// The kernel refused something.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The server said something that its protocol does not allow here, or an error of its own.
    #[error("{server}: {said}")]
    Server {
        /// Who said it: an address, or a request to it.
        server: String,
        /// What it said or did.
        said: String,
    },
    /// The server was not ready in time.
    #[error("{address} was not ready after {seconds} s (--wait-s): {last}")]
    NotReady {
        /// Where the tool connected to.
        address: SocketAddr,
        /// How long the tool waited, in seconds.
        seconds: u64,
        /// How the last try ended.
        last: String,
    },
    /// A histogram could not be made, added or written; a fault of the tool.
    #[error("latency histogram: {0}")]
    Histogram(String),
    /// A thread of the tool panicked; a fault of the tool.
    #[error("a thread of the tool panicked")]
    Panicked,
    /// The run gave nothing to measure.
    #[error("{0}")]
    NothingMeasured(String),
}

/// Adds what was tried to a system error.
pub(crate) fn trying<T, E: Into<io::Error>>(what: impl ToString, result: Result<T, E>) -> Result<T, ToolError> {
    result.map_err(|e| ToolError::System { what: what.to_string(), source: e.into() })
}
