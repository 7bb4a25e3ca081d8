//! The command line without guests: what it prints, what it refuses, and with which exit code.

// Helpers of tests fail by panicking; clippy exempts only the test functions themselves.
#![allow(clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Output};

fn topolab(words: &[&str]) -> Output {
    let cache = std::env::temp_dir().join("topolab-test-cache");
    Command::new(env!("CARGO_BIN_EXE_topolab")).args(words).arg("--cache").arg(cache).output().expect("topolab starts")
}

fn refused(words: &[&str], code: i32, says: &[&str]) {
    let output = topolab(words);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
    for text in says {
        assert!(stderr.contains(text), "{words:?} does not say `{text}`:\n{stderr}");
    }
    assert!(output.stdout.is_empty(), "{words:?} printed data all the same");
}

/// The example topology with one line changed, in a folder whose name has a space and a comma.
fn changed(folder: &Path, from: &str, to: &str) -> String {
    let text = include_str!("../../topologies/cwf-snc3.toml");
    assert!(text.contains(from), "the example lost `{from}`");
    let folder = folder.join("a b,c");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("mine.toml");
    std::fs::write(&path, text.replacen(from, to, 1)).expect("a file");
    path.display().to_string()
}

#[test]
fn an_unknown_key_names_file_line_column_and_the_known_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = changed(folder.path(), "modules = 72", "moduls = 72");
    refused(&["topology", "check", &path], 2, &["unknown field `moduls`", "mine.toml:15:1", "modules"]);
}

#[test]
fn an_impossible_count_names_the_rule() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = changed(folder.path(), "count = 3", "count = 5");
    refused(
        &["topology", "check", &path],
        2,
        &["5 nodes do not divide 288 CPUs", "mine.toml:", "topology::node_count"],
    );
}

#[test]
fn more_memory_than_there_is_is_said_before_anything_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = changed(folder.path(), "340M", "9000G");
    let image = folder.path().join("bzImage");
    std::fs::write(&image, "x").expect("a file");
    let kernel = format!("image:{}", image.display());
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        println!("skipped: QEMU is not installed, and it is looked for first");
        return;
    }
    refused(
        &["run", "-t", &path, "-k", &kernel, "-b", "sched-pipe"],
        5,
        &["too little memory to boot mine", "MiB are needed", "@1/N"],
    );
}

#[test]
fn a_machine_without_qemu_is_told_how_to_get_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_topolab"))
        .args(["run", "-t", "smoke", "-k", "debian:7.2", "-b", "sched-pipe", "--cache"])
        .arg(std::env::temp_dir().join("topolab-test-cache"))
        .env("PATH", "/nonexistent")
        .output()
        .expect("topolab starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("qemu-system-x86_64 is not installed") && stderr.contains("doctor --fix"), "{stderr}");
}

#[test]
fn wrong_words_are_usage_errors() {
    refused(&["run", "-t", "smok", "-b", "sched-pipe"], 2, &["no topology is named `smok`", "cwf-snc3"]);
    refused(&["run", "-t", "smoke", "-b", "sched-pipes"], 2, &["no bundle is named", "sched-pipe"]);
    refused(&["run", "-t", "smoke", "-b", "epoll-fanin"], 2, &["means nothing under --clock real", "virtual"]);
    refused(&["run", "-t", "smoke", "-b", "sched-pipe", "-k", "7.2"], 2, &["names no kernel", "debian:7.2"]);
    refused(&["run", "-t", "smoke", "-b", "sched-pipe", "-p", "loops=none"], 2, &["-p loops=none", "whole number"]);
    refused(&["run", "-t", "cwf-snc3@1/5", "-b", "sched-pipe"], 2, &["cannot be scaled to 1/5", "possible: 1/2"]);
    refused(
        &["run", "-t", "smoke", "-b", "epoll-fanin", "--clock", "virtual", "--accel", "kvm"],
        2,
        &["counts instructions"],
    );
    refused(&["run", "-t", "smoke", "-t", "smoke", "-b", "sched-pipe"], 2, &["`smoke` is given twice"]);
    refused(&["ab", "-t", "smoke", "-b", "sched-pipe"], 2, &["--patch P is missing"]);
    refused(&["ab", "-t", "smoke", "-b", "sched-pipe", "--patch", "/nonexistent"], 2, &["/nonexistent"]);
}

