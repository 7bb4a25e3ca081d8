//! Real guests: what goes right, and every way in which it can go wrong. They share the kernel that CI has built.

use crate::common::{Guarded, code_and_words, output, qemu_of, root, signal, topolab, wait_for, wait_for_console};
use nix::sys::signal::Signal;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A short real run on the smallest machine.
const PIPE: [&str; 8] = ["run", "-t", "smoke", "-b", "sched-pipe", "-p", "loops=100", "--boots=1"];

fn with<'a>(words: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [words, more].concat()
}

fn records(results: &Path) -> Vec<serde_json::Value> {
    let found = walkdir::WalkDir::new(results)
        .sort_by_file_name()
        .into_iter()
        .flatten()
        .filter(|e| e.file_name() == "record.json");
    found.map(|e| serde_json::from_slice(&std::fs::read(e.path()).expect("a record")).expect("JSON")).collect()
}

#[test]
fn the_smallest_machine_is_what_it_says_and_a_lie_is_caught() {
    let folder = tempfile::tempdir().expect("a folder");
    let verified = output(folder.path(), &["topology", "verify", "smoke"]);
    assert_eq!(verified.status.code(), Some(0), "{}", String::from_utf8_lossy(&verified.stdout));

    // Each line is a machine that QEMU boots happily, and that is not the declared one.
    let text = include_str!("../../../topologies/smoke.toml");
    for (from, to, what) in [("model = 143", "model = 144", "CPU model"), ("family = 6", "family = 7", "CPU family")] {
        let path = folder.path().join("liar.toml");
        std::fs::write(&path, text.replacen(from, to, 1)).expect("a file");
        let lied = output(folder.path(), &["topology", "verify", &path.display().to_string()]);
        let said = String::from_utf8_lossy(&lied.stdout).into_owned();
        assert_eq!(lied.status.code(), Some(1), "{said}");
        assert!(said.lines().any(|line| line.starts_with('≠') && line.contains(what)), "{said}");
    }
}

#[test]
fn a_mismatch_is_not_measured_unless_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("liar.toml");
    std::fs::write(&path, include_str!("../../../topologies/smoke.toml").replacen("model = 143", "model = 144", 1))
        .expect("a file");
    let liar = path.display().to_string();
    let words = ["run", "-t", &liar, "-b", "sched-pipe", "-p", "loops=100", "--boots=1", "--format=json"];
    let refused = output(folder.path(), &words);
    let (code, said) = code_and_words(&refused);
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("not the declared machine") && said.contains("CPU model"), "{said}");
    let allowed = output(folder.path(), &with(&words, &["--allow-mismatch"]));
    assert_eq!(allowed.status.code(), Some(0), "{}", String::from_utf8_lossy(&allowed.stderr));
    let json: serde_json::Value = serde_json::from_slice(&allowed.stdout).expect("JSON");
    assert_eq!(json["trials"][0]["observed"]["matches"], false);
    assert!(json["trials"][0]["metrics"]["usecs_per_op"]["samples"][0].is_f64(), "{json}");
}

#[test]
fn an_ordinary_user_needs_nothing_but_a_kernel_whatever_the_paths() {
    // The results' path has a space and a comma, the working directory is not the repository, and where the tests run as
    // root, topolab runs as nobody, with a home and a cache of its own.
    let home = tempfile::Builder::new().prefix("topolab user, ").tempdir().expect("a folder");
    let inside = |name: &str| home.path().join(name);
    let build = output(home.path(), &["kernel", "build", "debian:7.2", "--format=json", "-q"]);
    let kernel: serde_json::Value = serde_json::from_slice(&build.stdout).expect("the kernel that CI built");
    std::fs::copy(kernel["image"].as_str().expect("a path"), inside("bz,Image")).expect("a copy");
    std::fs::copy(env!("CARGO_BIN_EXE_topolab"), inside("topolab")).expect("a copy");
    std::fs::create_dir(inside("work here")).expect("a folder");
    let words = [
        "run",
        "-t",
        "smoke",
        "-b",
        "sched-pipe",
        "-p",
        "loops=100",
        "--boots=1",
        "--format=json",
        "--results",
        "the, results",
    ];
    let mut command = if nix::unistd::geteuid().is_root() {
        for path in [home.path().to_path_buf(), inside("bz,Image"), inside("topolab"), inside("work here")] {
            let status = Command::new("chown").arg("65534:65534").arg(&path).status().expect("chown");
            assert!(status.success());
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(inside("topolab"));
        command
    } else {
        Command::new(inside("topolab"))
    };
    command.args(words).arg("-k").arg(format!("image:{}", inside("bz,Image").display()));
    command.current_dir(inside("work here")).env("HOME", home.path()).env_remove("XDG_CACHE_HOME").stdin(Stdio::null());
    let ran = command.output().expect("topolab starts");
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(0), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(json["trials"][0]["observed"]["matches"], true, "{json}");
    assert!(inside("work here").join("the, results").is_dir());
}

#[test]
fn a_killed_qemu_is_the_labs_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let child =
        topolab(folder.path(), &with(&PIPE, &["-p", "loops=1000000"])).stderr(Stdio::piped()).spawn().expect("starts");
    let mut child = Guarded(child);
    wait_for_console(folder.path(), "topolab: hello", 120);
    let qemu = wait_for("QEMU", 60, || qemu_of(child.0.id()));
    signal(qemu, Signal::SIGKILL);
    let status = wait_for("topolab's end", 60, || child.0.try_wait().expect("waits"));
    assert_eq!(status.code(), Some(5));
    let records = records(folder.path());
    assert_eq!(records[0]["fault"]["kind"], "lab", "{records:?}");
    assert!(records[0]["fault"]["message"].as_str().is_some_and(|m| m.contains("QEMU died") && m.contains("signal 9")));
    assert!(records[0]["metrics"].as_object().is_some_and(|m| m.is_empty()), "a fault has no numbers");
}

