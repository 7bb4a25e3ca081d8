//! Every bundle in a guest: its programs come from Debian, its numbers are read with their units, and what goes wrong is said.

use crate::common::{code_and_words, output, root};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Whether the slow matrices run as well.
fn all() -> bool {
    std::env::var_os("TOPOLAB_BUNDLES").is_some()
}

/// A run of one boot on the real clock, as JSON.
fn run(topology: &str, bundle: &str, more: &[&str]) -> (Output, Value) {
    let results = tempfile::tempdir().expect("a folder");
    let mut words = vec!["run", "-t", topology, "-b", bundle, "--boots", "1", "--format", "json"];
    words.extend(more);
    let ran = output(results.path(), &words);
    let json = serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null);
    (ran, json)
}

/// The metrics of a run that went well, by name: unit and samples.
fn metrics(topology: &str, bundle: &str, more: &[&str]) -> Value {
    let (ran, json) = run(topology, bundle, more);
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(0), "{bundle} on {topology}: {said}");
    let trial = &json["trials"][0];
    assert!(trial["fault"].is_null() && trial["observed"]["matches"] == true, "{bundle}: {trial}");
    trial["metrics"].clone()
}

fn number(metrics: &Value, name: &str, unit: &str) -> f64 {
    let metric = &metrics[name];
    assert_eq!(metric["unit"], unit, "{name} in {metrics}");
    let value = metric["samples"][0].as_f64().unwrap_or_else(|| panic!("{name} has no sample in {metrics}"));
    assert!(value.is_finite() && value >= 0.0, "{name} is {value}");
    value
}

/// A bundle of the test's own.
fn written(folder: &Path, name: &str, text: &str) -> String {
    let own = folder.join(name);
    std::fs::create_dir_all(&own).expect("a folder");
    std::fs::write(own.join("bundle.toml"), text).expect("a bundle");
    own.display().to_string()
}

/// A bundle whose program is a script of busybox.
fn script(folder: &Path, name: &str, script: &str, more: &str) -> String {
    let text = format!(
        "schema = 1\ntitle = \"a test\"\nclocks = [\"real\"]\n[program]\nimage = \"shell\"\n\
         argv = [\"/bin/busybox\", \"sh\", \"/bundle/run.sh\"]\ndeadline_s = 60\n{more}"
    );
    let path = written(folder, name, &text);
    std::fs::write(folder.join(name).join("run.sh"), script).expect("a script");
    path
}

const VALUE: &str = "[[metric]]\nname = \"value\"\nunit = \"1\"\nbetter = \"neither\"\nregex = 'value ([0-9]+)'\n";

#[test]
fn pairs_and_groups_are_measured() {
    let pipe = metrics("smoke", "sched-pipe", &["-p", "loops=500", "--reps", "2"]);
    assert!(
        number(&pipe, "usecs_per_op", "us") > 1.0
            && pipe["usecs_per_op"]["samples"].as_array().map(Vec::len) == Some(2)
    );
    let futex = metrics("smoke", "futex-pingpong", &["-p", "loops=500"]);
    assert!(number(&futex, "usecs_per_op", "us") > 1.0 && number(&futex, "waits", "1") > 100.0);
    for transport in ["transport=pipe", "transport=socket"] {
        let groups = metrics("smoke", "hackbench", &["-p", "loops=20", "-p", transport]);
        assert!(number(&groups, "time_s", "s") > 0.0);
    }
}

#[test]
fn timers_and_stressors_are_measured() {
    let timers = metrics("smoke", "cyclictest", &["-p", "seconds=1"]);
    assert!(number(&timers, "latency_us.max", "us") >= number(&timers, "latency_us.mean", "us"));
    let switches = metrics("smoke", "stress-ng", &["-p", "seconds=1"]);
    assert!(number(&switches, "ops_per_s", "1/s") > 100.0);
    let workers = metrics("smoke", "rt-app", &["-p", "seconds=1"]);
    assert!(number(&workers, "wakeups", "1") >= 100.0);
    assert!(number(&workers, "wakeup_latency_us.p99", "us") >= number(&workers, "wakeup_latency_us.p50", "us"));
}

#[test]
fn servers_are_measured() {
    let memcached = metrics("smoke", "memcached", &["-p", "duration_ms=1000"]);
    assert!(number(&memcached, "ops_per_s", "1/s") > 50.0 && number(&memcached, "misses", "1") == 0.0);
    assert!(number(&memcached, "latency_ms.p99", "ms") >= number(&memcached, "latency_ms.p50", "ms"));
    let nginx = metrics("smoke", "nginx", &["-p", "seconds=2", "-p", "nic=node0"]);
    assert!(number(&nginx, "requests_per_s", "1/s") > 50.0);
    assert!(number(&nginx, "latency_ms.p99", "ms") >= number(&nginx, "latency_ms.p50", "ms"));
}

