//! Every built-in machine boots and is what it says, small in CI and full-size by `TOPOLAB_FULL_SIZE=1`; and a declaration
//! that lies about a booted machine is caught at the level it lies about.

use crate::common::{code_and_words, output};
use std::collections::BTreeMap;
use std::sync::Mutex;
use topolab::topology::{self, Arch, Finding, Row, Topology, compare};
use topolab_wire::Observation;

/// A scale of each machine that boots within seconds, on every architecture that it names.
const SMALL: [(&str, Arch); 20] = [
    ("smoke", Arch::X86_64),
    ("smoke", Arch::Aarch64),
    ("smoke", Arch::Ppc64le),
    ("smp", Arch::X86_64),
    ("cwf-snc3@1/12", Arch::X86_64),
    ("cwf-2s-snc3@1/24", Arch::X86_64),
    ("gnr-2s-snc3@1/20", Arch::X86_64),
    ("spr-2s-snc2@1/15", Arch::X86_64),
    ("epyc-nps4@1/8", Arch::X86_64),
    ("power-like@1/5", Arch::X86_64),
    ("cxl-tiers", Arch::X86_64),
    ("isolated", Arch::X86_64),
    ("irregular", Arch::X86_64),
    ("laptop", Arch::X86_64),
    ("altra@1/10", Arch::Aarch64),
    ("altra-2s@1/10", Arch::Aarch64),
    ("kunpeng@1/4", Arch::Aarch64),
    ("big-little", Arch::Aarch64),
    ("power10@1/5", Arch::Ppc64le),
    ("power10-2s@1/15", Arch::Ppc64le),
];

/// Boots a machine and returns what `verify` says of it.
fn verify(topology: &str, arch: Arch, more: &[&str]) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a folder");
    let arch = format!("--arch={arch}");
    let words = [&["topology", "verify", topology, "--format=json", &arch], more].concat();
    let ran = output(folder.path(), &words);
    let (_, said) = code_and_words(&ran);
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{topology}: {e}\n{said}"))
}

/// What `verify` says of a machine with the default kernel: each is booted once, whichever tests look at it.
fn booted(topology: &str, arch: Arch) -> serde_json::Value {
    type Known = BTreeMap<(String, Arch), serde_json::Value>;
    static KNOWN: Mutex<Known> = Mutex::new(Known::new());
    // A test that failed while it held the map has left it whole.
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    known.entry((topology.to_string(), arch)).or_insert_with(|| verify(topology, arch, &[])).clone()
}

/// Boots a machine that must be what it says, and returns what the guest saw.
fn verified(topology: &str, arch: Arch) -> Observation {
    let json = booted(topology, arch);
    let fine = json["matches"] == true && json["complaints"] == serde_json::json!([]);
    assert!(fine, "{topology} on {arch}: {} {}", view(&json), json["complaints"]);
    serde_json::from_value(json["observation"].clone()).expect("an observation")
}

