//! Reads what the kernel believes the machine to be, in one pass over sysfs, procfs and debugfs.
//!
//! Everything is read below a root directory, `/` in a guest, so that a saved tree reads the same way. Absent files are
//! an answer (an architecture without clusters, a kernel without debugfs), never a guess: what is absent stays empty.

mod cache;
mod domains;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use topolab_wire::{Cpu, CpuModel, CpuSet, Firmware, Node, Observation};

/// A file's text without its last newline; `None` when it is absent or unreadable.
fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|t| t.trim_end().to_string())
}

fn cpu_list(path: &Path) -> Option<CpuSet> {
    text(path)?.parse().ok()
}

fn bad(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
}

/// Reads the machine below `root`.
pub fn observe(root: &Path) -> io::Result<Observation> {
    let system = root.join("sys/devices/system");
    let online_path = system.join("cpu/online");
    let online = cpu_list(&online_path).ok_or_else(|| bad(&online_path, "no list of online CPUs"))?;
    let mut domains = domains::read(root);
    let cpus = online.iter().map(|cpu| one_cpu(&system, cpu, domains.remove(&cpu).unwrap_or_default())).collect();
    Ok(Observation {
        version: 1,
        arch: text(&root.join("proc/sys/kernel/arch")).unwrap_or_else(|| std::env::consts::ARCH.to_string()),
        release: text(&root.join("proc/sys/kernel/osrelease")).unwrap_or_default(),
        cmdline: text(&root.join("proc/cmdline")).unwrap_or_default(),
        model: cpu_model(&text(&root.join("proc/cpuinfo")).unwrap_or_default()),
        possible: cpu_list(&system.join("cpu/possible")).unwrap_or_default(),
        isolated: cpu_list(&system.join("cpu/isolated")).unwrap_or_default(),
        partitioned: cpu_list(&root.join("sys/fs/cgroup/cpuset.cpus.isolated")).unwrap_or_default(),
        irq_affinity: text(&root.join("proc/irq/default_smp_affinity"))
            .and_then(|mask| CpuSet::from_mask(&mask).ok())
            .unwrap_or_default(),
        firmware: firmware(&root.join("sys/firmware")),
        online,
        cpus,
        nodes: nodes(&system)?,
    })
}

fn one_cpu(system: &Path, cpu: u32, domains: Vec<topolab_wire::Domain>) -> Cpu {
    let folder = system.join(format!("cpu/cpu{cpu}"));
    let topology = |name: &str| cpu_list(&folder.join("topology").join(name)).unwrap_or_default();
    Cpu {
        cpu,
        package: topology("package_cpus_list"),
        die: topology("die_cpus_list"),
        cluster: topology("cluster_cpus_list"),
        core: topology("core_cpus_list"),
        capacity: text(&folder.join("cpu_capacity")).and_then(|t| t.parse().ok()),
        caches: cache::read(&folder.join("cache")),
        llc: domains::last_level_cache(cpu, &domains),
        domains,
    }
}

/// Folders named `PREFIX<number>` below `parent`, by number.
fn numbered(parent: &Path, prefix: &str) -> BTreeMap<u32, PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let number = |entry: &std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok();
    entries.filter_map(|entry| number(&entry).map(|n| (n, entry.path()))).collect()
}

fn nodes(system: &Path) -> io::Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for (node, folder) in numbered(&system.join("node"), "node") {
        let distance_path = folder.join("distance");
        let distances = text(&distance_path)
            .unwrap_or_default()
            .split_whitespace()
            .map(|d| d.parse().map_err(|_| bad(&distance_path, "a distance is not a number")))
            .collect::<io::Result<Vec<u32>>>()?;
        let fact = |name: &str| text(&folder.join("access0/initiators").join(name)).and_then(|t| t.parse::<u64>().ok());
        nodes.push(Node {
            node,
            // 0 means "not said".
            latency_ns: fact("read_latency").filter(|ns| *ns > 0).and_then(|ns| u32::try_from(ns).ok()),
            bandwidth_mib: fact("read_bandwidth").filter(|mib| *mib > 0),
            cpus: cpu_list(&folder.join("cpulist")).unwrap_or_default(),
            memory_kib: total_memory(&text(&folder.join("meminfo")).unwrap_or_default()),
            distances,
        });
    }
    Ok(nodes)
}

fn firmware(root: &Path) -> Firmware {
    let tables = std::fs::read_dir(root.join("acpi/tables")).into_iter().flatten().flatten();
    // `data` and `dynamic` are folders, no tables.
    let files = tables.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let mut acpi: Vec<String> = files.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    acpi.sort();
    let tree = root.join("devicetree/base");
    let property = |name: &str| text(&tree.join(name)).map(|t| t.trim_end_matches('\0').replace('\0', " "));
    Firmware { acpi, device_tree: property("model").or_else(|| property("compatible")) }
}

/// `Node 0 MemTotal:  245316 kB` → 245316.
fn total_memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find(|l| l.contains("MemTotal:")).unwrap_or_default();
    line.split_whitespace().rev().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The first CPU's entry in /proc/cpuinfo; its keys differ by architecture.
fn cpu_model(cpuinfo: &str) -> CpuModel {
    let field = |names: &[&str]| {
        let found =
            cpuinfo.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| names.contains(&key.trim()));
        found.map(|(_, value)| value.trim().to_string()).unwrap_or_default()
    };
    CpuModel {
        vendor: field(&["vendor_id", "CPU implementer"]),
        family: field(&["cpu family", "CPU architecture", "platform"]),
        model: field(&["model", "CPU part", "revision"]),
        name: field(&["model name", "cpu"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_memory_is_the_number_before_the_unit() {
        assert_eq!(total_memory("Node 0 MemTotal:         245316 kB\nNode 0 MemFree: 1 kB"), 245_316);
        assert_eq!(total_memory(""), 0);
    }

    #[test]
    fn cpuinfo_of_each_architecture_gives_family_and_model() {
        let x86 = cpu_model(
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 221\nmodel name\t: CWF\n",
        );
        assert_eq!((x86.vendor.as_str(), x86.family.as_str(), x86.model.as_str()), ("GenuineIntel", "6", "221"));
        let arm = cpu_model("CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n");
        assert_eq!((arm.vendor.as_str(), arm.model.as_str()), ("0x41", "0xd0c"));
    }
}