#[test]
fn a_language_model_is_served() {
    let bench = metrics("smoke", "llm-bench", &["-p", "prompt_tokens=8", "-p", "tokens=4"]);
    assert!(number(&bench, "prompt_tokens_per_s", "1/s") > 0.0 && number(&bench, "tokens_per_s", "1/s") > 0.0);
    let serving = metrics("smoke", "llm-serving", &["-p", "requests=2", "-p", "tokens=8"]);
    assert!(number(&serving, "inference_time_s", "s") > 0.0 && number(&serving, "tokens_per_s", "1/s") > 0.0);
}

/// The other architectures with Debian's own kernels: nothing is compiled for it. One bundle on each, and all of the threads' with
/// TOPOLAB_BUNDLES=1.
#[test]
fn arm_and_power_run_the_threads_workloads() {
    for (topology, always) in [("altra@1/20", "memcached"), ("power10@1/15", "hackbench")] {
        for (bundle, metric, unit, parameters) in [
            ("sched-pipe", "usecs_per_op", "us", "loops=200"),
            ("hackbench", "time_s", "s", "loops=10"),
            ("memcached", "ops_per_s", "1/s", "duration_ms=1000"),
            ("llm-serving", "tokens_per_s", "1/s", "requests=2"),
        ] {
            if !all() && bundle != always {
                continue;
            }
            let measured = metrics(topology, bundle, &["-k", "debian-image:7.2", "-p", parameters]);
            assert!(number(&measured, metric, unit) > 0.0, "{bundle} on {topology}");
        }
    }
}

/// The twins under the virtual clock, and rt-app's profiles. With TOPOLAB_BUNDLES=1 all of them twice, for the same bytes.
#[test]
fn every_model_proves_itself() {
    for (model, metric, unit) in [
        ("pipe-pair", "usecs_per_op", "us"),
        ("futex-pair", "usecs_per_op", "us"),
        ("message-groups", "messages_per_s", "1/s"),
        ("scheduler-messages", "requests_per_s", "1/s"),
        ("engine-ipc", "tokens_per_s", "1/s"),
    ] {
        let prove: &[&str] =
            if all() || model == "engine-ipc" { &["--clock", "virtual", "--prove"] } else { &["--clock", "virtual"] };
        let measured = metrics("smoke", model, prove);
        assert!(number(&measured, metric, unit) > 0.0, "{model}");
    }
    for profile in ["pinned", "fanout", "periodic", "locks", "barrier", "pair"] {
        let chosen = format!("profile={profile}");
        let (once, twice) = (["--clock", "virtual", "-p", &chosen], ["--clock", "virtual", "--prove", "-p", &chosen]);
        let measured = metrics("smoke", "rt-app-profile", if all() { &twice } else { &once });
        assert!(number(&measured, "loops_per_s", "1/s") > 0.0, "{profile}");
        if !all() {
            break;
        }
    }
    // The same as a file of the user's.
    let file = root().join("images/bundles/rt-app-profile/pair.json").display().to_string();
    assert!(number(&metrics("smoke", &file, &["--clock", "virtual"]), "loops_per_s", "1/s") > 0.0);
}

/// A pipe's wakeups carry the sync hint, a futex's do not: what the review of the reciprocal-wakeup thread asks.
#[test]
fn the_mechanism_tells_synchronous_wakeups_from_others() {
    let counted = |bundle: &str| {
        let (ran, json) = run("smoke", bundle, &["-p", "loops=1000", "--mechanism"]);
        let (code, said) = code_and_words(&ran);
        assert_eq!(code, Some(0), "{said}");
        let mechanism = json["trials"][0]["mechanism"].clone();
        let sum = |kind: &str| -> f64 {
            ["waker_cpu", "same_llc", "other_llc", "other_node"]
                .iter()
                .map(|place| number(&mechanism, &format!("wakeups.{kind}.{place}"), "1"))
                .sum()
        };
        assert!(mechanism["overhead.usecs_per_op"]["samples"][0].is_number(), "{mechanism}");
        assert!(number(&mechanism, "busy.node0", "%") > 0.0 && number(&mechanism, "imbalance.node", "1") >= 1.0);
        (sum("sync"), sum("async"))
    };
    let (sync, other) = counted("sched-pipe");
    assert!(sync > 500.0 && other < sync / 4.0, "pipe: {sync} sync, {other} not");
    let (sync, other) = counted("futex-pingpong");
    assert!(other > 500.0 && sync < other / 4.0, "futex: {sync} sync, {other} not");
    // A prebuilt kernel takes no module: the kernel's own statistics are left, and a caution.
    let (ran, json) = run("smoke", "futex-pingpong", &["-k", "debian-image:7.2", "--mechanism"]);
    let trial = &json["trials"][0];
    assert!(trial["mechanism"]["busy.node0"].is_object(), "{}", code_and_words(&ran).1);
    assert!(trial["mechanism"]["wakeups.sync.waker_cpu"].is_null());
    assert!(trial["cautions"].to_string().contains("no busy module"), "{trial}");
}

