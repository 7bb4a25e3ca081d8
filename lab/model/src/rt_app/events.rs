//! Events: an event's key is a verb with any suffix (`run`, `run0`, `sleep_a`), and the longest verb counts.

use super::fields::{Fields, bad, int, text};
use super::json::Json;
use super::profile::{Event, Objects, Pair, Timer, TimerKind};
use crate::ModelError;
use std::ops::RangeInclusive;

/// What an event's key begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Run,
    Runtime,
    Sleep,
    Timer,
    Lock,
    Unlock,
    Wait,
    Signal,
    Broadcast,
    Sync,
    Barrier,
    Suspend,
    Resume,
    Yield,
    /// One of rt-app's that cannot be done here, and why.
    Refused(&'static str),
}

const MEMORY: &str = "memory traffic is not modelled: a burned CPU touches no cache";

/// Every verb of rt-app (src/rt-app_parse_config.c, `events`).
const VERBS: [(&str, Verb); 20] = [
    ("run", Verb::Run),
    ("runtime", Verb::Runtime),
    ("sleep", Verb::Sleep),
    ("timer", Verb::Timer),
    ("lock", Verb::Lock),
    ("unlock", Verb::Unlock),
    ("wait", Verb::Wait),
    ("signal", Verb::Signal),
    ("broad", Verb::Broadcast),
    ("sync", Verb::Sync),
    ("barrier", Verb::Barrier),
    ("suspend", Verb::Suspend),
    ("resume", Verb::Resume),
    ("yield", Verb::Yield),
    ("mem", Verb::Refused(MEMORY)),
    ("memrun", Verb::Refused(MEMORY)),
    ("iorun", Verb::Refused("input and output are not modelled")),
    ("fork", Verb::Refused("tasks are made at the start only")),
    ("sem_post", Verb::Refused("semaphores are not modelled")),
    ("sem_wait", Verb::Refused("semaphores are not modelled")),
];

fn verb(key: &str) -> Option<Verb> {
    let fitting = VERBS.iter().filter(|(verb, _)| key.starts_with(verb));
    fitting.max_by_key(|(verb, _)| verb.len()).map(|(_, verb)| *verb)
}

/// Whether a key is an event's.
pub(super) fn is_event(key: &str) -> bool {
    verb(key).is_some()
}

/// Microseconds that one event may take: what rt-app's int holds, below the busy module's bound.
const MICROSECONDS: RangeInclusive<i64> = 0..=600_000_000;

/// Microseconds as nanoseconds.
pub(super) fn ns(path: &str, value: &Json) -> Result<u64, ModelError> {
    Ok(int(path, value, MICROSECONDS)?.unsigned_abs() * 1000)
}

/// What events refer to, added as it is met.
pub(super) struct Scope<'a> {
    /// The task's name, which is that of the condition and the mutex that it is suspended on.
    pub(super) task: &'a str,
    /// The task's instances, each of which comes to every barrier.
    pub(super) instances: usize,
    /// What the tasks share.
    pub(super) objects: &'a mut Objects,
    /// The task's own timers.
    pub(super) timers: &'a mut Vec<TimerKind>,
}