/// The rows as a person reads them.
fn view(json: &serde_json::Value) -> String {
    let rows: Vec<Row> = serde_json::from_value(json["rows"].clone()).expect("rows");
    let line = |row: &Row| match &row.finding {
        Finding::Same => format!("= {}: {}", row.what, row.declared),
        Finding::Differs => format!("≠ {}: {} / {}", row.what, row.declared, row.observed),
        Finding::NotExpressible(why) => format!("~ {}: {} / {} ({why})", row.what, row.declared, row.observed),
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_machine_has_a_small_scale_that_is_tested() {
    for name in topology::names() {
        for arch in topology::load(&name).expect("built in").cpu.keys() {
            let tested = SMALL.iter().any(|(t, on)| t.split('@').next() == Some(&name) && on == arch);
            assert!(tested, "{name} on {arch} is not in SMALL");
        }
    }
}

/// What each guest shows is on record: a kernel or a QEMU that shows something else is a change to look at.
#[test]
fn every_machine_is_what_it_says_at_small_scale() {
    for (name, arch) in SMALL {
        let json = booted(name, arch);
        assert_eq!(json["complaints"], serde_json::json!([]), "{name} on {arch}");
        let golden = format!("{}_{arch}", name.replace(['-', '@', '/'], "_"));
        insta::assert_snapshot!(golden, view(&json));
        assert_eq!(json["matches"], true, "{name} on {arch}");
    }
}

#[test]
fn the_largest_machines_are_what_they_say_at_full_size() {
    if std::env::var_os("TOPOLAB_FULL_SIZE").is_none() {
        println!("skipped: TOPOLAB_FULL_SIZE=1 boots 80 to 288 CPUs, which takes minutes");
        return;
    }
    for (name, arch) in [
        ("power-like", Arch::X86_64),
        ("spr-2s-snc2", Arch::X86_64),
        ("epyc-nps4", Arch::X86_64),
        ("cwf-snc3", Arch::X86_64),
        ("altra", Arch::Aarch64),
        ("kunpeng", Arch::Aarch64),
        ("power10", Arch::Ppc64le),
    ] {
        let before = children_cpu();
        verified(name, arch);
        println!("{name} on {arch}: {:.0} CPU seconds", children_cpu() - before);
    }
}

/// CPU seconds of the children that have ended, and of theirs.
fn children_cpu() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN).expect("getrusage");
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
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
    let seen = verified("power-like@1/5", Arch::X86_64);
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
    let seen = verified("spr-2s-snc2@1/15", Arch::X86_64);
    let distance = lie(&spr, "[10, 12, 21, 21]", "[10, 13, 21, 21]");
    assert_eq!(caught(&distance, &seen), ["node 0 distances"]);
    let rows = "    [10, 12, 21, 21],\n    [12, 10, 21, 21],\n    [21, 21, 10, 12],\n    [21, 21, 12, 10],\n";
    let one_per_package = spr.replace(rows, "    [10, 21],\n    [21, 10],\n");
    let nodes = lie(&one_per_package, "count = 4", "count = 2");
    let found = caught(&nodes, &seen);
    assert!(found.contains(&"nodes".to_string()) && found.contains(&"scheduler's LLC".to_string()), "{found:?}");
}

/// The same where levels and caches come from a device tree and from a firmware script.
#[test]
fn a_lie_of_each_kind_is_caught_on_other_architectures() {
    let little = include_str!("../../../topologies/big-little.toml");
    let seen = verified("big-little", Arch::Aarch64);
    let caught = |topology: &Topology, arch: Arch, seen: &Observation| -> Vec<String> {
        compare(topology, arch, seen).differing().map(|row| row.what.clone()).collect()
    };
    for (from, to, expected) in [
        ("[485, 1024]", "[446, 1024]", "capacities"),
        ("\"256K\"", "\"512K\"", "L2 size"),
        ("size = \"256K\"\nshared_by = \"core\"", "size = \"256K\"\nshared_by = \"module\"", "L2 sharing"),
        ("0xd0b", "0xd0c", "CPU model"),
    ] {
        assert_eq!(caught(&lie(little, from, to), Arch::Aarch64, &seen), [expected], "{to}");
    }

    let power = include_str!("../../../topologies/power10.toml").replace("cores = 15", "cores = 3");
    let seen = verified("power10@1/5", Arch::Ppc64le);
    assert_eq!(caught(&lie(&power, "cores = 3", "cores = 3"), Arch::Ppc64le, &seen), [""; 0]);
    let big = power.replace("\nthread_groups = 2", "").replace("\"group\"", "\"core\"");
    let big = lie(&big, "POWER10", "POWER10");
    assert_eq!(
        caught(&big, Arch::Ppc64le, &seen),
        ["L1i sharing", "L1d sharing", "L2 sharing", "L3 sharing", "scheduler's LLC"]
    );
    let older = lie(&power, "name = \"POWER10\"", "name = \"POWER9\"");
    assert_eq!(caught(&older, Arch::Ppc64le, &seen), ["CPU name"]);
}