/// Where things run is what was declared: affinity, an isolated partition, received packets.
#[test]
fn programs_run_where_the_bundle_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = format!(
        r#"cpus = "cpus:1"
[placement]
isolate = "cpus:1"
network = "cpus:0"
[[service]]
name = "elsewhere"
argv = ["/bin/busybox", "sh", "-c", "/bin/busybox grep Cpus_allowed_list /proc/self/status > /tmp/service; /bin/busybox sleep 1000"]
cpus = "not cpus:1"
ready = {{ file = "/tmp/service" }}
deadline_s = 30
[[invariant]]
name = "own_cpus"
says = '(?m)^own 1$'
[[invariant]]
name = "service_cpus"
says = '(?m)^service 0$'
[[invariant]]
name = "in_the_partition"
says = '(?m)^group 0::/topolab-bundle$'
[[invariant]]
name = "packets"
says = '(?m)^rps 0*1$'
{VALUE}"#
    );
    let text = r#"b=/bin/busybox
list() { $b grep Cpus_allowed_list $1 | $b awk '{print $2}'; }
echo own $(list /proc/self/status)
echo service $(list /tmp/service)
echo group $($b cat /proc/self/cgroup)
echo rps $($b cat /sys/class/net/lo/queues/rx-0/rps_cpus)
echo value 1
"#;
    let bundle = script(folder.path(), "places", text, &more);
    let (ran, json) = run("smoke", &bundle, &[]);
    let invariants = json["trials"][0]["invariants"].as_array().cloned().unwrap_or_default();
    let own: Vec<&Value> = invariants.iter().filter(|i| i["name"] != "kernel_complains_of_nothing").collect();
    let (code, said) = code_and_words(&ran);
    assert!(code == Some(0) && own.len() == 4 && own.iter().all(|i| i["holds"] == true), "{said}\n{invariants:?}");
}

/// A run starts from nothing: what the one before left running is ended, and its files do not make a service look ready.
#[test]
fn a_run_finds_nothing_of_the_one_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = format!(
        r#"[[service]]
name = "slow"
argv = ["/bin/busybox", "sh", "-c", "/bin/busybox sleep 1; /bin/busybox touch /tmp/up; /bin/busybox sleep 1000"]
ready = {{ file = "/tmp/up" }}
deadline_s = 30
{VALUE}
[[invariant]]
name = "nothing_left"
says = '(?m)^left 0$'
"#
    );
    let text = r#"b=/bin/busybox
echo left $($b ps | $b grep -c "[s]leep 7777")
$b setsid $b sleep 7777 &
echo value $($b ps | $b grep -c "[s]leep 1000")
"#;
    let bundle = script(folder.path(), "leftovers", text, &more);
    let (ran, json) = run("smoke", &bundle, &["--reps", "3"]);
    let (code, said) = code_and_words(&ran);
    let trial = &json["trials"][0];
    let up = trial["metrics"]["value"]["samples"].as_array().cloned().unwrap_or_default();
    // The service's shell names its command too.
    assert!(code == Some(0) && up.len() == 3 && up.iter().all(|n| n.as_f64() >= Some(1.0)), "{said}\n{trial}");
}

