//! The order that the host gives, and the records that must come back.

use crate::CpuSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of everything in this crate. The agent refuses an order of another version.
pub const PROTOCOL: u32 = 2;
/// Where the initramfs carries the order.
pub const ORDER_PATH: &str = "/topolab/order.json";
/// virtiofs tag of the results share.
pub const RESULTS_TAG: &str = "results";
/// Name of the observation in the results share.
pub const OBSERVATION_FILE: &str = "observation.json";
/// Name of the kernel's log in the results share.
pub const KERNEL_LOG_FILE: &str = "kernel.log";
/// Name of the done-record in the results share, always written last.
pub const DONE_FILE: &str = "done.json";

/// Which clock a trial runs on (DESIGN §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Wall time.
    Real,
    /// Instruction time under icount: the same inputs give the same bytes.
    Virtual,
}

/// Where the programs of a bundle come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RootFrom {
    /// Nothing is needed.
    None,
    /// From the initramfs, under `/image`: deterministic.
    Initramfs,
    /// From the read-only virtiofs share with this tag.
    Share(String),
}

/// Everything the agent needs to know, in the initramfs at [`ORDER_PATH`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Name of the trial; returned in the done-record so that no record can be taken for another's.
    pub trial: String,
    /// The clock the guest runs on.
    pub clock: Clock,
    /// Kernel modules to load first, as paths in the initramfs, in this order.
    pub modules: Vec<String>,
    /// Where the programs come from.
    pub root: RootFrom,
    /// CPUs to switch off before observing.
    pub offline: CpuSet,
    /// CPUs to put into an isolated cpuset partition before observing.
    pub partition: CpuSet,
    /// What to do after observing.
    pub work: Work,
    /// The busy module's lines of what the machine charges; nothing when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<String>,
    /// When set, each repetition runs once more with the scheduler's doings counted, by these last-level caches.
    pub count: Option<Vec<CpuSet>>,
}

/// What to do after observing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Nothing more.
    Observe,
    /// Real programs.
    Program(Box<ProgramOrder>),
    /// A modelled workload.
    Model(ModelOrder),
}

/// A command in the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Program and arguments; the program is an absolute path inside the image, or `@NAME` of the agent's own tools.
    pub argv: Vec<String>,
    /// Extra environment.
    pub env: BTreeMap<String, String>,
    /// The CPUs that it may run on; all when `None`.
    pub cpus: Option<CpuSet>,
    /// Its working directory; the root when `None`.
    pub folder: Option<String>,
    /// Deadline in milliseconds of guest time.
    pub deadline_ms: u64,
}

/// How one knows that a service is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    /// It listens on this TCP port of the loopback.
    Tcp(u16),
    /// This file or socket is there.
    File(String),
    /// Its standard output or error says this.
    Says(String),
}

/// A program that runs beside the measured one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// What it is called.
    pub name: String,
    /// The command; its deadline is for getting ready.
    pub step: Step,
    /// When it is ready.
    pub ready: Ready,
}

/// Programs to run in the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramOrder {
    /// Run once, in order, before everything else; each must succeed.
    pub prepare: Vec<Step>,
    /// Started in order before each run, ended after it.
    pub services: Vec<Service>,
    /// What is measured.
    pub measured: Step,
    /// CPUs to put into an isolated cpuset partition while the bundle runs. Steps whose CPUs all lie in it run in it.
    pub isolate: Option<CpuSet>,
    /// CPUs that take received packets and interrupts; the kernel's own choice when `None`.
    pub network: Option<CpuSet>,
    /// Files to appear in /bundle.
    pub files: BTreeMap<String, String>,
    /// Runs whose output is thrown away.
    pub warmup: u32,
    /// Runs that count.
    pub repetitions: u32,
}

/// A parameter's value: a whole number, or one of the words that its declaration lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// A number.
    Number(i64),
    /// A word.
    Word(String),
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// A modelled workload to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelOrder {
    /// Name in the model crate.
    pub model: String,
    /// Parameters by name; the model refuses one that it does not know or that is missing.
    pub params: BTreeMap<String, Setting>,
    /// An rt-app profile, for the model that runs those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Seed of everything random in the model.
    pub seed: u64,
    /// Runs that count.
    pub repetitions: u32,
    /// The machine's nodes as CPU sets, in declared order: models place and count by these.
    pub nodes: Vec<CpuSet>,
    /// The machine's last-level caches as CPU sets.
    pub llcs: Vec<CpuSet>,
}

/// One measured number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Unit: `1/s`, `ms`, `1`, …
    pub unit: String,
    /// The number.
    pub value: f64,
    /// Whether it rests on too few samples to carry a verdict, as a high percentile of a short run does.
    #[serde(default)]
    pub thin: bool,
}

/// What one run of a model says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRecord {
    /// Metrics by name.
    pub metrics: BTreeMap<String, Value>,
    /// Invariants of the model itself: name → whether it held, with the evidence.
    pub invariants: BTreeMap<String, (bool, String)>,
    /// Raw counts behind the metrics, for reports; free form per model.
    pub evidence: BTreeMap<String, Vec<u64>>,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramOutcome {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It was killed because its deadline passed.
    Deadline,
    /// It could not be started, and why.
    NotStarted(String),
    /// A service beside it failed: which, and how.
    Service(String),
}

impl std::fmt::Display for ProgramOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
            Self::Deadline => f.write_str("its deadline passed"),
            Self::NotStarted(why) => write!(f, "not started: {why}"),
            Self::Service(why) => f.write_str(why),
        }
    }
}

/// One repetition that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repetition {
    /// How it ended.
    pub outcome: ProgramOutcome,
    /// Its standard output, a file in the results share.
    pub stdout: String,
    /// Its standard error, a file in the results share.
    pub stderr: String,
    /// A model's record, a file in the results share.
    pub record: Option<String>,
    /// What the program left in `$TOPOLAB_OUT`: its name for a file, and the file in the results share.
    pub files: BTreeMap<String, String>,
    /// The same once more, with the scheduler's doings counted.
    pub counted: Option<Box<Counted>>,
}

/// A run that was counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The run.
    pub run: Repetition,
    /// [`Counts`] as JSON, a file in the results share.
    pub counts: String,
}

/// What the scheduler did during a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// The busy module's lines (lab/busy, `mechanism`).
    pub module: String,
    /// Why the module counted nothing, if it did not.
    pub missing: Option<String>,
    /// /proc/schedstat before the run.
    pub before: String,
    /// /proc/schedstat after it.
    pub after: String,
    /// How long the run took, in nanoseconds of guest time.
    pub elapsed_ns: u64,
}

/// The done-record, written and synced after every other file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// [`Order::trial`].
    pub trial: String,
    /// The repetitions, in order.
    pub repetitions: Vec<Repetition>,
    /// Every file of the results share with its length in bytes, so that a lost write is seen.
    pub files: BTreeMap<String, u64>,
}
