//! The walls of the house: which module may import which, no I/O in pure modules, and words at the top of every file.

// Helpers of tests fail by panicking; clippy exempts only the test functions themselves.
#![allow(clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every Rust file of a crate's folder with its text.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(folder).sort_by_file_name() {
        let entry = entry.expect("a readable source tree");
        if entry.path().extension().is_some_and(|e| e == "rs") {
            found.push((entry.path().to_path_buf(), std::fs::read_to_string(entry.path()).expect("UTF-8")));
        }
    }
    assert!(!found.is_empty(), "{} has no Rust files", folder.display());
    found
}

/// The code without its tests.
fn code(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// The floor on which each module of the tool stands; imports run downward or stay on a floor's own module.
fn floors() -> BTreeMap<&'static str, u32> {
    let floors: [&[&str]; 9] = [
        &["fault", "sys"],
        &["cancel", "digest", "paths", "progress", "topology", "stats", "splat", "mechanism", "tar"],
        &["bundle", "cache", "lock", "patch", "sweep"],
        &["apt", "qemu", "share"],
        &["image", "kernel", "guest"],
        &["plan"],
        &["results", "verdict"],
        &["report", "trials", "bench", "prove"],
        &["doctor", "cli"],
    ];
    (0..).zip(floors).flat_map(|(floor, names)| names.iter().map(move |name| (*name, floor))).collect()
}

#[test]
fn imports_run_downward() {
    let floors = floors();
    let mut wrong = Vec::new();
    for (path, text) in files(&source()) {
        let inside = path.strip_prefix(source()).expect("inside");
        let module = inside
            .components()
            .next()
            .expect("a name")
            .as_os_str()
            .to_string_lossy()
            .trim_end_matches(".rs")
            .to_string();
        if matches!(module.as_str(), "main" | "lib") {
            continue;
        }
        let own =
            *floors.get(module.as_str()).unwrap_or_else(|| panic!("{module} stands on no floor: add it to this test"));
        for other in code(&text).split("crate::").skip(1) {
            let name: String = other.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let Some(floor) = floors.get(name.as_str()) else { continue };
            // Modules of one floor may not form a circle, so only a later one may look at an earlier one.
            if *floor > own {
                wrong.push(format!("{} (floor {own}) imports {name} (floor {floor})", inside.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_modules_do_no_io() {
    let pure = [
        "topology/model.rs",
        "topology/check.rs",
        "topology/check/nodes.rs",
        "topology/check/boards.rs",
        "topology/rules.rs",
        "topology/scale.rs",
        "topology/compare.rs",
        "topology/show.rs",
        "plan.rs",
        "bundle/check.rs",
        "bundle/model.rs",
        "bundle/place.rs",
        "bundle/read.rs",
        "bundle/schema.rs",
        "bundle/sum.rs",
        "mechanism.rs",
        "sweep.rs",
        "report/sweep.rs",
        "topology/costs.rs",
        "report/mechanism.rs",
        "stats/mod.rs",
        "verdict.rs",
        "splat.rs",
        "patch/damage.rs",
        "patch/diff.rs",
        "patch/mail.rs",
        "patch/series.rs",
        "patch/subject.rs",
        "patch/thread.rs",
        "topology/capture.rs",
        "topology/draw.rs",
        "report/summary.rs",
        "report/table.rs",
        "report/json.rs",
        "qemu/options.rs",
        "qemu/argv.rs",
        "qemu/device_tree.rs",
        "qemu/forth.rs",
    ];
    let forbidden = [
        "std::fs",
        "std::net",
        "std::process",
        "std::env",
        "std::thread",
        "std::time",
        "println!",
        "eprintln!",
        "File::",
    ];
    for name in pure {
        let text = std::fs::read_to_string(source().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        for word in forbidden {
            assert!(!code(&text).contains(word), "{name} is pure, but has {word}");
        }
    }
}

#[test]
fn every_file_begins_with_what_it_is_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["src", "wire/src", "agent/src", "model/src", "tools/src", "turnstile/src"] {
        for (path, text) in files(&root.join(folder)) {
            assert!(text.starts_with("//! "), "{} has no words at its top", path.display());
        }
    }
}

#[test]
fn every_rule_of_a_topology_stands_in_the_documentation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules = std::fs::read_to_string(root.join("src/topology/rules.rs")).expect("the rules");
    let table = std::fs::read_to_string(root.join("../docs/topology.md")).expect("the documentation");
    let codes: Vec<&str> = rules.split("code(").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes {
        assert!(table.contains(&format!("| `{code}` |")), "{code} has no row in docs/topology.md");
    }
}

#[test]
fn qemu_options_are_spelt_in_one_place() {
    for (path, text) in files(&source()) {
        let inside = path.strip_prefix(source()).expect("inside").display().to_string();
        // The dry run's few words are the one exception: it asks QEMU about an option before a machine exists.
        if matches!(inside.as_str(), "qemu/argv.rs" | "qemu/options.rs" | "qemu/features.rs") {
            continue;
        }
        for word in ["\"-machine", "\"-smp", "\"-numa", "\"-icount", "smp-cache.", "memory-backend"] {
            assert!(!code(&text).contains(word), "{inside} spells the QEMU option {word}");
        }
    }
}

#[test]
fn unsafe_code_stays_in_its_module() {
    for (path, text) in files(&source()) {
        let allowed = path.ends_with("sys.rs");
        assert!(allowed || !text.contains("allow(unsafe_code)"), "{} allows unsafe code", path.display());
    }
}

#[test]
fn licences_are_said_where_they_differ() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let busy = std::fs::read_to_string(root.join("busy/topolab_busy.c")).expect("the module");
    assert!(busy.starts_with("// SPDX-License-Identifier: GPL-2.0-only"));
    for entry in std::fs::read_dir(root.join("../patches")).expect("patches").flatten() {
        let readme = std::fs::read_to_string(entry.path().join("README.md")).expect("a README beside each series");
        assert!(readme.contains("SPDX-License-Identifier: GPL-2.0-only"), "{}", entry.path().display());
    }
}