impl Scope<'_> {
    /// Reads an event that stands at `path`.
    pub(super) fn event(&mut self, key: &str, path: &str, value: &Json) -> Result<Event, ModelError> {
        match verb(key) {
            Some(Verb::Run) => Ok(Event::Run(ns(path, value)?)),
            Some(Verb::Runtime) => Ok(Event::Runtime(ns(path, value)?)),
            Some(Verb::Sleep) => Ok(Event::Sleep(ns(path, value)?)),
            Some(Verb::Timer) => self.timer(path, value),
            Some(Verb::Lock) => Ok(Event::Lock(index(&mut self.objects.mutexes, text(path, value)?))),
            Some(Verb::Unlock) => Ok(Event::Unlock(index(&mut self.objects.mutexes, text(path, value)?))),
            Some(Verb::Wait) => Ok(Event::Wait(self.two_names(path, value)?)),
            Some(Verb::Signal) => Ok(Event::Signal(index(&mut self.objects.conditions, text(path, value)?))),
            Some(Verb::Broadcast) => Ok(Event::Broadcast(index(&mut self.objects.conditions, text(path, value)?))),
            Some(Verb::Sync) => Ok(Event::Sync(self.two_names(path, value)?)),
            Some(Verb::Barrier) => Ok(self.barrier(text(path, value)?)),
            // As in rt-app, what these are set to does not matter.
            Some(Verb::Suspend) => Ok(Event::Suspend(self.pair(self.task, self.task))),
            Some(Verb::Yield) => Ok(Event::Yield),
            Some(Verb::Resume) => {
                let name = text(path, value)?;
                Ok(Event::Resume(self.pair(name, name)))
            }
            Some(Verb::Refused(why)) => Err(bad(path, why)),
            None => Err(bad(path, "is no event")),
        }
    }

    fn pair(&mut self, condition: &str, mutex: &str) -> Pair {
        Pair {
            condition: index(&mut self.objects.conditions, condition),
            mutex: index(&mut self.objects.mutexes, mutex),
        }
    }

    /// `{"ref": condition, "mutex": mutex}`
    fn two_names(&mut self, path: &str, value: &Json) -> Result<Pair, ModelError> {
        let mut fields = Fields::new(path, value)?;
        let condition = fields.take_text("ref")?.unwrap_or(UNNAMED);
        let mutex = fields.take_text("mutex")?.unwrap_or(UNNAMED);
        fields.finish(|_| None)?;
        Ok(self.pair(condition, mutex))
    }

    fn barrier(&mut self, name: &str) -> Event {
        let barriers = &mut self.objects.barriers;
        let found = barriers.iter().position(|(known, _)| known == name);
        let index = found.unwrap_or(barriers.len());
        match barriers.get_mut(index) {
            Some((_, users)) => *users += self.instances,
            None => barriers.push((name.to_string(), self.instances)),
        }
        Event::Barrier(index)
    }

    /// `{"ref": timer, "period": µs, "mode": "relative" or "absolute"}`; each thread has those for itself whose name begins
    /// with `unique`.
    fn timer(&mut self, path: &str, value: &Json) -> Result<Event, ModelError> {
        let mut fields = Fields::new(path, value)?;
        let name = fields.take_text("ref")?.unwrap_or(UNNAMED);
        let period = fields.take("period")?.map_or(Ok(0), |value| ns(&fields.path("period"), value))?;
        let absolute = match fields.take_text("mode")? {
            None | Some("relative") => false,
            Some("absolute") => true,
            Some(_) => return Err(bad(fields.path("mode"), "must be relative or absolute")),
        };
        fields.finish(|_| None)?;
        let own = name.starts_with("unique");
        let timers = if own { &mut *self.timers } else { &mut self.objects.timers };
        let found = timers.iter().position(|timer| timer.name == name);
        let index = found.unwrap_or(timers.len());
        match timers.get_mut(index) {
            // One event that says so makes the timer absolute for all.
            Some(timer) => timer.absolute |= absolute,
            None => timers.push(TimerKind { name: name.to_string(), absolute }),
        }
        Ok(Event::Timer(if own { Timer::Own(index) } else { Timer::Shared(index) }, period))
    }
}

/// What an object is called that an event does not name.
const UNNAMED: &str = "unknown";

