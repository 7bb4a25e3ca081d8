//! Tasks and their phases.

use super::events::{self, Scope};
use super::fields::{Fields, bad};
use super::json::Json;
use super::profile::{Event, Loops, Objects, Phase, Policy, Sched, Task};
use crate::ModelError;
use std::ops::RangeInclusive;

/// Threads that a profile may have.
pub(super) const MOST_THREADS: i64 = 4096;

/// Properties of rt-app's that cannot be done here, and why.
const REFUSED: [(&str, &str); 9] = [
    ("dl-runtime", DEADLINE),
    ("dl-period", DEADLINE),
    ("dl-deadline", DEADLINE),
    ("period", DEADLINE),
    ("deadline", DEADLINE),
    ("util_min", "utilisation clamps say which frequency is wanted, and the virtual clock has one"),
    ("util_max", "utilisation clamps say which frequency is wanted, and the virtual clock has one"),
    ("taskgroup", "task groups are not modelled"),
    ("phases", "a phase has no phases"),
];

const DEADLINE: &str = "SCHED_DEADLINE's parameters and custom slices are not modelled";

fn why_refused(key: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(name, _)| *name == key).map(|(_, why)| *why)
}

/// A policy by its name.
pub(super) fn policy(path: &str, name: &str) -> Result<Policy, ModelError> {
    match name {
        "SCHED_OTHER" => Ok(Policy::Other),
        "SCHED_BATCH" => Ok(Policy::Batch),
        "SCHED_IDLE" => Ok(Policy::Idle),
        "SCHED_FIFO" => Ok(Policy::Fifo),
        "SCHED_RR" => Ok(Policy::Rr),
        "SCHED_DEADLINE" => Err(bad(path, "SCHED_DEADLINE is not modelled")),
        _ => Err(bad(path, format!("`{name}` is no policy"))),
    }
}

impl Policy {
    /// What a priority is allowed to be, and what it is if nothing is said.
    fn priorities(self) -> (RangeInclusive<i64>, i64) {
        match self {
            Self::Other | Self::Batch | Self::Idle => (-20..=19, 0),
            Self::Fifo | Self::Rr => (1..=99, 10),
        }
    }
}

/// Takes policy and priority. Nothing if neither is there; a priority alone leaves the policy.
fn sched(fields: &mut Fields<'_>, current: Policy) -> Result<Option<Sched>, ModelError> {
    let named = fields.take_text("policy")?.map(|name| policy(&fields.path("policy"), name)).transpose()?;
    let policy = named.unwrap_or(current);
    let (range, default) = policy.priorities();
    let priority = fields.take_int("priority", range)?;
    if named.is_none() && priority.is_none() {
        return Ok(None);
    }
    Ok(Some(Sched { policy, priority: i32::try_from(priority.unwrap_or(default)).unwrap_or(0) }))
}

/// Takes `loop`; -1 is forever.
fn loops(fields: &mut Fields<'_>, least: i64) -> Result<Option<Loops>, ModelError> {
    match fields.take_int("loop", -1..=i64::from(i32::MAX))? {
        None => Ok(None),
        Some(-1) => Ok(Some(None)),
        Some(number) if number >= least => Ok(Some(Some(number.unsigned_abs()))),
        Some(_) => Err(bad(fields.path("loop"), "is 0, which rt-app takes for forever; say -1, or 1 and more")),
    }
}

/// Reads a task that stands at `path`.
pub(super) fn task(
    path: &str,
    name: &str,
    json: &Json,
    default_policy: Policy,
    objects: &mut Objects,
) -> Result<Task, ModelError> {
    if name.is_empty() || name.contains('\0') {
        return Err(bad(path, "is no name for a task"));
    }
    let mut fields = Fields::new(path, json)?;
    let given = sched(&mut fields, default_policy)?;
    let sched = given.unwrap_or(Sched { policy: default_policy, priority: default_policy.priorities().1 as i32 });
    let cpus = fields.take_set("cpus")?;
    let nodes = fields.take_set("nodes_membind")?;
    let delay_ns = fields.take("delay")?.map_or(Ok(0), |value| events::ns(&fields.path("delay"), value))?;
    let instances = fields.take_int("instance", 0..=MOST_THREADS)?.unwrap_or(1).unsigned_abs() as usize;
    let mut timers = Vec::new();
    let mut scope = Scope { task: name, instances, objects, timers: &mut timers };
    let in_phases = fields.take("phases")?;
    let (loops, phases) = match in_phases {
        Some(phases) => {
            (loops(&mut fields, 0)?.unwrap_or(None), phases_of(&fields.path("phases"), phases, sched, &mut scope)?)
        }
        None => {
            // What a task without phases loops is its only phase: not at all said is forever.
            let given = loops(&mut fields, 1)?;
            let events = events_of(&mut fields, &mut scope)?;
            let phase =
                Phase { name: None, loops: given.unwrap_or(Some(1)), sched: None, cpus: None, nodes: None, events };
            (given.map(|_| 1), vec![phase])
        }
    };
    fields.finish(|key| match (in_phases.is_some(), events::is_event(key)) {
        (true, true) => Some("the task has phases, so its events belong into them"),
        _ => why_refused(key),
    })?;
    Ok(Task { name: name.to_string(), instances, delay_ns, loops, sched, cpus, nodes, phases, timers })
}

/// Reads phases. As with events, a name that comes again is a phase of its own.
fn phases_of(path: &str, json: &Json, sched: Sched, scope: &mut Scope<'_>) -> Result<Vec<Phase>, ModelError> {
    let named = Fields::new(path, json)?.take_all(|_| true);
    if named.is_empty() {
        return Err(bad(path, "is empty"));
    }
    let mut policy = sched.policy;
    let one = |(name, json): (&str, &Json)| {
        let phase = phase(&format!("{path}.{name}"), name, json, policy, scope)?;
        policy = phase.sched.map_or(policy, |sched| sched.policy);
        Ok(phase)
    };
    named.into_iter().map(one).collect()
}

fn phase(path: &str, name: &str, json: &Json, current: Policy, scope: &mut Scope<'_>) -> Result<Phase, ModelError> {
    let mut fields = Fields::new(path, json)?;
    let phase = Phase {
        name: Some(name.to_string()),
        loops: loops(&mut fields, 1)?.unwrap_or(Some(1)),
        sched: sched(&mut fields, current)?,
        cpus: fields.take_set("cpus")?,
        nodes: fields.take_set("nodes_membind")?,
        events: events_of(&mut fields, scope)?,
    };
    fields.finish(|key| match key {
        "instance" | "delay" => Some("is a task's and not a phase's"),
        _ => why_refused(key),
    })?;
    Ok(phase)
}

/// Takes the events. A key that comes again is an event of its own: rt-app itself would lose all but the last, and its
/// front end, workgen, gives each a number of its own, which is what such a profile means.
fn events_of(fields: &mut Fields<'_>, scope: &mut Scope<'_>) -> Result<Vec<Event>, ModelError> {
    let taken = fields.take_all(events::is_event);
    if taken.is_empty() {
        return Err(bad(fields.here(), "has no event"));
    }
    taken.into_iter().map(|(key, value)| scope.event(key, &fields.path(key), value)).collect()
}
