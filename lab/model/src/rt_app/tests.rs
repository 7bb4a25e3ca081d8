//! Small profiles that burn nothing, run on the host.

use super::*;
use crate::machine::Machine;
use std::collections::BTreeMap;
use std::time::Instant;
use topolab_wire::Setting;

fn order(duration_ms: i64, profile: &str) -> ModelOrder {
    ModelOrder {
        model: "rt-app".into(),
        params: BTreeMap::from([("duration_ms".to_string(), Setting::Number(duration_ms))]),
        profile: Some(profile.into()),
        seed: 1,
        repetitions: 1,
        nodes: vec![CpuSet::range(0, 2), CpuSet::range(2, 4)],
        llcs: vec![],
    }
}

fn play_order(order: &ModelOrder) -> Result<ModelRecord, ModelError> {
    let script = Script::new(order)?;
    record::record(play(&script, || Ok(()), |()| Ok(Machine::default()))?, order)
}

/// Plays tasks.
fn tasks(duration_ms: i64, tasks: &str) -> Result<ModelRecord, ModelError> {
    play_order(&order(duration_ms, &format!("{{\"tasks\": {{{tasks}}}}}")))
}

/// How often each task went through its phases, in the order of their names.
fn loops(record: &ModelRecord) -> &[u64] {
    &record.evidence["loops"]
}

