//! `rt-app`: runs a profile of rt-app (scheduler-tools/rt-app, doc/tutorial.txt) with its computing burned.
//!
//! | a profile's | here |
//! |---|---|
//! | task, instance | a thread, named TASK-NUMBER |
//! | `run` | burned: a run takes what it says of a CPU at full speed, on every CPU |
//! | `runtime` | burned in steps of 32 µs until that much time has passed |
//! | `sleep`, `timer`, `delay` | clock_nanosleep |
//! | `lock`, `unlock`, `wait`, `signal`, `broad`, `sync`, `barrier`, `suspend`, `resume` | futexes, called when and as the C library calls them |
//! | `policy`, `priority`, `cpus`, `nodes_membind`, `yield` | the system calls |
//!
//! As in rt-app's code, which its manual does not always follow: `sync` signals and waits, and locks nothing by itself;
//! `suspend` waits on a condition with its task's name, so that a `resume` before it is lost; a task's timers count from the
//! common beginning and its delay; `loop` of a task without phases is its only phase's. Otherwise than there: a key that
//! comes again is an event or a phase of its own (workgen, its front end, has it so); a barrier stands again when it opens; in a task
//! without phases a key that is exactly `runtime` is the event and not a slice too; what is unknown is an error.
//!
//! The run ends after `global.duration` or `duration_ms`, or when all tasks have ended; who still waits then is released.
//!
//! `wakeup_latency_us`: from a timer's end, or from the call that ended a `wait`, `sync`, `suspend` or `barrier`, until the
//! thread ran. `slack_us`: from a thread's coming to a timer until that timer's end; negative if it came late. `in_time`: how many
//! did not, which is what can be judged, because a verdict needs positive numbers. `period_us.TASK.PHASE`: how long a phase took. `loops_per_s`: phases done, of all tasks and of each.

mod clock;
mod condition;
mod events;
mod fields;
mod json;
mod mutex;
mod objects;
mod parse;
mod profile;
mod record;
mod roll;
mod sched;
mod tasks;
mod worker;

use crate::machine::Watch;
use crate::params::Params;
use crate::threads::joined;
use crate::{ModelError, trying};
use fields::bad;
use objects::Shared;
use profile::{Profile, Task};
use roll::{Roll, Span};
use std::time::Duration;
use topolab_wire::{CpuSet, ModelOrder, ModelRecord};
use worker::{Samples, Stage};

/// The longest that a run may take, and what one without an end is given.
const LONGEST_MS: u64 = 600_000;

/// What is run.
#[derive(Debug)]
struct Script {
    profile: Profile,
    /// How long; `None`: until all tasks have ended.
    duration: Option<Duration>,
}

impl Script {
    fn new(order: &ModelOrder) -> Result<Self, ModelError> {
        let mut params = Params::new(&order.params);
        let given_ms = params.take("duration_ms", 0..=LONGEST_MS as i64)?;
        params.finish()?;
        let text = order.profile.as_deref().ok_or(ModelError::Missing("profile"))?;
        let profile = parse::parse(text)?;
        places_exist(&profile, order)?;
        let said_ms = profile.seconds.map(|seconds| seconds.saturating_mul(1000));
        let milliseconds = if given_ms > 0 { Some(given_ms) } else { said_ms };
        if milliseconds.is_some_and(|ms| ms > LONGEST_MS) {
            return Err(bad("global.duration", format!("is beyond {} s; duration_ms overrides it", LONGEST_MS / 1000)));
        }
        let endless = |task: &&Task| {
            let forever = task.loops.is_none() || task.phases.iter().any(|phase| phase.loops.is_none());
            forever && task.instances > 0
        };
        match (milliseconds, profile.tasks.iter().find(endless)) {
            (None, Some(task)) => {
                let why = format!("waits for all tasks to end, and `{}` loops forever; duration_ms ends it", task.name);
                Err(bad("global.duration", why))
            }
            _ => Ok(Self { profile, duration: milliseconds.map(Duration::from_millis) }),
        }
    }
}

