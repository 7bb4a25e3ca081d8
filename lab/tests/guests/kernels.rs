//! Kernels are built for real here: killed in the middle, built by two labs at once, and compared by what they do. Every source
//! form, and Clang, by `TOPOLAB_SOURCES=1`.

use crate::common::{Guarded, code_and_words, output, signal, topolab, wait_for};
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A patch of a file of the kernel's tree, as a bare diff: a line in front of its first, or behind its last.
fn patch(folder: &Path, name: &str, file: &str, front: Option<&str>, back: Option<&str>) -> String {
    let old = pristine(file);
    let lines: Vec<&str> = old.lines().collect();
    let context = |part: &[&str]| part.iter().map(|line| format!(" {line}\n")).collect::<String>();
    let last = lines.len() - 3;
    let mut diff = format!("--- a/{file}\n+++ b/{file}\n");
    if let Some(text) = front {
        diff.push_str(&format!("@@ -1,3 +1,4 @@\n+{text}\n{}", context(&lines[..3])));
    }
    if let Some(text) = back {
        diff.push_str(&format!("@@ -{},3 +{},4 @@\n{}+{text}\n", last + 1, last + 1, context(&lines[last..])));
    }
    let path = folder.join(format!("{name}.patch"));
    std::fs::write(&path, diff).expect("a patch");
    path.display().to_string()
}

/// A file as Debian's source has it, whatever series is on the tree just now.
fn pristine(file: &str) -> String {
    let tree = source();
    let git = format!("--git-dir={}", tree.join(".git").display());
    let shown =
        std::process::Command::new("git").args([&git, "show", &format!("pristine:{file}")]).output().expect("git");
    match shown.status.success() {
        true => String::from_utf8(shown.stdout).expect("UTF-8"),
        // Not under version control yet, so no series has touched it.
        false => std::fs::read_to_string(tree.join(file)).expect("a kernel source"),
    }
}

/// The newest Debian source in the cache.
fn source() -> PathBuf {
    let json = cache_list();
    let entries = json["entries"].as_array().expect("entries").clone();
    let wanted = |entry: &&serde_json::Value| {
        entry["kind"] == "source" && entry["name"].as_str().is_some_and(|name| name.starts_with("linux-source-7.2"))
    };
    let path = entries.iter().find(wanted).and_then(|entry| entry["path"].as_str()).expect("a source in the cache");
    Path::new(path).join("tree")
}

fn cache_list() -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a folder");
    let ran = output(folder.path(), &["cache", "list", "--format=json"]);
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

fn build(words: &[&str]) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a folder");
    let ran = output(folder.path(), &[&["kernel", "build", "--format=json"], words].concat());
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(0), "{said}");
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