#[test]
fn a_kernel_that_panics_at_boot_is_the_kernels_fault_with_its_last_words() {
    let folder = tempfile::tempdir().expect("a folder");
    // A real panic of a real kernel: it has no init to run.
    let ran = output(folder.path(), &with(&PIPE, &["--append", "rdinit=/nonexistent"]));
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("died before its agent ran") && said.contains("Kernel panic - not syncing"), "{said}");
    assert_eq!(records(folder.path())[0]["fault"]["kind"], "boot");
}

#[test]
fn a_kernel_that_hangs_meets_its_deadline() {
    let folder = tempfile::tempdir().expect("a folder");
    // A real hang: told not to reboot, a panicked kernel loops for ever with its interrupts on.
    let hang = ["--append", "rdinit=/nonexistent panic=0", "--boot-deadline=15"];
    let ran = output(folder.path(), &with(&PIPE, &hang));
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("did not come up within 15 s") && said.contains("Kernel panic"), "{said}");
}

#[test]
fn a_bundle_that_fails_keeps_its_words_and_blames_no_kernel() {
    let folder = tempfile::tempdir().expect("a folder");
    let bundle = folder.path().join("broken");
    std::fs::create_dir(&bundle).expect("a folder");
    let text = include_str!("../../../images/bundles/sched-pipe/bundle.toml")
        .replace("\"sched\", \"pipe\"", "\"sched\", \"pype\"");
    std::fs::write(bundle.join("bundle.toml"), text).expect("a file");
    let ran = output(folder.path(), &["run", "-t", "smoke", "-b", &bundle.display().to_string(), "--boots=1"]);
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("pype") && said.contains("the raw output:"), "{said}");
    assert_eq!(records(folder.path())[0]["fault"]["kind"], "bundle");
}

#[test]
fn ctrl_c_keeps_what_is_finished_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let scratch = folder.path().join("tmp");
    std::fs::create_dir(&scratch).expect("a folder");
    let words = with(&PIPE[..7], &["--boots=3"]);
    let child = topolab(folder.path(), &words).env("TMPDIR", &scratch).stderr(Stdio::piped()).spawn().expect("starts");
    let mut child = Guarded(child);
    wait_for("the first record", 180, || (!records(folder.path()).is_empty()).then_some(()));
    let qemu = wait_for("the second guest", 60, || qemu_of(child.0.id()));
    signal(child.0.id(), Signal::SIGINT);
    let status = wait_for("topolab's end", 30, || child.0.try_wait().expect("waits"));
    assert_eq!(status.code(), Some(130));
    wait_for("QEMU's end", 10, || (!Path::new(&format!("/proc/{qemu}")).exists()).then_some(()));
    let left: Vec<_> = std::fs::read_dir(&scratch).expect("the folder").flatten().map(|e| e.path()).collect();
    assert!(left.is_empty(), "sockets or folders were left: {left:?}");
    let kept = records(folder.path());
    assert!(!kept.is_empty() && kept.iter().all(|record| record["fault"].is_null()), "{kept:?}");
}

#[test]
fn a_lab_that_is_killed_takes_its_guest_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let child =
        topolab(folder.path(), &with(&PIPE, &["-p", "loops=1000000"])).stderr(Stdio::null()).spawn().expect("starts");
    let mut child = Guarded(child);
    wait_for_console(folder.path(), "topolab: hello", 120);
    let qemu = wait_for("QEMU", 60, || qemu_of(child.0.id()));
    child.0.kill().expect("kills");
    child.0.wait().expect("waits");
    wait_for("QEMU's end", 10, || (!Path::new(&format!("/proc/{qemu}")).exists()).then_some(()));
}