#[test]
fn a_scaled_machine_is_described() {
    let output = topolab(&["topology", "show", "cwf-snc3@1/12"]);
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_bundle_is_described() {
    let output = topolab(&["bundle", "show", "sched-pipe"]);
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stdout));
}

#[test]
fn json_is_one_object_per_command() {
    let output = topolab(&["topology", "show", "smoke", "--format", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["shape"]["cores"], 2);
}

/// A patch of kernel/f.c as a mail.
const MAIL: &str = "From: A <a@x>\nSubject: [PATCH v2 1/2] f: one\nMessage-ID: <1@x>\n\nwords\n---\ndiff --git a/kernel/f.c b/kernel/f.c\n--- a/kernel/f.c\n+++ b/kernel/f.c\n@@ -1,3 +1,3 @@\n \tone\n-\ttwo\n+\tzwei\n \tthree\n-- \n2.47\n";

/// What `patch check` says of a folder with these files, and its exit code.
fn checked(files: &[(&str, &str)], name: &str, more: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    for (file, text) in files {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    let path = folder.path().join(name).display().to_string();
    let output = topolab(&[&["patch", "check", &path], more].concat());
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), said)
}

#[test]
fn patches_are_read_from_whatever_holds_them() {
    let second = MAIL.replace("1/2] f: one", "2/2] f: two").replace("<1@x>", "<2@x>");
    let folder = [("s/0002-b.patch", second.as_str()), ("s/0001-a.patch", MAIL), ("s/README", "no patch")];
    let (code, said) = checked(&folder, "s", &[]);
    assert!(code == Some(0) && said.contains("2 of 2") && said.contains("v2"), "{said}");
    let maildir = [("m/cur/1:2,S", second.as_str()), ("m/new/2", MAIL), ("m/tmp/x", "")];
    let (code, said) = checked(&maildir, "m", &[]);
    assert!(code == Some(0) && said.contains("2 of 2"), "{said}");
    let mbox = format!("From a@x Thu Jan  1 00:00:00 1970\n{second}\nFrom a@x Thu Jan  1 00:00:00 1970\n{MAIL}");
    let (code, said) = checked(&[("t.mbox", &mbox)], "t.mbox", &["--format=json"]);
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (code, json["patches"][0]["title"].as_str(), json["total"].as_u64()),
        (Some(0), Some("f: one"), Some(2))
    );
    let bare = MAIL.replace("v2 1/2", "").replace("[PATCH ]", "[PATCH]");
    let quilt = [
        ("q/series", "# order\nb.patch\na.patch -p1\n"),
        ("q/a.patch", &bare),
        ("q/b.patch", &bare.replace("f: one", "f: first")),
    ];
    let (code, said) = checked(&quilt, "q", &[]);
    assert!(code == Some(0) && said.find("f: first") < said.find("f: one"), "{said}");
    let (code, said) = checked(&[("q/series", "gone.patch\n")], "q", &[]);
    assert!(code == Some(2) && said.contains("series:1") && said.contains("gone.patch"), "{said}");
}

#[test]
fn what_cannot_be_applied_is_refused_with_its_reason() {
    let (code, said) = checked(&[("a.patch", MAIL)], "a.patch", &[]);
    assert!(code == Some(2) && said.contains("2/2 missing"), "{said}");
    let hostile = MAIL.replace(" v2 1/2", "").replace("+++ b/kernel/f.c", "+++ b/../f.c");
    let (code, said) = checked(&[("a.patch", &hostile)], "a.patch", &[]);
    assert!(code == Some(2) && said.contains("outside the kernel tree"), "{said}");
    let (code, said) = checked(&[("a.patch", "")], "gone.patch", &[]);
    assert!(code == Some(2) && said.contains("gone.patch"), "{said}");
    let (code, said) = checked(&[("a/x.txt", "")], "a", &[]);
    assert!(code == Some(2) && said.contains("no *.patch in this folder"), "{said}");
}

