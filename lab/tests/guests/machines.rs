//! Every built-in machine boots and is what it says, small in CI and full-size by `TOPOLAB_FULL_SIZE=1`; and a declaration
//! that lies about a booted machine is caught at the level it lies about.

use crate::common::{code_and_words, output};
use topolab::topology::{self, Arch, Topology, compare};
use topolab_wire::Observation;

/// A scale of each machine that boots within seconds.
const SMALL: [&str; 8] = [
    "smoke",
    "smp",
    "cwf-snc3@1/12",
    "cwf-2s-snc3@1/24",
    "gnr-2s-snc3@1/20",
    "spr-2s-snc2@1/15",
    "epyc-nps4@1/8",
    "power-like@1/5",
];

/// Boots a machine, and returns what the guest saw.
fn verified(topology: &str) -> Observation {
    let folder = tempfile::tempdir().expect("a folder");
    let ran = output(folder.path(), &["topology", "verify", topology, "--format=json"]);
    let (code, said) = code_and_words(&ran);
    let json: serde_json::Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{topology}: {e}\n{said}"));
    assert_eq!(code, Some(0), "{topology}: {}", json["rows"]);
    serde_json::from_value(json["observation"].clone()).expect("an observation")
}

#[test]
fn every_machine_has_a_small_scale_that_is_tested() {
    let tested: Vec<&str> = SMALL.iter().map(|t| t.split('@').next().expect("a name")).collect();
    for name in topology::names() {
        assert!(tested.contains(&name.as_str()), "{name} is not in SMALL");
    }
}

#[test]
fn every_machine_is_what_it_says_at_small_scale() {
    for name in SMALL {
        verified(name);
    }
}

#[test]
fn the_largest_machines_are_what_they_say_at_full_size() {
    if std::env::var_os("TOPOLAB_FULL_SIZE").is_none() {
        println!("skipped: TOPOLAB_FULL_SIZE=1 boots 120 to 288 CPUs, which takes minutes");
        return;
    }
    for name in ["power-like", "spr-2s-snc2", "epyc-nps4", "cwf-snc3"] {
        verified(name);
    }
}

/// The machine with one thing declared otherwise.
fn lie(text: &str, from: &str, to: &str) -> Topology {
    assert!(text.contains(from), "the declaration lost `{from}`");
    topology::parse("liar", &text.replacen(from, to, 1)).expect("a declaration that breaks no rule")
}

#[test]
fn a_lie_of_each_kind_is_caught_at_its_level() {
    // SMT, an L3 per core, one node; the lies are all well-formed machines of as many CPUs.
    let power = include_str!("../../../topologies/power-like.toml").replace("cores = 30", "cores = 6");
    let seen = verified("power-like@1/5");
    let caught = |topology: &Topology, seen: &Observation| -> Vec<String> {
        compare(topology, Arch::X86_64, seen).differing().map(|row| row.what.clone()).collect()
    };
    let honest = topology::parse("power-like", &power).expect("the declaration");
    assert_eq!(caught(&honest, &seen), [""; 0]);

    let smt = lie(&power, "cores = 6\nthreads = 4", "cores = 12\nthreads = 2");
    assert!(caught(&smt, &seen).contains(&"cores".to_string()), "{:?}", caught(&smt, &seen));
    let no_smt = lie(&power, "cores = 6\nthreads = 4", "cores = 24\nthreads = 1");
    assert!(caught(&no_smt, &seen).contains(&"SMT domains".to_string()), "{:?}", caught(&no_smt, &seen));
    let count = lie(&power, "cores = 6", "cores = 7");
    assert!(caught(&count, &seen).contains(&"CPUs online".to_string()), "{:?}", caught(&count, &seen));
    let model = lie(&power, "model = 143", "model = 173");
    assert_eq!(caught(&model, &seen), ["CPU model"]);
    let sharing = power.replace("size = \"4M\"\nshared_by = \"core\"", "size = \"4M\"\nshared_by = \"package\"");
    let wide = lie(&sharing, "llc = \"core\"", "llc = \"package\"");
    assert_eq!(caught(&wide, &seen), ["L3 sharing", "scheduler's LLC"]);

    // Nodes: the span of the last-level cache, distances, and the number of nodes.
    let spr = include_str!("../../../topologies/spr-2s-snc2.toml").replace("cores = 60", "cores = 4");
    let seen = verified("spr-2s-snc2@1/15");
    let distance = lie(&spr, "[10, 12, 21, 21]", "[10, 13, 21, 21]");
    assert_eq!(caught(&distance, &seen), ["node 0 distances"]);
    let rows = "    [10, 12, 21, 21],\n    [12, 10, 21, 21],\n    [21, 21, 10, 12],\n    [21, 21, 12, 10],\n";
    let one_per_package = spr.replace(rows, "    [10, 21],\n    [21, 10],\n");
    let nodes = lie(&one_per_package, "count = 4", "count = 2");
    let found = caught(&nodes, &seen);
    assert!(found.contains(&"nodes".to_string()) && found.contains(&"scheduler's LLC".to_string()), "{found:?}");
}

