//! What a profile says, with every name resolved: kernel objects are indices.

use topolab_wire::CpuSet;

/// A profile.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Profile {
    /// How long it runs, in seconds; `None`: until every task has ended.
    pub(super) seconds: Option<u64>,
    /// The tasks, in the order of the file.
    pub(super) tasks: Vec<Task>,
    /// What the tasks share.
    pub(super) objects: Objects,
}

/// The objects that tasks share, each known by its index.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Objects {
    /// Names of mutexes.
    pub(super) mutexes: Vec<String>,
    /// Names of conditions.
    pub(super) conditions: Vec<String>,
    /// Barriers, with how many must come.
    pub(super) barriers: Vec<(String, usize)>,
    /// Timers that several tasks may use.
    pub(super) timers: Vec<TimerKind>,
}

/// A timer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TimerKind {
    /// Its `ref`.
    pub(super) name: String,
    /// Whether a period that was missed does not move those that follow.
    pub(super) absolute: bool,
}

/// How often something is done; `None`: forever.
pub(super) type Loops = Option<u64>;

/// A task: one thread for each instance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Task {
    /// Its name.
    pub(super) name: String,
    /// How many threads.
    pub(super) instances: usize,
    /// How long a thread sleeps before everything else.
    pub(super) delay_ns: u64,
    /// How often its phases are gone through.
    pub(super) loops: Loops,
    /// Policy and priority.
    pub(super) sched: Sched,
    /// Where it may run when a phase does not say.
    pub(super) cpus: Option<CpuSet>,
    /// Where its memory must come from, from its start.
    pub(super) nodes: Option<CpuSet>,
    /// Its phases, at least one.
    pub(super) phases: Vec<Phase>,
    /// Timers that each of its threads has for itself.
    pub(super) timers: Vec<TimerKind>,
}

/// A part of a task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Phase {
    /// Its name; `None` if the task's events are not divided into phases.
    pub(super) name: Option<String>,
    /// How often it is done.
    pub(super) loops: Loops,
    /// Policy and priority from here on.
    pub(super) sched: Option<Sched>,
    /// Where it runs.
    pub(super) cpus: Option<CpuSet>,
    /// Where memory must come from, from here on.
    pub(super) nodes: Option<CpuSet>,
    /// What it does, in order.
    pub(super) events: Vec<Event>,
}

/// A scheduling policy that threads here may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// SCHED_OTHER
    Other,
    /// SCHED_BATCH
    Batch,
    /// SCHED_IDLE
    Idle,
    /// SCHED_FIFO
    Fifo,
    /// SCHED_RR
    Rr,
}

/// Policy and priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sched {
    /// The policy.
    pub(super) policy: Policy,
    /// The real-time priority, or the nice value.
    pub(super) priority: i32,
}

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// `run`: computes for this long.
    Run(u64),
    /// `runtime`: computes until this much time has passed.
    Runtime(u64),
    /// `sleep`
    Sleep(u64),
    /// `timer`: sleeps to the end of the timer's period.
    Timer(Timer, u64),
    /// `lock`
    Lock(usize),
    /// `unlock`
    Unlock(usize),
    /// `wait`
    Wait(Pair),
    /// `signal`
    Signal(usize),
    /// `broad`
    Broadcast(usize),
    /// `sync`: `signal` and `wait` on one condition.
    Sync(Pair),
    /// `barrier`
    Barrier(usize),
    /// `suspend`
    Suspend(Pair),
    /// `resume`
    Resume(Pair),
    /// `yield`
    Yield,
}

impl Event {
    /// What it computes, in nanoseconds.
    pub(super) fn work_ns(&self) -> u64 {
        match self {
            Self::Run(ns) | Self::Runtime(ns) => *ns,
            _ => 0,
        }
    }
}

/// Whose timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    /// One of [`Objects::timers`].
    Shared(usize),
    /// One of [`Task::timers`].
    Own(usize),
}

/// A condition and the mutex that goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    /// The condition.
    pub(super) condition: usize,
    /// The mutex.
    pub(super) mutex: usize,
}