#[test]
fn a_patch_that_does_not_apply_is_named_with_hunk_and_tree() {
    let folder = tempfile::tempdir().expect("a folder");
    let patch = root().join("patches/sync-llc-headroom");
    let file = std::fs::read_dir(patch)
        .expect("the series")
        .flatten()
        .map(|e| e.path())
        .find(|p| p.extension().is_some_and(|e| e == "patch"));
    let text = std::fs::read_to_string(file.expect("a patch")).expect("text");
    let changed = text.replace(" \tif (sched_feat(WA_IDLE))", " \tif (sched_feat(WA_IDLEST))");
    assert_ne!(changed, text);
    let bad = folder.path().join("0001-bad.patch");
    std::fs::write(&bad, changed).expect("a file");
    let ran = output(folder.path(), &["kernel", "build", "debian:7.2", "--patch", &bad.display().to_string()]);
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(4), "{said}");
    for part in ["0001-bad.patch does not apply", "kernel/sched/fair.c: hunk 2 fails", "WA_IDLEST", "the tree has:"] {
        assert!(said.contains(part), "`{part}` is missing:\n{said}");
    }
}

#[test]
fn a_symbol_that_kconfig_drops_is_an_error_with_its_dependency() {
    let folder = tempfile::tempdir().expect("a folder");
    let fragment = folder.path().join("mine.config");
    std::fs::write(&fragment, "CONFIG_SCHED_CORE_NOT=y\nCONFIG_IRQ_REMAP=y\n").expect("a file");
    let ran = output(folder.path(), &["kernel", "build", "debian:7.2", "--config", &fragment.display().to_string()]);
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("CONFIG_SCHED_CORE_NOT=y") && said.contains("no such symbol"), "{said}");
    assert!(said.contains("CONFIG_IRQ_REMAP=y") && said.contains("depends on"), "{said}");
}

#[test]
fn too_little_disk_is_said_before_a_build_starts() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: a small file system can only be mounted as root");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let small = folder.path().join("small");
    std::fs::create_dir(&small).expect("a folder");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(&small).status().expect("mount");
    if !mounted.success() {
        println!("skipped: this root may not mount");
        return;
    }
    // What the archive has is known already, so that the test needs no network.
    std::fs::create_dir_all(small.join("apt")).expect("a folder");
    std::fs::write(small.join("apt/linux-source-7.2.versions"), "7.2.13-1").expect("a file");
    let plain = small.display().to_string().chars().all(|c| c.is_ascii_alphanumeric() || "/._+-@".contains(c));
    assert!(plain, "a cache with other characters builds elsewhere: {}", small.display());
    let ran = output(folder.path(), &["kernel", "build", "debian:7.2", "--cache", &small.display().to_string()]);
    let (code, said) = code_and_words(&ran);
    let unmounted = Command::new("umount").arg(&small).status().expect("umount");
    assert!(unmounted.success());
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("too little disk for a kernel's source") && said.contains("MiB are needed"), "{said}");
}

#[test]
fn a_qemu_that_refuses_is_quoted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.toml");
    let text = include_str!("../../../topologies/smoke.toml").replace("SapphireRapids", "SapphireRabbits");
    std::fs::write(&path, text).expect("a file");
    let ran = output(folder.path(), &["run", "-t", &path.display().to_string(), "-b", "sched-pipe", "--boots=1"]);
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("QEMU refused to start") && said.contains("SapphireRabbits"), "{said}");
}

/// Runs topolab with the real QEMU behind a shell line.
fn with_qemu_behind(line: &str, folder: &Path, words: &[&str]) -> Output {
    let real = Command::new("sh").args(["-c", "command -v qemu-system-x86_64"]).output().expect("sh");
    let real = String::from_utf8_lossy(&real.stdout).trim().to_string();
    let wrapper = folder.join("qemu-system-x86_64");
    std::fs::write(&wrapper, format!("#!/bin/sh\n{line}\nexec '{real}' \"$@\"\n")).expect("a file");
    assert!(Command::new("chmod").arg("+x").arg(&wrapper).status().expect("chmod").success());
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("PATH"));
    topolab(folder, words).env("PATH", path).output().expect("starts")
}

#[test]
fn a_qemu_whose_virtual_clock_would_not_repeat_is_refused() {
    // As a statically linked one, which no library can be preloaded into.
    let folder = tempfile::tempdir().expect("a folder");
    let words = ["run", "-t", "smoke", "-b", "epoll-fanin", "--clock=virtual"];
    let ran = with_qemu_behind("unset LD_PRELOAD", folder.path(), &words);
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("virtual clock does not repeat") && said.contains("dynamically linked"), "{said}");
}

#[test]
fn a_qemu_that_is_too_old_is_told_apart() {
    // The real QEMU answers everything but the option that old ones lack: what Debian 12's own 7.2 says, to the letter.
    let folder = tempfile::tempdir().expect("a folder");
    let case = "case \"$*\" in *smp-cache*) echo \"qemu-system-x86_64: Property 'pc-q35-7.2-machine.smp-cache' not found\" >&2; exit 1;; esac";
    let ran = with_qemu_behind(case, folder.path(), &PIPE);
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(5), "{said}");
    assert!(
        said.contains("too old") && said.contains("smp-cache' not found") && said.contains("doctor --fix"),
        "{said}"
    );
}