#[test]
fn a_message_id_needs_b4() {
    let output = Command::new(env!("CARGO_BIN_EXE_topolab"))
        .args(["patch", "check", "20260101.1@example.org"])
        .env("PATH", "/nowhere")
        .output()
        .expect("topolab starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("b4"), "{said}");
}

#[test]
fn a_bundle_whose_program_debian_lacks_names_the_mend() {
    for (bundle, mend) in [
        ("schbench", "-b rt-app"),
        ("memcached-memtier", "-b memcached"),
        ("openresty", "-b nginx"),
        ("vllm-serving", "-b llm-serving"),
        ("specjbb", "--source specjbb2015=FOLDER or TARBALL"),
    ] {
        refused(&["run", "-t", "smoke", "-b", bundle], 2, &["which Debian does not have", "--source", mend]);
    }
    refused(&["run", "-t", "smoke", "-b", "schbench", "--source", "schbench=/nowhere"], 2, &["no such folder or file"]);
    refused(&["run", "-t", "smoke", "-b", "schbench", "--source", "schbench"], 2, &["not KEY=VALUE"]);
}

#[test]
fn a_wrong_bundle_is_refused_with_file_and_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine");
    std::fs::create_dir(&path).expect("a folder");
    let text = include_str!("../../images/bundles/memcached/bundle.toml");
    for (from, to, says) in [
        ("cpus = \"node:{client_node}\"", "cpus = \"nod:0\"", "is no place"),
        ("{client_threads}", "{client_thread}", "{client_thread} is not declared"),
        ("load * client_node_cpus / 48", "load * node_cpu / 48", "`node_cpu` is neither a parameter nor a fact"),
        ("ready = { tcp", "redy = { tcp", "unknown field `redy`"),
    ] {
        assert!(text.contains(from), "the example lost `{from}`");
        std::fs::write(path.join("bundle.toml"), text.replacen(from, to, 1)).expect("a file");
        let at = text.replacen(from, to, 1).lines().position(|line| line.contains(to)).expect("the line") + 1;
        refused(&["bundle", "show", &path.display().to_string()], 2, &[says, &format!("bundle.toml:{at}: ")]);
    }
}

#[test]
fn a_run_is_refused_before_anything_begins() {
    for (words, says) in [
        (vec!["-t", "smoke", "-b", "nginx", "-a", "ppc64le"], "has no programs for ppc64le"),
        (vec!["-t", "cwf-snc3", "-b", "hackbench", "-a", "aarch64"], "not every machine is one"),
        (vec!["-t", "altra", "-t", "power10", "-b", "hackbench"], "must be of one architecture"),
        (vec!["-t", "smoke", "-b", "memcached", "-p", "client_node=7"], "there is no node 7 on this machine"),
        (vec!["-t", "smoke", "-b", "memcached", "-p", "nic=node1"], "one of spread, node0 is needed"),
        (vec!["-t", "altra", "-b", "hackbench", "--accel", "kvm"], "this host runs no aarch64 code"),
    ] {
        refused(&[&["run"], words.as_slice()].concat(), 2, &[says]);
    }
    let source = ["run", "-t", "smoke", "-b", "hackbench", "--source", "schbench=/"];
    refused(&source, 2, &["--source schbench: no bundle of this run asks for it"]);
    refused(&["run", "-t", "smoke", "-b", "hackbench", "--cost", "llc=5us"], 2, &["costs are charged to models"]);
    refused(&["run", "-t", "smoke", "-b", "pipe-pair", "--clock", "virtual", "--costs"], 2, &["smoke declares none"]);
    refused(&["run", "-t", "smoke", "-b", "pipe-pair", "--cost", "l3=5us"], 2, &["`l3` is no cost", "llc"]);
    refused(&["image", "build", "nothing"], 2, &["no image is named `nothing`", "llama"]);
}