#[test]
fn a_finite_profile_ends_by_itself() {
    let record = tasks(0, r#""a": {"loop": 3, "run": 0}, "b": {"instance": 2, "loop": 2, "phases": {"p": {"loop": 4, "yield": ""}, "q": {"run": 0}}}"#)
        .expect("a record");
    assert_eq!(loops(&record), [3, 20]);
    assert!(record.metrics.contains_key("period_us.b.p.p50") && record.metrics.contains_key("period_us.a.p99"));
    assert!(!record.metrics.contains_key("slack_us.p50"));
}

#[test]
fn signals_broadcasts_and_suspensions_wake() {
    let wait = r#"{"lock": "m", "wait": {"ref": "c", "mutex": "m"}, "unlock": "m"}"#;
    for wake in ["signal", "broad"] {
        let waker = format!("{{\"lock\": \"m\", \"{wake}\": \"c\", \"unlock\": \"m\", \"sleep\": 500}}");
        let record = tasks(50, &format!("\"waiter\": {wait}, \"waker\": {waker}")).expect("a record");
        assert!(loops(&record).iter().all(|loops| *loops > 5), "{wake}: {:?}", loops(&record));
        assert!(record.evidence["wakeup_latencies"][0] > 5);
    }
    let record =
        tasks(50, r#""s": {"instance": 2, "suspend": ""}, "w": {"resume": "s", "sleep": 500}"#).expect("a record");
    assert!(loops(&record)[0] > 3);
}

#[test]
fn two_tasks_hand_over_by_sync() {
    let task = r#"{"lock": "m", "sync": {"ref": "c", "mutex": "m"}, "unlock": "m"}"#;
    let record = tasks(50, &format!("\"a\": {task}, \"b\": {task}")).expect("a record");
    assert!(loops(&record)[0].abs_diff(loops(&record)[1]) <= 1 && loops(&record)[0] > 5, "{:?}", loops(&record));
}

#[test]
fn barriers_keep_tasks_in_step() {
    let record =
        tasks(50, r#""a": {"instance": 2, "barrier": "x"}, "b": {"sleep": 200, "barrier": "x"}"#).expect("a record");
    let (both, one) = (loops(&record)[0], loops(&record)[1]);
    assert!(one > 5 && both.abs_diff(2 * one) <= 2, "{both} {one}");
}

#[test]
fn timers_have_slack_and_may_be_late() {
    let record = tasks(100, r#""t": {"timer": {"ref": "unique", "period": 5000}}"#).expect("a record");
    // At most one each 5 ms; a busy host may let some be late, and late ones are not made up for.
    assert!((3..=20).contains(&loops(&record)[0]), "{:?}", loops(&record));
    assert!(record.metrics["slack_us.p50"].value > 0.0 && record.metrics["in_time"].value > 20.0);
    assert!(record.metrics["wakeup_latency_us.p50"].value > 0.0);
    let late = tasks(50, r#""t": {"sleep": 3000, "timer": {"ref": "t", "period": 1000}}"#).expect("a record");
    assert!(late.metrics["in_time"].value == 0.0 && late.metrics["slack_us.p50"].value < 0.0);
}

#[test]
fn mutexes_let_everyone_in() {
    let record =
        tasks(50, r#""a": {"instance": 3, "lock": "m", "sleep": 100, "unlock": "m", "yield": ""}"#).expect("a record");
    assert!(loops(&record)[0] > 3);
}

#[test]
fn a_delay_and_places_are_kept() {
    // An ordinary user may not lower a nice value again, which a phase without a priority would.
    let text = r#""a": {"loop": 1, "delay": 20000, "cpus": [0], "priority": 1,
        "phases": {"p": {"run": 0, "policy": "SCHED_BATCH", "priority": 1}}}"#;
    assert!(tasks(0, text).expect("a record").evidence["elapsed_ns"][0] >= 20_000_000);
}

#[test]
fn who_waits_in_vain_is_released() {
    let blocked = [
        r#""lock": "own", "lock1": "own""#,
        r#""wait": {"ref": "c", "mutex": "m"}"#,
        r#""sync": {"ref": "d", "mutex": "m"}"#,
        r#""suspend": """#,
        r#""barrier": "x", "barrier1": "x""#,
        r#""sleep": 500000000"#,
        r#""timer": {"ref": "t", "period": 500000000}"#,
        r#""delay": 500000000, "run": 0"#,
    ];
    let all: Vec<_> = blocked.iter().enumerate().map(|(n, task)| format!("\"t{n}\": {{{task}}}")).collect();
    let began = Instant::now();
    let record = tasks(50, &format!("{}, \"free\": {{\"sleep\": 100}}", all.join(", "))).expect("a record");
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(record.metrics["loops_per_s.free"].value > 0.0);
    let none = tasks(20, &all.join(", ")).expect_err("nothing was done").to_string();
    assert!(none.contains("no task has done a phase"), "{none}");
}

#[test]
fn threads_end_even_if_nothing_can_be_measured() {
    let waiting = order(10_000, r#"{"tasks": {"a": {"instance": 3, "suspend": ""}, "b": {"yield": ""}}}"#);
    let script = Script::new(&waiting).expect("a script");
    let refused = || ModelError::NothingMeasured("no".into());
    let began = Instant::now();
    assert!(play(&script, || Err::<(), _>(refused()), Ok).is_err());
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_a_thread_cannot_do_ends_the_run() {
    // The host has no busy device, so that the first burn is the error.
    let failed = tasks(10_000, r#""a": {"run": 1}, "b": {"suspend": ""}"#);
    assert!(matches!(failed, Err(ModelError::System { what, .. }) if what == "task a"));
}

#[test]
fn places_and_durations_must_fit() {
    let said = |duration_ms, text: &str| Script::new(&order(duration_ms, text)).expect_err("refused").to_string();
    let cpus = r#"{"tasks": {"a": {"cpus": [1], "phases": {"p": {"cpus": [3, 4], "run": 1}}}}}"#;
    assert_eq!(said(1, cpus), "tasks.a.phases.p.cpus: the machine has no 4; it has 0-3");
    let nodes = r#"{"tasks": {"a": {"nodes_membind": [0, 2], "run": 1}}}"#;
    assert_eq!(said(1, nodes), "tasks.a.nodes_membind: the machine has no 2; it has 0-1");
    let endless = r#"{"tasks": {"a": {"run": 1}}}"#;
    assert!(said(0, endless).starts_with("global.duration: waits for all tasks to end, and `a` loops forever"));
    let long = r#"{"global": {"duration": 601}, "tasks": {"a": {"run": 1}}}"#;
    assert!(said(0, long).starts_with("global.duration: is beyond 600 s"));
    assert_eq!(Script::new(&order(5, long)).expect("overridden").duration, Some(Duration::from_millis(5)));
    let without = ModelOrder { profile: None, ..order(1, "") };
    assert!(matches!(Script::new(&without), Err(ModelError::Missing("profile"))));
}

#[test]
fn the_profiles_beside_the_bundle_are_right() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/bundles/rt-app-profile");
    let mut profiles = 0;
    for file in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if file.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&file).expect("a profile");
            Script::new(&order(0, &text)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            profiles += 1;
        }
    }
    assert_eq!(profiles, 6);
}
