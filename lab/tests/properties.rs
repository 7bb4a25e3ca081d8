//! Properties of any machine that the language can say.

// Helpers of tests fail by panicking; clippy exempts only the test functions themselves.
#![allow(clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use topolab::topology::{Level, Shape, Topology, parse, scale};
use topolab_wire::CpuSet;

/// A declaration of this shape with nodes, each level of cache at its own unit.
fn declaration(shape: Shape, nodes: u32, far: u32) -> String {
    let row = |from: u32| {
        (0..nodes)
            .map(|to| if from == to { "10".into() } else { (far + from).to_string() })
            .collect::<Vec<_>>()
            .join(", ")
    };
    let rows: Vec<String> = (0..nodes).map(|from| format!("[{}]", row(from))).collect();
    let Shape { packages, dies, modules, cores, threads, thread_groups } = shape;
    format!(
        "schema = 1\ntitle = \"any\"\n[cpu.x86_64]\nqemu = \"SapphireRapids\"\n[shape]\npackages = {packages}\ndies = {dies}\nmodules = {modules}\ncores = {cores}\nthreads = {threads}\nthread_groups = {thread_groups}\n\
         [[cache]]\nlevel = 1\nkind = \"data\"\nsize = \"32K\"\nshared_by = \"core\"\n[[cache]]\nlevel = 2\nkind = \"unified\"\nsize = \"2M\"\nshared_by = \"module\"\n[[cache]]\nlevel = 3\nkind = \"unified\"\nsize = \"16M\"\nshared_by = \"package\"\n\
         [nodes]\ncount = {nodes}\nguest_memory = \"2G\"\ndistances = [{}]\n[scheduler]\nllc = \"node\"\n",
        rows.join(", ")
    )
}

fn shapes() -> impl Strategy<Value = (Shape, u32, u32)> {
    let counts = (1u32..=4, 1u32..=3, 1u32..=8, 1u32..=8, 1u32..=4, 1u32..=2);
    let shape = counts.prop_map(|(packages, dies, modules, cores, threads, thread_groups)| Shape {
        packages,
        dies,
        modules,
        cores,
        threads,
        thread_groups,
    });
    (shape, 1u32..=8, 11u32..=200)
}

/// The units of a level are disjoint and cover the machine.
fn partitions(topology: &Topology, level: Level) -> bool {
    let mut seen = CpuSet::default();
    let units = topology.units(level);
    let count: usize = units.iter().map(CpuSet::len).sum();
    units.iter().flat_map(CpuSet::iter).for_each(|cpu| seen.insert(cpu));
    seen == CpuSet::range(0, topology.shape.cpus()) && count == seen.len()
}

proptest! {
    #[test]
    fn an_accepted_machine_is_partitioned_by_every_level((shape, nodes, far) in shapes()) {
        if let Ok(topology) = parse("any", &declaration(shape, nodes, far)) {
            for level in [Level::Thread, Level::Group, Level::Core, Level::Module, Level::Node, Level::Die, Level::Package] {
                prop_assert!(partitions(&topology, level), "{level}");
            }
            // No core is cut by a node, nor a module where that is a level.
            let whole = if shape.modules == 1 { Level::Core } else { Level::Module };
            for unit in topology.units(whole) {
                prop_assert!(topology.nodes.iter().any(|node| unit.is_subset(&node.cpus)));
            }
        }
    }

    #[test]
    fn scaling_divides_the_cpus_and_keeps_nodes_and_caches((shape, nodes, far) in shapes(), by in 2u32..=16) {
        if let Ok(full) = parse("any", &declaration(shape, nodes, far))
            && let Ok(small) = scale(&full, by)
        {
            prop_assert_eq!(small.shape.cpus() * by, full.shape.cpus());
            prop_assert_eq!(small.nodes.len(), full.nodes.len());
            prop_assert_eq!(small.llcs().len(), full.llcs().len());
            prop_assert_eq!(&small.distances, &full.distances);
            prop_assert!(partitions(&small, Level::Node));
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z0-9=\\[\\]\"\n .-]{0,200}") {
        let _ = parse("any", &text);
    }

    #[test]
    fn a_changed_number_is_accepted_or_refused_with_a_place(line in 0usize..60, number in "-?[0-9]{1,12}") {
        let text = include_str!("../../topologies/cwf-snc3.toml");
        let change = |(n, old): (usize, &str)| match (n == line, old.split_once(" = ")) {
            (true, Some((key, _))) => format!("{key} = {number}"),
            _ => old.to_string(),
        };
        let changed: Vec<String> = text.lines().enumerate().map(change).collect();
        if let Err(error) = parse("any", &changed.join("\n")) {
            prop_assert!(miette::Diagnostic::labels(&error).is_some_and(|mut labels| labels.next().is_some()), "{}", error);
        }
    }

    #[test]
    fn cpu_lists_survive_a_round_trip(cpus in proptest::collection::btree_set(0u32..600, 0..80)) {
        let set: CpuSet = cpus.into_iter().collect();
        prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
    }
}