/// The index of a name, which is added if it is new.
pub(super) fn index(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_string());
        names.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads events of a task `t` with three instances.
    fn events(text: &str) -> Result<(Vec<Event>, Objects, Vec<TimerKind>), String> {
        let json = Json::read(text).expect("JSON");
        let Json::Object(members) = json else { panic!("an object") };
        let (mut objects, mut timers) = (Objects::default(), Vec::new());
        let mut scope = Scope { task: "t", instances: 3, objects: &mut objects, timers: &mut timers };
        let read = members.iter().map(|(key, value)| scope.event(key, &format!("p.{key}"), value));
        let events = read.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        Ok((events, objects, timers))
    }

    fn said(text: &str) -> String {
        events(text).expect_err("refused")
    }

    #[test]
    fn durations_are_microseconds_and_the_longest_verb_counts() {
        let (read, ..) =
            events(r#"{"run": 1, "run0": 2, "running": 3, "runtime_x": 4, "sleep_a": 5}"#).expect("events");
        let run = Event::Run;
        assert_eq!(read, [run(1000), run(2000), run(3000), Event::Runtime(4000), Event::Sleep(5000)]);
        assert_eq!(said(r#"{"run": "1"}"#), "p.run: is a string; it must be a whole number from 0 to 600000000");
        assert_eq!(said(r#"{"sleep": -1}"#), "p.sleep: is -1; it must be a whole number from 0 to 600000000");
        assert!(said(r#"{"runtime": 1.5}"#).starts_with("p.runtime: is a number that is not whole"));
    }

    #[test]
    fn names_of_one_kind_are_one_object() {
        let text = r#"{"lock": "m", "wait": {"ref": "c", "mutex": "m"}, "unlock": "m", "signal": "c", "broad": "d",
            "sync": {"ref": "d", "mutex": "n"}, "lock1": "c"}"#;
        let (read, objects, _) = events(text).expect("events");
        let pair = |condition, mutex| Pair { condition, mutex };
        let wanted = [
            Event::Lock(0),
            Event::Wait(pair(0, 0)),
            Event::Unlock(0),
            Event::Signal(0),
            Event::Broadcast(1),
            Event::Sync(pair(1, 1)),
            Event::Lock(2),
        ];
        assert_eq!(read, wanted);
        assert_eq!(
            (objects.mutexes, objects.conditions),
            (vec!["m".into(), "n".into(), "c".into()], vec!["c".into(), "d".into()])
        );
        assert_eq!(said(r#"{"lock": 1}"#), "p.lock: is a whole number; it must be a string");
        assert_eq!(said(r#"{"wait": "c"}"#), "p.wait: is a string; it must be an object");
        assert_eq!(said(r#"{"sync": {"ref": "c", "mutx": "m"}}"#), "p.sync.mutx: is unknown");
        assert_eq!(said(r#"{"wait": {"ref": "c", "ref": "d"}}"#), "p.wait.ref: is there twice");
        assert_eq!(events(r#"{"wait": {}}"#).expect("as rt-app").1.conditions, ["unknown"]);
    }

    #[test]
    fn a_task_is_suspended_on_its_own_name() {
        let (read, objects, _) =
            events(r#"{"suspend": "ignored", "suspend1": null, "resume": "t", "resume1": "u"}"#).expect("events");
        let on = |n| Pair { condition: n, mutex: n };
        assert_eq!(read, [Event::Suspend(on(0)), Event::Suspend(on(0)), Event::Resume(on(0)), Event::Resume(on(1))]);
        assert_eq!(objects.conditions, ["t", "u"]);
        assert_eq!(said(r#"{"resume": {}}"#), "p.resume: is an object; it must be a string");
    }

    #[test]
    fn a_barrier_counts_every_instance_at_every_place() {
        let (read, objects, _) =
            events(r#"{"barrier": "b", "barrier1": "c", "barrier2": "b", "yield": ""}"#).expect("events");
        assert_eq!(read, [Event::Barrier(0), Event::Barrier(1), Event::Barrier(0), Event::Yield]);
        assert_eq!(objects.barriers, [("b".to_string(), 6), ("c".to_string(), 3)]);
        assert_eq!(said(r#"{"barrier": 3}"#), "p.barrier: is a whole number; it must be a string");
    }

    #[test]
    fn a_timer_is_shared_unless_it_is_unique() {
        let text = r#"{"timer": {"ref": "a", "period": 10}, "timer1": {"ref": "unique1", "period": 20, "mode": "absolute"},
            "timer2": {"ref": "unique2"}, "timer3": {"ref": "a", "period": 5, "mode": "absolute"}}"#;
        let (read, objects, own) = events(text).expect("events");
        let wanted = [
            Event::Timer(Timer::Shared(0), 10_000),
            Event::Timer(Timer::Own(0), 20_000),
            Event::Timer(Timer::Own(1), 0),
            Event::Timer(Timer::Shared(0), 5_000),
        ];
        assert_eq!(read, wanted);
        assert_eq!(objects.timers, [TimerKind { name: "a".into(), absolute: true }]);
        assert_eq!(own.iter().map(|timer| timer.absolute).collect::<Vec<_>>(), [true, false]);
        assert_eq!(said(r#"{"timer": {"ref": "a", "mode": "slow"}}"#), "p.timer.mode: must be relative or absolute");
        assert_eq!(said(r#"{"timer": {"ref": "a", "perod": 1}}"#), "p.timer.perod: is unknown");
        assert!(said(r#"{"timer": {"period": true}}"#).starts_with("p.timer.period: is true or false"));
    }

    #[test]
    fn what_cannot_be_done_is_said_by_name() {
        for verb in ["mem", "mem1", "memrun", "iorun0", "fork", "sem_post", "sem_wait"] {
            let said = said(&format!("{{\"{verb}\": 1}}"));
            assert!(said.starts_with(&format!("p.{verb}: ")), "{said}");
        }
        assert!(!is_event("loop") && !is_event("cpus") && !is_event("policy") && is_event("lock_pages"));
    }
}
