//! What the user sees while it works: bars on a terminal, plain lines otherwise, nothing when quiet; always on stderr.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::Duration;

/// Where progress goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nowhere.
    Quiet,
    /// One line per step.
    Lines,
    /// Bars that redraw themselves.
    Bars,
}

impl Progress {
    /// As the user and the terminal want it.
    pub fn choose(quiet: bool) -> Self {
        match (quiet, stderr().is_terminal()) {
            (true, _) => Self::Quiet,
            (false, true) => Self::Bars,
            (false, false) => Self::Lines,
        }
    }

    /// Says one thing.
    pub fn say(self, text: impl std::fmt::Display) {
        match self {
            Self::Quiet => {}
            Self::Lines | Self::Bars => eprintln!("{text}"),
        }
    }

    /// A step with a count; `total` may be an estimate.
    pub fn count(self, what: &str, total: u64) -> Counter {
        let bar = ProgressBar::with_draw_target(
            Some(total),
            match self {
                Self::Bars => ProgressDrawTarget::stderr_with_hz(4),
                Self::Quiet | Self::Lines => ProgressDrawTarget::hidden(),
            },
        );
        // The template is a constant; a typing error in it would only lose the decoration.
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_string());
        bar.enable_steady_tick(Duration::from_millis(500));
        if self == Self::Lines {
            eprintln!("{what} …");
        }
        Counter { bar, lines: self == Self::Lines, what: what.to_string(), said: 0 }
    }
}

/// A running step.
pub struct Counter {
    bar: ProgressBar,
    lines: bool,
    what: String,
    said: u64,
}

impl Counter {
    /// Moves on to `done`; the total grows when the estimate was too low.
    pub fn at(&mut self, done: u64) {
        if self.bar.length().is_some_and(|total| done > total) {
            self.bar.set_length(done);
        }
        self.bar.set_position(done);
        // On a plain log every fifth of the way is enough.
        let step = (self.bar.length().unwrap_or(0) / 5).max(1);
        if self.lines && done / step > self.said {
            self.said = done / step;
            eprintln!("{}: {done}/{}", self.what, self.bar.length().unwrap_or(done));
        }
    }

    /// Ends the step.
    pub fn end(self) {
        self.bar.finish_and_clear();
    }
}
