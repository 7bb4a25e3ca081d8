//! Everything that can go wrong, sorted once: what failed decides the exit code, never the wording.

use std::fmt;

/// Who or what failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The user's input is wrong: a flag, a file, a name.
    Input,
    /// A patch does not apply to the kernel.
    Apply,
    /// The kernel does not build, or its configuration cannot be had.
    Build,
    /// The kernel did not come up to the agent: panic, reset or hang.
    Boot,
    /// The kernel died or hung after it had come up.
    Kernel,
    /// The workload itself failed: status, deadline or output that cannot be read.
    Bundle,
    /// The guest's scheduler does not see the declared machine, so nothing may be measured on it.
    Mismatch,
    /// The lab failed: QEMU, virtiofs, disk, memory, packages.
    Lab,
    /// The user ended it.
    Interrupted,
}

impl FaultKind {
    /// The one table of exit codes for failures (DESIGN §7); verdicts add 1 and 3.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Input => 2,
            Self::Apply | Self::Build | Self::Boot | Self::Kernel => 4,
            // Neither a bundle that cannot run nor a machine that is another one says anything about the kernel.
            Self::Bundle | Self::Mismatch | Self::Lab => 5,
            // 128 + SIGINT, as shells do.
            Self::Interrupted => 130,
        }
    }

    /// One word for tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Apply => "apply",
            Self::Build => "build",
            Self::Boot => "boot",
            Self::Kernel => "kernel",
            Self::Bundle => "bundle",
            Self::Mismatch => "mismatch",
            Self::Lab => "lab",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A failure: what, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Who or what failed.
    pub kind: FaultKind,
    /// What is wrong, in one sentence without a capital, so that it can stand behind another.
    pub message: String,
    /// The evidence: the lines of a log, the marked line of a file. May have several lines.
    pub detail: Option<String>,
    /// What to do.
    pub help: Option<String>,
}

/// A result whose failure is a [`Fault`].
pub type Outcome<T> = Result<T, Fault>;

impl Fault {
    /// A fault of this kind.
    pub fn new(kind: FaultKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string(), detail: None, help: None }
    }

    /// The user's input is wrong.
    pub fn input(message: impl fmt::Display) -> Self {
        Self::new(FaultKind::Input, message)
    }

    /// The user's file is wrong at a byte of its text: `FILE:LINE: what`.
    pub fn at(origin: &str, text: &str, byte: usize, what: impl fmt::Display) -> Self {
        let line = text.get(..byte.min(text.len())).map_or(1, |before| before.matches('\n').count() + 1);
        Self::input(format!("{origin}:{line}: {what}"))
    }

    /// The lab failed.
    pub fn lab(message: impl fmt::Display) -> Self {
        Self::new(FaultKind::Lab, message)
    }

    /// Adds the evidence.
    pub fn detail(mut self, detail: impl fmt::Display) -> Self {
        self.detail = Some(detail.to_string());
        self
    }

    /// Adds what to do.
    pub fn help(mut self, help: impl fmt::Display) -> Self {
        self.help = Some(help.to_string());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, "\n\n{}", detail.trim_end())?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n\nhelp: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// Says what was tried when the system refuses.
pub trait Trying<T> {
    /// Turns a system error into a fault of the lab that begins with what was tried.
    fn trying(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T, E: fmt::Display> Trying<T> for Result<T, E> {
    fn trying(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|e| Fault::lab(format!("{what}: {e}")))
    }
}
