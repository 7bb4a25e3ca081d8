//! Arm's levels and caches: the device tree that QEMU makes for its virt board, edited. Pure: a blob in, a blob out.
//!
//! QEMU 10.0 describes no caches on that board and knows clusters only as a number; the kernel takes both from the tree
//! (Documentation/devicetree/bindings/cpu/cpu-topology.txt, bindings/arm/cpus.yaml, bindings/cache.yaml).

use crate::fault::{Fault, Outcome};
use crate::topology::{CacheDecl, Level, Topology};
use device_tree::{DeviceTree, Node};
use topolab_wire::{CacheKind, CpuSet};
use vm_fdt::{FdtReserveEntry, FdtWriter};

/// Handles for nodes of ours, far above those that QEMU gives.
const FIRST_HANDLE: u32 = 0x10_0000;
/// Bytes of a cache line of every CPU model on the board.
const LINE: u32 = 64;

fn fault(what: impl std::fmt::Debug) -> Fault {
    Fault::lab(format!("the device tree of QEMU's virt board cannot be edited: {what:?}"))
}

/// Returns the tree with the topology's levels, caches and capacities.
pub fn edit(blob: &[u8], topology: &Topology) -> Outcome<Vec<u8>> {
    let mut tree = DeviceTree::load(blob).map_err(fault)?;
    let cpus = tree.root.children.iter_mut().find(|node| node.name == "cpus").ok_or_else(|| fault("no /cpus"))?;
    cpus.children.retain(|node| node.name != "cpu-map");
    let places = in_order(cpus)?;
    if places.len() != topology.shape.cpus() as usize {
        return Err(fault(format!("{} CPUs instead of {}", places.len(), topology.shape.cpus())));
    }
    let mut handles = Vec::new();
    for (cpu, place) in (0u32..).zip(places) {
        let node = &mut cpus.children[place];
        let handle = node.prop_u32("phandle").unwrap_or(FIRST_HANDLE + cpu);
        set(node, "phandle", &[handle]);
        handles.push(handle);
        describe(node, topology, cpu);
    }
    cpus.children.extend(caches(topology));
    cpus.children.push(cpu_map(topology, &handles));
    write(&tree)
}

/// The places of the CPU nodes among /cpus' children, by their `reg`: that is the order in which Linux numbers them.
fn in_order(cpus: &Node) -> Outcome<Vec<usize>> {
    let mut found = Vec::new();
    for (place, node) in cpus.children.iter().enumerate().filter(|(_, node)| node.name.starts_with("cpu@")) {
        let reg = node.prop_raw("reg").ok_or_else(|| fault(format!("{} has no reg", node.name)))?;
        found.push((reg.clone(), place));
    }
    // Big-endian cells of one width compare as numbers do.
    found.sort();
    Ok(found.into_iter().map(|(_, place)| place).collect())
}

fn set(node: &mut Node, name: &str, cells: &[u32]) {
    let bytes = cells.iter().flat_map(|cell| cell.to_be_bytes()).collect();
    node.props.retain(|(known, _)| known != name);
    node.props.push((name.to_string(), bytes));
}

fn new(name: String) -> Node {
    Node { name, props: Vec::new(), children: Vec::new() }
}

/// Caches that are nodes of their own, from the inside out.
fn outer(topology: &Topology) -> impl Iterator<Item = &CacheDecl> {
    topology.caches.iter().filter(|cache| cache.level > 1 && cache.kind == CacheKind::Unified)
}

/// The handle of the cache of a level that the unit with this CPU shares.
fn handle(topology: &Topology, cache: &CacheDecl, cpu: u32) -> u32 {
    let place = topology.units(cache.shared_by).iter().position(|unit| unit.contains(cpu)).unwrap_or(0);
    FIRST_HANDLE + cache.level * 0x1_0000 + place as u32
}

fn geometry(node: &mut Node, prefix: &str, kib: u64) {
    let bytes = u32::try_from(kib << 10).unwrap_or(u32::MAX);
    set(node, &format!("{prefix}cache-size"), &[bytes]);
    set(node, &format!("{prefix}cache-line-size"), &[LINE]);
    // The number of ways is nobody's concern here; 16 divides every size.
    set(node, &format!("{prefix}cache-sets"), &[(bytes / LINE / 16).max(1)]);
}

