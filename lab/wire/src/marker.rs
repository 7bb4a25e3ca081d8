//! Marker lines: what the agent says on the kernel log, one printk record each.
//!
//! They go through /dev/kmsg because a printk record is never torn by another one, reaches the console file in order
//! with the kernel's own words, and needs no device that could make a deterministic run depend on the host.

use std::fmt;

/// What every marker line starts with, after the kernel's timestamp.
pub const MARKER_PREFIX: &str = "topolab:";

/// A step in the life of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// The agent runs as PID 1 and speaks this protocol version.
    Hello(u32),
    /// The kernel's view of the machine was read.
    Observed,
    /// A repetition begins, counted from 0.
    Repetition(u32),
    /// Everything that counts has happened; what follows only carries results out.
    Measured,
    /// The done-record is on the host's disk.
    Done,
    /// The agent gave up: at which stage, and why.
    Failed(Stage, String),
}

/// The stages of the agent's life at which it can give up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Mounting, the order, the image: what the lab prepared is not as it should be.
    Setup,
    /// Loading the busy module.
    Module,
    /// Reading the kernel's view of the machine.
    Observe,
    /// Running the bundle.
    Work,
    /// Carrying the results out.
    Results,
}

impl Stage {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Setup, "setup"),
        (Self::Module, "module"),
        (Self::Observe, "observe"),
        (Self::Work, "work"),
        (Self::Results, "results"),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(stage, _)| *stage == self).map_or("setup", |(_, word)| word)
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(stage, _)| *stage)
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello(protocol) => write!(f, "{MARKER_PREFIX} hello {protocol}"),
            Self::Observed => write!(f, "{MARKER_PREFIX} observed"),
            Self::Repetition(n) => write!(f, "{MARKER_PREFIX} repetition {n}"),
            Self::Measured => write!(f, "{MARKER_PREFIX} measured"),
            Self::Done => write!(f, "{MARKER_PREFIX} done"),
            Self::Failed(stage, why) => {
                write!(f, "{MARKER_PREFIX} failed {} {}", stage.word(), why.replace('\n', " "))
            }
        }
    }
}

impl Marker {
    /// Reads a marker out of a console line, whatever stands before it; `None` when the line is the kernel's own.
    pub fn parse(line: &str) -> Option<Self> {
        let said = line[line.find(MARKER_PREFIX)? + MARKER_PREFIX.len()..].trim();
        let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
        match word {
            "hello" => rest.parse().ok().map(Self::Hello),
            "observed" => Some(Self::Observed),
            "repetition" => rest.parse().ok().map(Self::Repetition),
            "measured" => Some(Self::Measured),
            "done" => Some(Self::Done),
            "failed" => {
                let (stage, why) = rest.split_once(' ').unwrap_or((rest, ""));
                Some(Self::Failed(Stage::parse(stage)?, why.to_string()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_found_behind_a_timestamp() {
        for marker in [Marker::Hello(1), Marker::Observed, Marker::Repetition(3), Marker::Measured, Marker::Done] {
            assert_eq!(Marker::parse(&format!("[    1.250000] {marker}\r")), Some(marker));
        }
        assert_eq!(
            Marker::parse("[    1.0] topolab: failed setup no such file"),
            Some(Marker::Failed(Stage::Setup, "no such file".into()))
        );
    }

    #[test]
    fn the_kernels_own_lines_are_not_markers() {
        assert_eq!(Marker::parse("[    0.1] smp: Brought up 3 nodes, 24 CPUs"), None);
        assert_eq!(Marker::parse("[    0.1] topolab_busy: loaded"), None);
    }
}