/// Checks that the machine has the CPUs and nodes that a profile names.
fn places_exist(profile: &Profile, order: &ModelOrder) -> Result<(), ModelError> {
    let machine: CpuSet = order.nodes.iter().flat_map(CpuSet::iter).collect();
    let nodes = CpuSet::range(0, order.nodes.len() as u32);
    let known = |path: String, wanted: &Option<CpuSet>, there: &CpuSet| match wanted {
        Some(set) if !set.is_subset(there) => {
            Err(bad(path, format!("the machine has no {}; it has {there}", set.difference(there))))
        }
        _ => Ok(()),
    };
    for task in &profile.tasks {
        let path = format!("tasks.{}", task.name);
        known(format!("{path}.cpus"), &task.cpus, &machine)?;
        known(format!("{path}.nodes_membind"), &task.nodes, &nodes)?;
        for phase in &task.phases {
            let path = format!("{path}.phases.{}", phase.name.as_deref().unwrap_or_default());
            known(format!("{path}.cpus"), &phase.cpus, &machine)?;
            known(format!("{path}.nodes_membind"), &phase.nodes, &nodes)?;
        }
    }
    Ok(())
}

/// Ends the threads when it goes out of scope.
struct EndOnDrop<'a>(&'a Stage);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What a run measured.
struct Measured<'a, M> {
    /// Of each thread, with its task.
    samples: Vec<(&'a Task, Samples)>,
    /// From the beginning to the end of the last task, or of the time.
    elapsed: Duration,
    machine: M,
}

/// Runs the workload once.
pub(crate) fn run(order: &ModelOrder) -> Result<ModelRecord, ModelError> {
    let script = Script::new(order)?;
    let measured = play(&script, Watch::start, |watch| watch.stop(order))?;
    record::record(measured, order)
}

/// Runs the profile, measured between `start` and `stop`.
fn play<W, M>(
    script: &Script,
    start: impl FnOnce() -> Result<W, ModelError>,
    stop: impl FnOnce(W) -> Result<M, ModelError>,
) -> Result<Measured<'_, M>, ModelError> {
    let tasks = || script.profile.tasks.iter().flat_map(|task| std::iter::repeat_n(task, task.instances));
    let stage = &Stage::new(Roll::new(tasks().count()), Shared::new(&script.profile.objects));
    let longest = script.duration.unwrap_or(Duration::from_millis(LONGEST_MS));
    std::thread::scope(|scope| {
        let ending = EndOnDrop(stage);
        let mut threads = Vec::new();
        for task in tasks() {
            let builder = std::thread::Builder::new().name(format!("{}-{}", task.name, threads.len()));
            let thread = builder.spawn_scoped(scope, || worker::run(stage, task));
            threads.push((task, trying(&task.name, thread)?));
        }
        stage.roll.until_all_came();
        let watch = start()?;
        let began = trying("clock", clock::now())?;
        let span = Span { start: began, end: began + longest.as_nanos() as u64 };
        stage.roll.begin(span);
        stage.roll.until_all_left(longest);
        let machine = stop(watch)?;
        drop(ending);
        let mut samples = Vec::new();
        for (task, thread) in threads {
            samples.push((task, joined(&format!("task {}", task.name), thread)?));
        }
        let last = samples.iter().map(|(_, samples)| samples.ended).collect::<Option<Vec<_>>>();
        if let (None, None) = (&last, script.duration) {
            return Err(not_ended(&samples));
        }
        let end = last.and_then(|ends| ends.into_iter().max()).map_or(span.end, |last| last.min(span.end));
        Ok(Measured { samples, elapsed: Duration::from_nanos(end - began), machine })
    })
}

/// The error of a profile that should end by itself and did not.
fn not_ended(samples: &[(&Task, Samples)]) -> ModelError {
    let mut names: Vec<&str> =
        samples.iter().filter(|(_, samples)| samples.ended.is_none()).map(|(task, _)| task.name.as_str()).collect();
    names.dedup();
    let names = names.join(", ");
    ModelError::NothingMeasured(format!("after {} s these tasks had not ended: {names}", LONGEST_MS / 1000))
}

#[cfg(test)]
mod tests;
