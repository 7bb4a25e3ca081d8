//! What a running kernel believes the machine to be.

use crate::CpuSet;
use serde::{Deserialize, Serialize};

/// The kernel's view of its machine, read in one pass by the agent. Versioned: records outlive the program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Version of this record; 1 now.
    pub version: u32,
    /// `uname -m`.
    pub arch: String,
    /// `uname -r`.
    pub release: String,
    /// `/proc/cmdline`.
    pub cmdline: String,
    /// Family, model and name from /proc/cpuinfo, as far as the architecture says them.
    pub model: CpuModel,
    /// /sys/devices/system/cpu/possible.
    pub possible: CpuSet,
    /// /sys/devices/system/cpu/online.
    pub online: CpuSet,
    /// /sys/devices/system/cpu/isolated.
    pub isolated: CpuSet,
    /// CPUs of isolated cpuset partitions (cgroup v2, `cpuset.cpus.isolated`).
    #[serde(default)]
    pub partitioned: CpuSet,
    /// Where interrupts go unless told otherwise (/proc/irq/default_smp_affinity).
    #[serde(default)]
    pub irq_affinity: CpuSet,
    /// What the firmware told the kernel by.
    #[serde(default)]
    pub firmware: Firmware,
    /// One per online CPU, by number.
    pub cpus: Vec<Cpu>,
    /// NUMA nodes by the kernel's own number, which need not be the declared one.
    pub nodes: Vec<Node>,
}

/// Where the kernel has its view from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firmware {
    /// Names of the ACPI tables, sorted (/sys/firmware/acpi/tables).
    pub acpi: Vec<String>,
    /// The root's `model` of the device tree, or its `compatible` where it has none (/sys/firmware/devicetree/base).
    pub device_tree: Option<String>,
}

/// What /proc/cpuinfo says of the CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuModel {
    /// Vendor or implementer.
    pub vendor: String,
    /// Family (x86), implementer (arm64) or platform (ppc64).
    pub family: String,
    /// Model (x86), part (arm64) or revision (ppc64).
    pub model: String,
    /// Marketing name, empty where the kernel gives none.
    pub name: String,
}

/// One online CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Logical number.
    pub cpu: u32,
    /// CPUs in the same package.
    pub package: CpuSet,
    /// CPUs on the same die.
    pub die: CpuSet,
    /// CPUs in the same cluster or module.
    pub cluster: CpuSet,
    /// CPUs of the same core.
    pub core: CpuSet,
    /// Relative capacity, 1024 for the biggest (`cpu_capacity`; Documentation/scheduler/sched-capacity.rst).
    pub capacity: Option<u32>,
    /// Every cache above this CPU, by index.
    pub caches: Vec<Cache>,
    /// The scheduler's domains from the lowest up.
    pub domains: Vec<Domain>,
    /// The CPUs that the scheduler takes to share this CPU's last-level cache: the span of the highest domain with
    /// SD_SHARE_LLC, or the CPU alone where there is none (kernel/sched/topology.c, `update_top_cache_domain`).
    pub llc: CpuSet,
}

/// What a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Instructions only.
    Instruction,
    /// Data only.
    Data,
    /// Both.
    Unified,
}

/// One cache as one CPU sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Level, 1 nearest the core.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Size in KiB, when the kernel knows it.
    pub size_kib: Option<u64>,
    /// The CPUs that share it.
    pub shared: CpuSet,
}

/// One scheduling domain as one CPU sees it (Documentation/scheduler/sched-domains.rst).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Name: SMT, CLS, MC, PKG, NODE, NUMA.
    pub name: String,
    /// CPUs it spans.
    pub span: CpuSet,
    /// Flags without `SD_`, as debugfs prints them; empty when the kernel's debugfs tree is absent.
    pub flags: Vec<String>,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The kernel's number.
    pub node: u32,
    /// Its CPUs; empty for a memory-only node.
    pub cpus: CpuSet,
    /// Its memory in KiB; 0 for a node without memory.
    pub memory_kib: u64,
    /// Read latency from the nearest CPUs in nanoseconds, where HMAT gives it (`access0/initiators/read_latency`;
    /// Documentation/admin-guide/mm/numaperf.rst).
    #[serde(default)]
    pub latency_ns: Option<u32>,
    /// Read bandwidth from there in MiB a second.
    #[serde(default)]
    pub bandwidth_mib: Option<u64>,
    /// Distances to every node in the order of `Observation::nodes`, itself included (ACPI SLIT units, 10 = local).
    pub distances: Vec<u32>,
}
