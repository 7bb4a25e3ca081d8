//! A checked bundle.

use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use topolab_wire::{Clock, Setting};

use super::sum::Sum;
use crate::topology::Arch;

/// Which direction of a metric is an improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// A fact beside the verdict.
    Neither,
}

/// What values a parameter may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Whole numbers from one to another, both included.
    Number {
        /// The least.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// One of these words, each with what stands for it on a command line.
    Choice(Vec<Choice>),
}

/// A word that a parameter may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The word.
    pub word: String,
    /// What is put into commands for it; a command's word that is empty then is left out.
    pub text: String,
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Param {
    /// Its name on the command line.
    pub name: String,
    /// What it means, with its unit.
    pub about: String,
    /// Its value unless given.
    pub default: Setting,
    /// What it may be.
    pub kind: Kind,
}

/// Which of a run's outputs holds something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file that the program left in `$TOPOLAB_OUT`.
    File(String),
}

impl std::fmt::Display for From {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stdout => "standard output",
            Self::Stderr => "standard error",
            Self::File(name) => name,
        })
    }
}

/// What becomes of several numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// The first counts.
    First,
    /// The last counts.
    Last,
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The least.
    Min,
    /// The largest.
    Max,
}

/// How a number is found in an output.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reading {
    /// The first group of a regular expression, at every place where it matches.
    Regex(String, Over),
    /// The number at a JSON pointer (RFC 6901).
    Json(String),
    /// The cell of a table of words: in the first line that begins with `row` below the first line that has the word `column`, the
    /// word at that place.
    Table {
        /// First word of the row.
        row: String,
        /// A word of the heading.
        column: String,
    },
    /// A percentile of the HdrHistogram that the output holds, in the histogram log's own form (base64, `HISTF…`).
    Hdr {
        /// The percentile.
        percentile: f64,
        /// What a recorded value is multiplied by to be in the metric's unit.
        scale: f64,
    },
}

/// A metric, or several by a name that ends in `*`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricDecl {
    /// Name; a `*` at the end stands for anything.
    pub name: String,
    /// Unit.
    pub unit: String,
    /// Direction.
    pub better: Better,
    /// Recorded and judged, but left out of the table.
    pub hidden: bool,
    /// Where a program's output has it.
    pub from: From,
    /// How it is read; a model reports its metrics itself.
    pub reading: Option<Reading>,
    /// For a percentile: which one, and how the number of its samples is read.
    pub rank: Option<(f64, Reading)>,
}

/// What an output must or must not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Promise {
    /// Name of the invariant.
    pub name: String,
    /// Where.
    pub from: From,
    /// The expression that must match, if any.
    pub says: Option<String>,
    /// The expression that must not match, if any.
    pub never: Option<String>,
}

/// Where something runs, as written: `all`, `node:1`, `llc:{n}`, `package:0`, `cpus:0-3,8`, or `not` and one of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place(pub String);

/// A command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepDecl {
    /// Program and arguments; `{name}` stands for a parameter. `@NAME` is a program of the lab's own.
    pub argv: Vec<String>,
    /// Environment.
    pub env: BTreeMap<String, String>,
    /// Where it runs.
    pub cpus: Place,
    /// Its working directory; the root when `None`.
    pub folder: Option<String>,
    /// Deadline in seconds of guest time.
    pub deadline_s: u64,
}

/// How one knows that a service is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Starts {
    /// It listens on this TCP port of the loopback.
    Tcp(String),
    /// A file or socket is there.
    File(String),
    /// Its output says this.
    Says(String),
}

/// A program that runs beside the measured one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceDecl {
    /// What it is called in faults and file names.
    pub name: String,
    /// The command; its deadline is for getting ready.
    pub step: StepDecl,
    /// When it is ready.
    pub ready: Starts,
}

/// A program that Debian lacks and the user supplies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Supply {
    /// Its name: `--source NAME=PATH`.
    pub name: String,
    /// What it is and where people get it.
    pub about: String,
    /// How it is built, in its folder; nothing to build when empty.
    pub build: Vec<String>,
    /// What of it goes into the image, below /opt/NAME: paths in its folder.
    pub take: Vec<String>,
    /// The nearest bundle that needs nothing of the user.
    pub stand_in: Option<String>,
}

/// Programs of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// The image; none where every program is the lab's own.
    pub image: Option<String>,
    /// What the user supplies.
    pub supplies: Vec<Supply>,
    /// Run once, in order, before everything else.
    pub prepare: Vec<StepDecl>,
    /// Started in order before each run, ended after it.
    pub services: Vec<ServiceDecl>,
    /// What is measured.
    pub measured: StepDecl,
    /// Runs that do not count.
    pub warmup: u32,
    /// CPUs in a cpuset partition of their own while the bundle runs.
    pub isolate: Option<Place>,
    /// CPUs that take what a network card would bring: receive packet steering of every interface, and interrupts.
    pub network: Option<Place>,
    /// Files beside bundle.toml, to appear in /bundle.
    pub files: BTreeMap<String, String>,
}

/// A model of the lab's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// The file beside bundle.toml with the profile that it runs, if it runs one; `{name}` stands for a parameter.
    pub profile: Option<String>,
    /// The files beside bundle.toml.
    pub files: BTreeMap<String, String>,
}

/// What a bundle runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Runs {
    /// A model.
    Model(Box<Model>),
    /// Programs.
    Program(Box<Program>),
}

/// A checked bundle.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bundle {
    /// Its name.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Clocks on which it means something.
    pub clocks: Vec<Clock>,
    /// Architectures that have its programs.
    pub architectures: Vec<Arch>,
    /// What it runs.
    pub runs: Runs,
    /// Kernel symbols that it needs, as configuration lines.
    pub kernel: Vec<String>,
    /// Memory that it needs beside the kernel's, in MiB.
    pub memory_mib: u64,
    /// Parameters.
    pub params: Vec<Param>,
    /// Numbers that follow from parameters and the machine, by name.
    #[serde(skip)]
    pub derived: Vec<(String, Sum)>,
    /// Metrics.
    pub metrics: Vec<MetricDecl>,
    /// What must hold of its output.
    pub promises: Vec<Promise>,
    /// The folder that it was loaded from; none for a built-in one.
    #[serde(skip)]
    pub folder: Option<PathBuf>,
}

impl Bundle {
    /// The names of what the user must supply.
    pub fn sources(&self) -> Vec<&str> {
        match &self.runs {
            Runs::Model(_) => Vec::new(),
            Runs::Program(program) => program.supplies.iter().map(|supply| supply.name.as_str()).collect(),
        }
    }

    /// The programs that it starts, as written.
    pub fn programs(&self) -> Vec<&str> {
        match &self.runs {
            Runs::Model(_) => Vec::new(),
            Runs::Program(program) => {
                let services = program.services.iter().map(|service| &service.step);
                let steps = program.prepare.iter().chain(services).chain([&program.measured]);
                steps.filter_map(|step| step.argv.first().map(String::as_str)).collect()
            }
        }
    }

    /// The declaration that a metric's name falls under.
    pub fn metric(&self, name: &str) -> Option<&MetricDecl> {
        let fits = |decl: &&MetricDecl| match decl.name.strip_suffix('*') {
            Some(stem) => name.starts_with(stem),
            None => decl.name == name,
        };
        self.metrics.iter().find(fits)
    }
}
