//! The main job: a machine that is not here, a patch, and the same bytes twice.

use crate::common::{Guarded, root};
use std::process::{Command, Stdio};

fn ab(seed: &str, environment: &[(&str, &str)]) -> serde_json::Value {
    let results = tempfile::tempdir().expect("a folder");
    let patch = root().join("patches/sync-llc-headroom").display().to_string();
    let words = [
        "ab",
        "-t",
        "cwf-snc3@1/12",
        "--patch",
        &patch,
        "-b",
        "epoll-fanin",
        "--clock",
        "virtual",
        "--seed",
        seed,
        "--format=json",
    ];
    let mut command = crate::common::topolab(results.path(), &words);
    let ran = command.envs(environment.iter().copied()).output().expect("topolab starts");
    let (code, said) = crate::common::code_and_words(&ran);
    assert!(matches!(code, Some(0 | 1 | 3)), "{said}");
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

fn value(json: &serde_json::Value, metric: &str, side: &str) -> f64 {
    let verdicts = json["verdicts"].as_array().expect("verdicts");
    let verdict = verdicts.iter().find(|v| v["metric"] == metric).unwrap_or_else(|| panic!("{metric} has no row"));
    verdict[side].as_f64().unwrap_or_else(|| panic!("{metric} has no {side}"))
}

/// The first run, which both tests look at.
fn quiet() -> &'static serde_json::Value {
    static ONE: std::sync::OnceLock<serde_json::Value> = std::sync::OnceLock::new();
    ONE.get_or_init(|| ab("1", &[]))
}

/// The second run has everything against it that a host can do: both cores are busy with something else, and QEMU's main loop
/// is late by a random time at every turn (lab/turnstile says what that used to break).
#[test]
fn two_runs_are_the_same_bytes_under_load() {
    let quiet = quiet();
    let load: Vec<Guarded> = (0..2)
        .map(|_| {
            Guarded(Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().expect("sh"))
        })
        .collect();
    let loaded = ab("1", &[("TOPOLAB_TURNSTILE_JITTER", "7")]);
    drop(load);
    let bytes = serde_json::to_string(&quiet["trials"]).expect("JSON");
    assert_eq!(bytes, without_delays(loaded["trials"].clone(), 7));
}

/// Many small machines find what a few large ones miss: each run is late by other times.
#[test]
fn a_late_main_loop_changes_nothing() {
    let run = |jitter: Option<u32>| {
        let results = tempfile::tempdir().expect("a folder");
        let words =
            ["run", "-t", "smoke", "-k", "debian:7.2", "-b", "epoll-fanin", "--clock", "virtual", "--format=json"];
        let mut command = crate::common::topolab(results.path(), &words);
        command.envs(jitter.map(|seed| ("TOPOLAB_TURNSTILE_JITTER", seed.to_string())));
        let ran = command.output().expect("topolab starts");
        let json: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("JSON");
        assert!(json["trials"][0]["fault"].is_null(), "{json}");
        match jitter {
            None => serde_json::to_string(&json["trials"]).expect("JSON"),
            Some(seed) => without_delays(json["trials"].clone(), seed),
        }
    };
    let prompt = run(None);
    for seed in 1..=3 {
        assert_eq!(prompt, run(Some(seed)), "delays from seed {seed}");
    }
}

/// The trials without the library's word on its delays, which must be there: a run that was not delayed shows nothing.
fn without_delays(mut trials: serde_json::Value, seed: u32) -> String {
    for trial in trials.as_array_mut().expect("trials") {
        let said = trial.as_object_mut().and_then(|fields| fields.remove("cautions"));
        assert_eq!(said, Some(serde_json::json!([format!("topolab-turnstile: delays from seed {seed}")])));
    }
    serde_json::to_string(&trials).expect("JSON")
}

#[test]
fn the_patch_moves_the_work() {
    let quiet = quiet();
    let trials = quiet["trials"].as_array().expect("trials");
    assert_eq!(trials.len(), 2);
    assert!(trials.iter().all(|t| t["observed"]["matches"] == true && t["label"] == "virtual" && t["fault"].is_null()));
    // What the hand-made experiment showed: requests leave the clients' node, and the tail shrinks.
    let (share, tail) = ("share.node0", "latency_ms.p99");
    assert!(value(quiet, share, "patched") < 0.75 * value(quiet, share, "base"), "{}", quiet["verdicts"]);
    assert!(value(quiet, tail, "patched") < 0.85 * value(quiet, tail, "base"), "{}", quiet["verdicts"]);
    assert!(value(quiet, "wakeups.sync", "base") > 100.0, "the probe counted nothing");
}

/// The same promise from the command line.
#[test]
fn a_run_proves_itself_or_says_where_it_differs() {
    let run = |environment: &[(&str, &str)]| {
        let results = tempfile::tempdir().expect("a folder");
        let words = ["run", "-t", "smoke", "-k", "debian:7.2", "-b", "epoll-fanin", "--clock", "virtual", "--prove"];
        let mut command = crate::common::topolab(results.path(), &words);
        crate::common::code_and_words(&command.envs(environment.iter().copied()).output().expect("topolab starts"))
    };
    let (code, said) = run(&[]);
    assert!(code == Some(0) && said.contains("both runs are the same"), "{said}");
}