/// Whatever a bundle does wrong is its own fault, with its raw output kept, and no kernel is blamed.
#[test]
fn a_bundles_failures_are_faults_with_their_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = |command: &str, ready: &str| {
        format!(
            "[[service]]\nname = \"server\"\nargv = [\"/bin/busybox\", \"sh\", \"-c\", \"{command}\"]\nready = {{ {ready} }}\ndeadline_s = 2\n{VALUE}"
        )
    };
    let prepare = format!(
        "[[prepare]]\nargv = [\"/bin/busybox\", \"sh\", \"-c\", \"echo no model >&2; exit 3\"]\ndeadline_s = 9\n{VALUE}"
    );
    for (name, text, more, says) in [
        ("unreadable", "echo garbage 12\n", VALUE.to_string(), "no number for value in standard output"),
        ("failing", "echo value 1; exit 7\n", VALUE.to_string(), "exit status 7"),
        ("killed", "kill -9 $$\n", VALUE.to_string(), "signal 9"),
        (
            "unready",
            "echo value 1\n",
            service("sleep 100", "tcp = '80'"),
            "service server: not ready after 2 s: TCP port 80 did not open",
        ),
        ("dead", "echo value 1\n", service("echo no port >&2; exit 1", "tcp = '80'"), "ended before it was ready"),
        (
            "dying",
            "/bin/busybox sleep 3; echo value 1\n",
            service("touch /tmp/up; sleep 1; echo gone", "file = '/tmp/up'"),
            "ended during the run",
        ),
        ("unprepared", "echo value 1\n", prepare, "exit status 3; it said: no model"),
    ] {
        let results = folder.path().join(format!("{name}-results"));
        let bundle = script(folder.path(), name, text, &more);
        let ran = output(&results, &["run", "-t", "smoke", "-b", &bundle, "--boots", "1"]);
        let (code, said) = code_and_words(&ran);
        assert!(code == Some(5) && said.contains(says), "{name}: {code:?}\n{said}");
        let kept = walkdir::WalkDir::new(&results).into_iter().flatten().any(|e| e.file_name() == "record.json");
        assert!(kept, "{name}: no record");
        if name == "unreadable" {
            let raw = walkdir::WalkDir::new(&results).into_iter().flatten().find(|e| e.file_name() == "rep-0.stdout");
            assert_eq!(std::fs::read_to_string(raw.expect("the raw output").path()).expect("text"), "garbage 12\n");
        }
    }
}

/// A program that Debian lacks is built from what the user names. This one is small; docs/bundles.md names the real ones.
#[test]
fn a_users_source_is_built_into_the_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("source");
    std::fs::create_dir(&source).expect("a folder");
    std::fs::write(source.join("p.c"), "#include <stdio.h>\nint main(void) { puts(\"value 42\"); return 0; }\n")
        .expect("C");
    let text = format!(
        "schema = 1\ntitle = \"a test\"\nclocks = [\"real\"]\n[[source]]\nname = \"p\"\nabout = \"p.c\"\n\
         build = [\"sh\", \"-c\", \"$CC -O1 -static -o p p.c\"]\ntake = [\"p\"]\nstand_in = \"rt-app\"\n\
         [program]\nimage = \"shell\"\nargv = [\"/opt/p/p\"]\ndeadline_s = 60\n{VALUE}"
    );
    let bundle = written(folder.path(), "sourced", &text);
    for topology in ["smoke", "altra@1/20"] {
        let given = format!("p={}", source.display());
        let kernel = if topology == "smoke" { "debian:7.2" } else { "debian-image:7.2" };
        let measured = metrics(topology, &bundle, &["-k", kernel, "--source", &given]);
        assert_eq!(number(&measured, "value", "1"), 42.0);
    }
    std::fs::write(source.join("p.c"), "int main(void) { return nothing; }\n").expect("C");
    let (ran, _) = run("smoke", &bundle, &["--source", &format!("p={}", source.display())]);
    let (code, said) = code_and_words(&ran);
    assert!(code == Some(2) && said.contains("nothing") && said.contains("failed"), "{said}");
}

/// The same key, the same bytes: made again from the packages, on every architecture.
#[test]
fn an_image_is_the_same_to_the_byte_when_made_again() {
    for arch in ["x86_64", "aarch64", "ppc64le"] {
        let results = tempfile::tempdir().expect("a folder");
        let words = ["image", "build", "rt-tests", "-a", arch, "--format", "json"];
        let first: Value = serde_json::from_slice(&output(results.path(), &words).stdout).expect("JSON");
        let ran = output(results.path(), &[&words[..], &["--again"]].concat());
        let (code, said) = code_and_words(&ran);
        assert_eq!(code, Some(0), "{said}");
        let again: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
        assert_eq!((&first["key"], &first["digest"]), (&again["key"], &again["digest"]), "{arch}");
    }
}

/// What docs/bundles.md tells a newcomer to type, word for word.
#[test]
fn the_documentations_examples_run_as_they_are_written() {
    let text = std::fs::read_to_string(root().join("docs/bundles.md")).expect("docs/bundles.md");
    let examples: Vec<&str> =
        text.split("\n## ").filter(|part| part.lines().next().is_some_and(|l| l.ends_with("word for word"))).collect();
    assert_eq!(examples.len(), 2, "the documentation's examples");
    let binary = Path::new(env!("CARGO_BIN_EXE_topolab")).parent().expect("a folder");
    for example in examples {
        let folder = tempfile::tempdir().expect("a folder");
        let typed: Vec<&str> = example.lines().filter_map(|line| line.strip_prefix("    ")).collect();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        let ran = Command::new("sh")
            .args(["-e", "-c", &typed.join("\n")])
            .current_dir(folder.path())
            .env("PATH", path)
            .output()
            .expect("sh");
        let (code, said) = code_and_words(&ran);
        let table = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(code == Some(0) && table.contains("declared = observed: yes"), "{typed:?}\n{table}\n{said}");
    }
}