/// Isolation, interrupts and memory paths, on guests that have them.
#[test]
fn a_lie_about_placement_or_memory_is_caught() {
    let caught = |topology: &Topology, seen: &Observation| -> Vec<String> {
        compare(topology, Arch::X86_64, seen).differing().map(|row| row.what.clone()).collect()
    };
    let isolated = include_str!("../../../topologies/isolated.toml");
    let seen = verified("isolated", Arch::X86_64);
    let boot = lie(isolated, "boot = \"3\"", "boot = \"2\"");
    assert_eq!(
        caught(&boot, &seen),
        ["scheduler's LLC", "NUMA domains", "CPUs without domains", "isolated at boot", "isolated by cpuset"]
    );
    let later = lie(isolated, "cpuset = \"6-7\"", "cpuset = \"7\"");
    assert!(caught(&later, &seen).contains(&"isolated by cpuset".to_string()), "{:?}", caught(&later, &seen));
    let irq = lie(isolated, "[irq]\nnode = 0", "[irq]\nnode = 1");
    assert_eq!(caught(&irq, &seen), ["interrupts"]);

    let irregular = include_str!("../../../topologies/irregular.toml");
    let seen = verified("irregular", Arch::X86_64);
    let found = caught(&lie(irregular, "offline = \"5\"", "offline = \"6\""), &seen);
    assert_eq!(found.first().map(String::as_str), Some("CPUs online"), "{found:?}");
    let moved = lie(&irregular.replace("\"0-2\"", "\"0-3\""), "\"3-7\"", "\"4-7\"");
    assert!(caught(&moved, &seen).contains(&"nodes".to_string()), "{:?}", caught(&moved, &seen));
    // Captured, it is the machine of seven that runs.
    assert!(
        topology::capture("irregular", &seen)
            .is_ok_and(|text| topology::parse("captured", &text).is_ok_and(|t| t.shape.cpus() == 7))
    );

    let tiers = include_str!("../../../topologies/cxl-tiers.toml");
    let seen = verified("cxl-tiers", Arch::X86_64);
    let slow = lie(tiers, "latency_ns = 250", "latency_ns = 300");
    assert_eq!(caught(&slow, &seen), ["node 2 path"]);
    let far = lie(tiers, "[24, 31, 10]", "[25, 31, 10]");
    assert_eq!(caught(&far, &seen), ["node 2 distances"]);
    let bare = lie(
        tiers,
        "# The expander.\n[[nodes.node]]\nguest_memory = \"256M\"",
        "# The expander.\n[[nodes.node]]\nguest_memory = \"512M\"",
    );
    assert_eq!(caught(&bare, &seen), ["node 2 memory"]);
}

#[test]
fn capturing_a_verified_guest_gives_back_its_declaration() {
    for (name, arch) in [
        ("cwf-snc3@1/12", Arch::X86_64),
        ("gnr-2s-snc3@1/20", Arch::X86_64),
        ("cxl-tiers", Arch::X86_64),
        ("isolated", Arch::X86_64),
        ("altra@1/10", Arch::Aarch64),
        ("big-little", Arch::Aarch64),
        ("power10@1/5", Arch::Ppc64le),
    ] {
        let declared = topology::load(name).expect("built in");
        let text = topology::capture(name, &verified(name, arch)).expect("a declaration");
        let captured = topology::parse(name, &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let sharing = |t: &Topology| t.caches.iter().map(|c| (c.level, c.kind, c.shared_by)).collect::<Vec<_>>();
        let nodes = |t: &Topology| t.nodes.iter().map(|node| node.cpus.clone()).collect::<Vec<_>>();
        assert_eq!(captured.cpu, declared.cpu, "{text}");
        assert_eq!(captured.shape, declared.shape, "{text}");
        assert_eq!(sharing(&captured), sharing(&declared), "{text}");
        assert_eq!(nodes(&captured), nodes(&declared), "{text}");
        assert_eq!(captured.distances, declared.distances, "{text}");
        assert_eq!(captured.llc, declared.llc, "{text}");
        assert_eq!(captured.capacities, declared.capacities, "{text}");
        assert_eq!(captured.apart(), declared.apart(), "{text}");
        // The scheduler's own domains were read, so nothing about the LLC is a guess.
        assert!(!text.contains("inferred"), "{text}");
    }
}

/// Verifies a machine with a prebuilt kernel and returns (rows that differ, complaints with their counts).
fn replay(topology: &str, kernel: &str) -> (Vec<String>, Vec<(String, u64)>) {
    let json = verify(topology, Arch::X86_64, &["-k", kernel]);
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
