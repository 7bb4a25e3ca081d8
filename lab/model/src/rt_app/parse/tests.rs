//! Profiles, right and wrong.

use super::super::profile::{Event, Phase, Sched, Task};
use super::*;
use topolab_wire::CpuSet;

fn said(profile: &str) -> String {
    parse(profile).expect_err("refused").to_string()
}

/// The only task of a profile, as its members are given.
fn task(members: &str) -> Task {
    parse(&format!("{{\"tasks\": {{\"t\": {{{members}}}}}}}")).expect("a profile").tasks.remove(0)
}

fn task_said(members: &str) -> String {
    said(&format!("{{\"tasks\": {{\"t\": {{{members}}}}}}}"))
}

#[test]
fn a_task_without_phases_has_one() {
    let bare = task(r#""run": 1"#);
    let phase = &bare.phases[0];
    assert_eq!((bare.loops, phase.loops, bare.instances, &phase.name), (None, Some(1), 1, &None));
    let looped = task(r#""loop": 7, "run": 1"#);
    assert_eq!((looped.loops, looped.phases[0].loops), (Some(1), Some(7)));
    assert_eq!(task(r#""loop": -1, "run": 1"#).phases[0].loops, None);
}

#[test]
fn phases_are_in_order_and_loop_once() {
    let two = task(r#""loop": 3, "phases": {"b": {"run": 1}, "a": {"loop": 2, "sleep": 1, "sleep1": 2}}"#);
    let name = |phase: &Phase| (phase.name.clone().unwrap_or_default(), phase.loops, phase.events.len());
    assert_eq!(two.loops, Some(3));
    assert_eq!(two.phases.iter().map(name).collect::<Vec<_>>(), [("b".into(), Some(1), 1), ("a".into(), Some(2), 2)]);
    assert_eq!(task(r#""phases": {"p": {"run": 1}}"#).loops, None);
    assert_eq!(task(r#""loop": 0, "phases": {"p": {"run": 1}}"#).loops, Some(0));
}

#[test]
fn loops_that_mean_nothing_are_refused() {
    let zero = "is 0, which rt-app takes for forever; say -1, or 1 and more";
    assert_eq!(task_said(r#""loop": 0, "run": 1"#), format!("tasks.t.loop: {zero}"));
    assert_eq!(task_said(r#""phases": {"p": {"loop": 0, "run": 1}}"#), format!("tasks.t.phases.p.loop: {zero}"));
    assert!(task_said(r#""loop": -2, "run": 1"#).starts_with("tasks.t.loop: is -2; "));
    assert!(task_said(r#""loop": "2", "run": 1"#).starts_with("tasks.t.loop: is a string; "));
}

#[test]
fn there_must_be_events() {
    assert_eq!(task_said(""), "tasks.t: has no event");
    assert_eq!(task_said(r#""phases": {"p": {"loop": 2}}"#), "tasks.t.phases.p: has no event");
    assert_eq!(task_said(r#""phases": {}"#), "tasks.t.phases: is empty");
    assert_eq!(task_said(r#""phases": []"#), "tasks.t.phases: is an array; it must be an object");
    assert_eq!(task_said(r#""phases": {"p": 3}"#), "tasks.t.phases.p: is a whole number; it must be an object");
}

#[test]
fn events_beside_phases_are_refused() {
    let both = r#""run1": 3, "phases": {"p": {"run": 1}}"#;
    assert_eq!(task_said(both), "tasks.t.run1: the task has phases, so its events belong into them");
    assert_eq!(
        task_said(r#""phases": {"p": {"run": 1, "phases": {}}}"#),
        "tasks.t.phases.p.phases: a phase has no phases"
    );
}

#[test]
fn events_and_phases_may_come_again_and_nothing_else() {
    let again = task(r#""run": 1, "sleep": 2, "run": 3"#);
    assert_eq!(again.phases[0].events, [Event::Run(1000), Event::Sleep(2000), Event::Run(3000)]);
    assert_eq!(task_said(r#""run": 1, "loop": 2, "loop": 2"#), "tasks.t.loop: is there twice");
    let phases = task(r#""phases": {"p": {"run": 1}, "p": {"run": 2}}"#).phases;
    assert_eq!(phases.iter().map(|phase| phase.events[0]).collect::<Vec<_>>(), [Event::Run(1000), Event::Run(2000)]);
    assert_eq!(said(r#"{"tasks": {"a": {"run": 1}, "a": {"run": 1}}}"#), "tasks.a: is there twice");
    assert_eq!(said(r#"{"tasks": {"a": {"run": 1}}, "tasks": {}}"#), "tasks: is there twice");
}

#[test]
fn policies_and_priorities() {
    let sched = |policy, priority| Sched { policy, priority };
    assert_eq!(task(r#""run": 1"#).sched, sched(Policy::Other, 0));
    assert_eq!(task(r#""run": 1, "priority": -20"#).sched, sched(Policy::Other, -20));
    assert_eq!(task(r#""run": 1, "policy": "SCHED_FIFO""#).sched, sched(Policy::Fifo, 10));
    assert_eq!(task(r#""run": 1, "policy": "SCHED_RR", "priority": 99"#).sched, sched(Policy::Rr, 99));
    assert_eq!(task(r#""run": 1, "policy": "SCHED_IDLE", "priority": 5"#).sched, sched(Policy::Idle, 5));
    let phases = r#""policy": "SCHED_BATCH", "phases": {"a": {"run": 1}, "b": {"policy": "SCHED_RR", "run": 1},
        "c": {"priority": 20, "run": 1}, "d": {"run": 1, "policy": "SCHED_OTHER"}}"#;
    let of_phases: Vec<_> = task(phases).phases.iter().map(|phase| phase.sched).collect();
    let wanted = [None, Some(sched(Policy::Rr, 10)), Some(sched(Policy::Rr, 20)), Some(sched(Policy::Other, 0))];
    assert_eq!(of_phases, wanted);
    assert!(task_said(r#""run": 1, "priority": 20"#).contains("from -20 to 19"));
    assert!(task_said(r#""run": 1, "policy": "SCHED_FIFO", "priority": 0"#).contains("from 1 to 99"));
    assert_eq!(task_said(r#""run": 1, "policy": "FIFO""#), "tasks.t.policy: `FIFO` is no policy");
    let phase = r#""phases": {"p": {"policy": "SCHED_DEADLINE", "run": 1}}"#;
    assert_eq!(task_said(phase), "tasks.t.phases.p.policy: SCHED_DEADLINE is not modelled");
}

#[test]
fn places() {
    let placed = task(r#""cpus": [0, 2, 3], "nodes_membind": [1], "phases": {"p": {"run": 1, "cpus": [1,]}}"#);
    assert_eq!(placed.cpus, Some([0, 2, 3].into_iter().collect::<CpuSet>()));
    assert_eq!((placed.nodes, placed.phases[0].cpus.clone()), (Some(CpuSet::range(1, 2)), Some(CpuSet::range(1, 2))));
    assert_eq!(task_said(r#""run": 1, "cpus": []"#), "tasks.t.cpus: is empty");
    assert_eq!(task_said(r#""run": 1, "cpus": 1"#), "tasks.t.cpus: is a whole number; it must be an array of numbers");
    assert!(task_said(r#""run": 1, "cpus": ["0-3"]"#).starts_with("tasks.t.cpus: is a string; "));
    assert!(task_said(r#""run": 1, "nodes_membind": [-1]"#).starts_with("tasks.t.nodes_membind: is -1; "));
}

#[test]
fn instances_and_delay() {
    assert_eq!(task(r#""run": 1, "delay": 2"#).delay_ns, 2000);
    let none = r#"{"tasks": {"a": {"instance": 0, "run": 1}, "b": {"run": 1}}}"#;
    assert_eq!(parse(none).expect("one is enough").tasks[0].instances, 0);
    assert_eq!(task_said(r#""instance": 0, "run": 1"#), "tasks: has no task with an instance");
    assert!(task_said(r#""instance": -1, "run": 1"#).starts_with("tasks.t.instance: is -1; "));
    assert!(
        task_said(r#""phases": {"p": {"run": 1, "instance": 2}}"#)
            .starts_with("tasks.t.phases.p.instance: is a task's")
    );
    let many = r#"{"tasks": {"a": {"instance": 4096, "run": 1}, "b": {"run": 1}}}"#;
    assert_eq!(said(many), "tasks: has 4097 instances; there may be 4096");
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    assert!(task_said(r#""phases": {"p1": {"mem": 1}}"#).starts_with("tasks.t.phases.p1.mem: memory traffic"));
    for key in ["dl-runtime", "dl-period", "dl-deadline", "period", "deadline", "util_min", "util_max", "taskgroup"] {
        let said = task_said(&format!("\"run\": 1, \"{key}\": 1"));
        assert!(said.starts_with(&format!("tasks.t.{key}: ")) && !said.contains("unknown"), "{said}");
    }
    assert_eq!(task_said(r#""run": 1, "cpu": [1]"#), "tasks.t.cpu: is unknown");
    assert_eq!(
        task_said(r#""run": 1, "lock_pages": true"#),
        "tasks.t.lock_pages: is true or false; it must be a string"
    );
}

#[test]
fn global() {
    let with = |global: &str| parse(&format!("{{\"global\": {{{global}}}, \"tasks\": {{\"t\": {{\"run\": 1}}}}}}"));
    let seconds = |global| with(global).expect("a profile").seconds;
    assert_eq!((seconds(""), seconds(r#""duration": 2"#)), (None, Some(2)));
    assert_eq!((seconds(r#""duration": -1"#), seconds(r#""duration": 0"#)), (None, None));
    let policy = with(r#""default_policy": "SCHED_RR""#).expect("a profile").tasks[0].sched;
    assert_eq!(policy, Sched { policy: Policy::Rr, priority: 10 });
    for (name, why) in IGNORED {
        assert!(with(&format!("\"{name}\": true")).is_ok() && !why.is_empty(), "{name}");
    }
    let said = |global| with(global).expect_err("refused").to_string();
    assert_eq!(said(r#""durations": 2"#), "global.durations: is unknown");
    assert_eq!(said(r#""pi_enabled": true"#), "global.pi_enabled: mutexes that inherit priorities are not modelled");
    assert!(with(r#""pi_enabled": False"#).is_ok());
    assert_eq!(said(r#""default_policy": "SCHED_DEADLINE""#), "global.default_policy: SCHED_DEADLINE is not modelled");
    assert!(said(r#""duration": 1.5"#).starts_with("global.duration: is a number that is not whole"));
}

#[test]
fn resources() {
    let with =
        |resources: &str| parse(&format!("{{\"resources\": {resources}, \"tasks\": {{\"t\": {{\"run\": 1}}}}}}"));
    assert!(with(r#"{"m": {"type": "mutex"}, "n": {}, "c": {"type": "wait"}}"#).is_ok());
    let said = |resources| with(resources).expect_err("refused").to_string();
    assert!(said(r#"{"m": {"type": "mutx"}}"#).starts_with("resources.m.type: `mutx` is no type; there is: mutex "));
    assert_eq!(said(r#"{"m": {"type": "mutex", "of": {}}}"#), "resources.m.of: is unknown");
    assert_eq!(said(r#"{"m": "mutex"}"#), "resources.m: is a string; it must be an object");
    assert_eq!(said("3"), "resources: is a whole number; it must be an object");
}

#[test]
fn the_outermost_shape() {
    assert_eq!(said("{}"), "tasks: is missing");
    assert_eq!(said(r#"{"tasks": {}}"#), "tasks: has no task with an instance");
    assert_eq!(said("[]"), "profile: is an array; it must be an object");
    assert!(said("{").starts_with("profile: "));
    assert_eq!(said(r#"{"tasks": {"t": {"run": 1}}, "task": {}}"#), "task: is unknown");
    assert_eq!(said(r#"{"tasks": {"t": 1}}"#), "tasks.t: is a whole number; it must be an object");
    assert_eq!(said(r#"{"tasks": {"": {"run": 1}}}"#), "tasks.: is no name for a task");
}