#[test]
fn capturing_a_verified_guest_gives_back_its_declaration() {
    for name in ["cwf-snc3@1/12", "gnr-2s-snc3@1/20", "power-like@1/5"] {
        let declared = topology::load(name).expect("built in");
        let text = topology::capture(name, &verified(name)).expect("a declaration");
        let captured = topology::parse(name, &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let sharing = |t: &Topology| t.caches.iter().map(|c| (c.level, c.kind, c.shared_by)).collect::<Vec<_>>();
        let nodes = |t: &Topology| t.nodes.iter().map(|node| node.cpus.clone()).collect::<Vec<_>>();
        assert_eq!(captured.cpu, declared.cpu, "{text}");
        assert_eq!(captured.shape, declared.shape, "{text}");
        assert_eq!(sharing(&captured), sharing(&declared), "{text}");
        assert_eq!(nodes(&captured), nodes(&declared), "{text}");
        assert_eq!(captured.distances, declared.distances, "{text}");
        assert_eq!(captured.llc, declared.llc, "{text}");
        // The scheduler's own domains were read, so nothing about the LLC is a guess.
        assert!(!text.contains("inferred"), "{text}");
    }
}

/// Verifies a machine with a prebuilt kernel and returns (rows that differ, complaints with their counts).
fn replay(topology: &str, kernel: &str) -> (Vec<String>, Vec<(String, u64)>) {
    let folder = tempfile::tempdir().expect("a folder");
    let ran = output(folder.path(), &["topology", "verify", topology, "-k", kernel, "--format=json"]);
    let (_, said) = code_and_words(&ran);
    let json: serde_json::Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{kernel}: {e}\n{said}"));
    let rows = json["rows"].as_array().expect("rows").iter().filter(|row| row["finding"] == "differs");
    let complaints = serde_json::from_value(json["complaints"].clone()).expect("complaints");
    (rows.map(|row| row["what"].as_str().expect("a name").to_string()).collect(), complaints)
}

/// The SNC-3 distance bug (kernel commit 4d6dd05d07d0), on Debian's own kernels: what each version makes of Granite Rapids'
/// asymmetric distances.
#[test]
fn a_real_kernel_bug_replays_on_the_kernels_that_have_it() {
    if std::env::var_os("TOPOLAB_REPLAY").is_none() {
        println!("skipped: TOPOLAB_REPLAY=1 fetches seven prebuilt kernels");
        return;
    }
    let gnr = "gnr-2s-snc3@1/20";
    let errs = vec![("ERROR: groups don't span domain->span".to_string(), 8)];
    for version in ["6.12", "6.17", "6.18"] {
        assert_eq!(replay(gnr, &format!("debian-image:{version}")), (vec![], errs.clone()), "{version}");
    }
    // 6.16 gives up on scheduling domains altogether.
    let (differs, complaints) = replay(gnr, "debian-image:6.16");
    assert_eq!(differs, ["scheduler's LLC", "SMT domains", "NUMA domains"]);
    assert!(complaints.len() == 1 && complaints[0].0.contains("build_sched_domains"), "{complaints:?}");
    for version in ["6.19", "7.0", "7.1", "7.2"] {
        assert_eq!(replay(gnr, &format!("debian-image:{version}")), (vec![], vec![]), "{version}");
    }

    // Controls: symmetric distances are clean on the kernel without domains, and the fix, which looks at the CPU model, does
    // not help another one.
    let folder = tempfile::tempdir().expect("a folder");
    let text = include_str!("../../../topologies/gnr-2s-snc3.toml");
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        format!("{}@1/20", path.display())
    };
    let symmetric = [
        "[10, 15, 17, 21, 26, 26]",
        "[15, 10, 15, 26, 23, 26]",
        "[17, 15, 10, 26, 26, 21]",
        "[21, 26, 26, 10, 15, 17]",
        "[26, 23, 26, 15, 10, 15]",
        "[26, 26, 21, 17, 15, 10]",
    ];
    let (head, rest) = text.split_once("distances = [").expect("distances");
    let tail = rest.split_once("\n]").expect("the end of the distances").1;
    let symmetric = write("symmetric.toml", format!("{head}distances = [\n{},\n]{tail}", symmetric.join(",\n")));
    assert_eq!(replay(&symmetric, "debian-image:6.16"), (vec![], vec![]));
    let other =
        write("other.toml", text.replace("GraniteRapids", "SapphireRapids").replace("model = 173", "model = 143"));
    assert_eq!(replay(&other, "debian-image:7.2"), (vec![], errs));
}