#[test]
fn a_killed_build_leaves_nothing_and_two_labs_build_once() {
    let folder = tempfile::tempdir().expect("a folder");
    // Another one at each run, so that no cache has it.
    let unique = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_nanos();
    let patch =
        patch(folder.path(), "marker", "lib/argv_split.c", None, Some(&format!("int topolab_marker_{unique};")));
    let words = ["kernel", "build", "debian:7.2", "--patch", &patch, "--format=json"];
    let before = cache_list()["entries"].as_array().map(Vec::len);
    let mut killed =
        Guarded(topolab(folder.path(), &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("topolab"));
    let builds = source().join("..");
    let building = || {
        let beside = std::fs::read_dir(&builds).ok()?.flatten();
        beside.map(|entry| entry.path().join(".topolab-building")).find(|marker| marker.exists())
    };
    let marker = wait_for("a build", 120, building);
    std::thread::sleep(std::time::Duration::from_secs(2));
    signal(killed.0.id(), Signal::SIGKILL);
    killed.0.wait().expect("topolab");
    assert!(marker.exists(), "the build was over before it could be killed");
    assert_eq!(cache_list()["entries"].as_array().map(Vec::len), before, "a killed build left something in the store");

    // Two labs with the same wish: one builds, the other waits and finds it.
    let both: Vec<_> = (0..2)
        .map(|_| topolab(folder.path(), &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("topolab"))
        .collect();
    let ran: Vec<_> = both.into_iter().map(|child| child.wait_with_output().expect("topolab")).collect();
    let (said, images): (Vec<String>, Vec<serde_json::Value>) = ran
        .iter()
        .map(|ran| {
            let (code, said) = code_and_words(ran);
            assert_eq!(code, Some(0), "{said}");
            (said, serde_json::from_slice(&ran.stdout).expect("JSON"))
        })
        .unzip();
    assert_eq!(images[0], images[1]);
    assert_eq!(said.iter().filter(|said| said.contains("building kernel")).count(), 1, "{said:?}");
}

#[test]
fn a_patch_that_changes_nothing_has_the_base_s_signature() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = build(&["debian:7.2"]);
    // In front of every WARN_ON() of the file, whose line numbers are in the image.
    let words = patch(folder.path(), "words", "kernel/sched/fair.c", Some("/* Only words. */"), None);
    let words = build(&["debian:7.2", "--patch", &words]);
    assert_ne!(words["key"], base["key"]);
    assert_eq!(words["signature"], base["signature"]);
    let code = patch(folder.path(), "code", "kernel/sched/fair.c", None, Some("int topolab_code = 42;"));
    assert_ne!(build(&["debian:7.2", "--patch", &code])["signature"], base["signature"]);
}

/// What a kernel from each form of source is worth: it boots, and it is the declared machine.
fn boots(kernel: &str, more: &[&str]) {
    let json = build(&[&[kernel], more].concat());
    let image = format!("image:{}", json["image"].as_str().expect("an image"));
    let folder = tempfile::tempdir().expect("a folder");
    let ran = output(folder.path(), &["topology", "verify", "smoke", "--kernel", &image, "--format=json"]);
    let (code, said) = code_and_words(&ran);
    assert_eq!(code, Some(0), "{kernel}: {said}");
}

#[test]
fn every_source_form_builds_and_boots() {
    if std::env::var_os("TOPOLAB_SOURCES").is_none() {
        println!(
            "skipped: TOPOLAB_SOURCES=1 builds kernels of every form, kind and architecture, which takes half an hour"
        );
        return;
    }
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let shell = |script: &str| {
        let status = std::process::Command::new("sh").args(["-euc", script]).current_dir(folder.path()).status();
        assert!(status.expect("sh").success(), "{script}");
    };
    // The tree as a tarball, as a repository, and as a repository with something on top.
    shell(&format!("cp -a '{}' linux && rm -rf linux/.git && tar -cf linux.tar linux", source().display()));
    let git = "git -c user.name=t -c user.email=t@localhost -C linux";
    shell(&format!("{git} init -q && {git} add -A -f && {git} commit -q -m base"));
    shell(&format!("echo 'int topolab_commit;' >> linux/lib/argv_split.c && {git} commit -q -a -m more"));
    shell("echo 'int topolab_dirty;' >> linux/lib/argv_split.c");
    boots(&format!("tar:{}", at("linux.tar")), &[]);
    boots(&format!("git:{}@HEAD", at("linux")), &[]);
    boots(&format!("git:{}@HEAD~1", at("linux")), &[]);
    boots(&format!("tree:{}", at("linux")), &[]);
    // The debugging aids' symbols survive, and their kernels boot without a complaint.
    boots("debian:7.2", &["--config", "lockdep"]);
    boots("debian:7.2", &["--config", "kasan"]);
    // Cross compiled.
    for arch in ["aarch64", "ppc64le"] {
        let ran = output(folder.path(), &["topology", "verify", "smoke", "--arch", arch, "--kernel", "debian:7.2"]);
        let (code, said) = code_and_words(&ran);
        assert_eq!(code, Some(0), "{arch}: {said}");
    }
    let clang = (14..30).any(|version| Path::new(&format!("/usr/bin/clang-{version}")).exists());
    match clang {
        true => boots("debian:7.2", &["--compiler", "clang"]),
        false => println!("skipped: no Clang is installed here"),
    }
}