/// A CPU's own properties.
fn describe(node: &mut Node, topology: &Topology, cpu: u32) {
    for cache in topology.caches.iter().filter(|cache| cache.level == 1) {
        match cache.kind {
            CacheKind::Data => geometry(node, "d-", cache.size_kib),
            CacheKind::Instruction => geometry(node, "i-", cache.size_kib),
            CacheKind::Unified => geometry(node, "", cache.size_kib),
        }
    }
    if let Some(next) = outer(topology).next() {
        set(node, "next-level-cache", &[handle(topology, next, cpu)]);
    }
    if let Some(capacity) = topology.capacities.get(cpu as usize) {
        set(node, "capacity-dmips-mhz", &[*capacity]);
    }
}

fn caches(topology: &Topology) -> Vec<Node> {
    let levels: Vec<&CacheDecl> = outer(topology).collect();
    let mut nodes = Vec::new();
    for (depth, cache) in levels.iter().enumerate() {
        for (n, unit) in topology.units(cache.shared_by).iter().enumerate() {
            let mut node = new(format!("l{}-cache{n}", cache.level));
            node.props.push(("compatible".into(), b"cache\0".to_vec()));
            set(&mut node, "cache-level", &[cache.level]);
            set(&mut node, "cache-unified", &[]);
            geometry(&mut node, "", cache.size_kib);
            let cpu = unit.first().unwrap_or(0);
            if let Some(next) = levels.get(depth + 1) {
                set(&mut node, "next-level-cache", &[handle(topology, next, cpu)]);
            }
            set(&mut node, "phandle", &[handle(topology, cache, cpu)]);
            nodes.push(node);
        }
    }
    nodes
}

/// socket → cluster → core → thread. The binding wants a cluster even where the machine has none.
fn cpu_map(topology: &Topology, handles: &[u32]) -> Node {
    let leaf = |name: String, cpu: u32| {
        let mut node = new(name);
        set(&mut node, "cpu", &[handles.get(cpu as usize).copied().unwrap_or_default()]);
        node
    };
    let inside = |unit: &CpuSet, level: Level| -> Vec<CpuSet> {
        topology.units(level).into_iter().filter(|set| set.is_subset(unit)).collect()
    };
    let core = |(n, unit): (usize, CpuSet)| match unit.len() {
        1 => leaf(format!("core{n}"), unit.first().unwrap_or(0)),
        _ => Node {
            children: unit.iter().enumerate().map(|(t, cpu)| leaf(format!("thread{t}"), cpu)).collect(),
            ..new(format!("core{n}"))
        },
    };
    let cluster = |(n, unit): (usize, CpuSet)| Node {
        children: inside(&unit, Level::Core).into_iter().enumerate().map(core).collect(),
        ..new(format!("cluster{n}"))
    };
    let socket = |(n, unit): (usize, CpuSet)| Node {
        children: inside(&unit, Level::Module).into_iter().enumerate().map(cluster).collect(),
        ..new(format!("socket{n}"))
    };
    Node {
        children: topology.units(Level::Package).into_iter().enumerate().map(socket).collect(),
        ..new("cpu-map".into())
    }
}

fn write(tree: &DeviceTree) -> Outcome<Vec<u8>> {
    // The blob's list ends with an empty entry, which the writer adds itself.
    let reserved =
        tree.reserved.iter().filter(|(_, size)| *size > 0).map(|(address, size)| FdtReserveEntry::new(*address, *size));
    let reserved = reserved.collect::<Result<Vec<_>, _>>().map_err(fault)?;
    let mut writer = FdtWriter::new_with_mem_reserv(&reserved).map_err(fault)?;
    writer.set_boot_cpuid_phys(tree.boot_cpuid_phys);
    write_node(&mut writer, &tree.root)?;
    writer.finish().map_err(fault)
}

fn write_node(writer: &mut FdtWriter, node: &Node) -> Outcome<()> {
    let begun = writer.begin_node(&node.name).map_err(fault)?;
    for (name, value) in &node.props {
        writer.property(name, value).map_err(fault)?;
    }
    for child in &node.children {
        write_node(writer, child)?;
    }
    writer.end_node(begun).map_err(fault)
}
