//! A resolved topology: every CPU has its place, every node its CPUs.

use super::costs::Costs;
use std::collections::BTreeMap;
use std::fmt;
use topolab_wire::{CacheKind, CpuSet};

/// A processor architecture that the lab can boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Arch {
    /// 64-bit x86.
    #[serde(rename = "x86_64")]
    X86_64,
    /// 64-bit Arm.
    #[serde(rename = "aarch64")]
    Aarch64,
    /// 64-bit POWER, little endian.
    #[serde(rename = "ppc64le")]
    Ppc64le,
}

impl Arch {
    /// Every one, the host's own first.
    pub const ALL: [Self; 3] = [Self::X86_64, Self::Aarch64, Self::Ppc64le];

    /// An architecture by the kernel's name of it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.to_string() == name)
    }

    /// Debian's name of it.
    pub fn debian_name(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
            Self::Ppc64le => "ppc64el",
        }
    }

    /// Its GNU triplet, as Debian's multiarch folders and cross compilers are named.
    pub fn triplet(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-linux-gnu",
            Self::Aarch64 => "aarch64-linux-gnu",
            Self::Ppc64le => "powerpc64le-linux-gnu",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Ppc64le => "ppc64le",
        })
    }
}

/// A level at which CPUs belong together, from the narrowest out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// One hardware thread.
    Thread,
    /// A thread group: the small core that a big POWER core is made of (arch/powerpc/kernel/smp.c, `ibm,thread-groups`).
    Group,
    /// A core with its threads.
    Core,
    /// A module or cluster of cores.
    Module,
    /// A NUMA node. Between module and die for order only: nodes may also span dies.
    Node,
    /// A die.
    Die,
    /// A package (socket).
    Package,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Thread => "thread",
            Self::Group => "group",
            Self::Core => "core",
            Self::Module => "module",
            Self::Node => "node",
            Self::Die => "die",
            Self::Package => "package",
        })
    }
}

/// How many of each level, each count within one of the level above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Shape {
    /// Packages in the machine.
    pub packages: u32,
    /// Dies per package.
    pub dies: u32,
    /// Modules per die.
    pub modules: u32,
    /// Cores per module.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
    /// Thread groups per core: thread `t` belongs to group `t % thread_groups`. 1 where a core is one.
    pub thread_groups: u32,
}

impl Shape {
    /// CPUs in the machine.
    pub fn cpus(&self) -> u32 {
        self.packages * self.dies * self.modules * self.cores * self.threads
    }

    /// The levels that no node may cut. One module in a die is no level of its own: nothing tells where it would be cut.
    pub(super) fn whole_levels(&self) -> &'static [Level] {
        match self.modules {
            1 => &[Level::Core],
            _ => &[Level::Core, Level::Module],
        }
    }

    /// The level of which these CPUs hold only a part of a unit, where they do.
    pub(super) fn cut_by(&self, cpus: &CpuSet) -> Option<Level> {
        let cut = |level: &&Level| {
            let size = self.cpus_per(**level);
            let inside = |first: u32| CpuSet::range(first, first + size).intersection(cpus).len() as u32;
            (0..self.cpus()).step_by(size as usize).map(inside).any(|found| found != 0 && found != size)
        };
        self.whole_levels().iter().find(cut).copied()
    }

    /// CPUs in one unit of a level. A node's size is not a matter of shape; it counts as the whole machine here.
    pub fn cpus_per(&self, level: Level) -> u32 {
        match level {
            Level::Thread => 1,
            Level::Group => self.threads / self.thread_groups,
            Level::Core => self.threads,
            Level::Module => self.threads * self.cores,
            Level::Die => self.threads * self.cores * self.modules,
            Level::Package => self.threads * self.cores * self.modules * self.dies,
            Level::Node => self.cpus(),
        }
    }
}

/// The CPU of one architecture.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CpuDecl {
    /// QEMU's name of the model.
    pub qemu: String,
    /// Family that the guest must see, where declared.
    pub family: Option<u32>,
    /// Model (x86), part (aarch64) number that the guest must see, where declared.
    pub model: Option<u32>,
    /// What the name that the guest sees must begin with, where declared.
    pub name: Option<String>,
}

/// One cache.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CacheDecl {
    /// Level, 1 nearest the core.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Size in KiB.
    pub size_kib: u64,
    /// The unit whose CPUs share it.
    pub shared_by: Level,
}

/// A cache size as people write it: in MiB where it is whole ones.
pub(super) fn size_text(kib: u64) -> String {
    match kib {
        kib if kib >= 1 << 10 && kib.is_multiple_of(1 << 10) => format!("{}M", kib >> 10),
        kib => format!("{kib}K"),
    }
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeDecl {
    /// Its CPUs; empty for a node of memory only.
    pub cpus: CpuSet,
    /// Memory of the guest's node in MiB; 0 for a node of CPUs only.
    pub memory_mib: u64,
}

/// How a node's memory is reached from a node's CPUs (ACPI 6.5, 5.2.28, HMAT).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MemoryPath {
    /// The node whose CPUs ask.
    pub from: u32,
    /// The node whose memory answers.
    pub to: u32,
    /// Nanoseconds.
    pub latency_ns: u32,
    /// MiB a second.
    pub bandwidth_mib: u64,
}

/// What keeps work and interrupts off CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Placement {
    /// Isolated from the boot on (`isolcpus=domain`).
    pub isolated: CpuSet,
    /// Isolated later, as a cpuset partition (Documentation/admin-guide/cgroup-v2.rst, `cpuset.cpus.partition`).
    pub partition: CpuSet,
    /// Switched off before anything runs, as a chip with fused-off cores is.
    pub offline: CpuSet,
    /// The node whose CPUs take the interrupts; any CPU where absent.
    pub irq_node: Option<u32>,
}

/// A checked, resolved machine.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Topology {
    /// Its name, with the scale when scaled: `cwf-snc3@1/12`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// CPU by architecture.
    pub cpu: BTreeMap<Arch, CpuDecl>,
    /// Counts.
    pub shape: Shape,
    /// Caches from level 1 out.
    pub caches: Vec<CacheDecl>,
    /// Nodes by number.
    pub nodes: Vec<NodeDecl>,
    /// Distances in SLIT units; `distances[from][to]`.
    pub distances: Vec<Vec<u32>>,
    /// Whether the nodes were named one by one.
    pub nodes_named: bool,
    /// Memory paths; none where HMAT is absent.
    pub paths: Vec<MemoryPath>,
    /// Capacity of each CPU, 1024 for the biggest; empty where all are equal.
    pub capacities: Vec<u32>,
    /// Isolation and interrupts.
    pub placement: Placement,
    /// What the real machine charges; used when asked for.
    #[serde(default, skip_serializing_if = "Costs::is_empty")]
    pub costs: Costs,
    /// The unit whose CPUs the scheduler must take to share their last-level cache.
    pub llc: Level,
    /// What scaling lost, in words.
    pub losses: Vec<String>,
}

impl Topology {
    /// The CPUs of every unit of a level, in order of CPU number.
    pub fn units(&self, level: Level) -> Vec<CpuSet> {
        match level {
            Level::Node => self.nodes.iter().map(|node| node.cpus.clone()).filter(|cpus| !cpus.is_empty()).collect(),
            Level::Group => {
                let (threads, groups) = (self.shape.threads, self.shape.thread_groups);
                let group = |n: u32| (0..threads / groups).map(move |k| n / groups * threads + n % groups + k * groups);
                (0..self.shape.cpus() / threads * groups).map(|n| group(n).collect()).collect()
            }
            Level::Thread | Level::Core | Level::Module | Level::Die | Level::Package => {
                let size = self.shape.cpus_per(level);
                (0..self.shape.cpus() / size).map(|n| CpuSet::range(n * size, (n + 1) * size)).collect()
            }
        }
    }

    /// The unit whose CPUs share the level 2 cache; the core where there is none.
    pub(super) fn l2_unit(&self) -> Level {
        self.caches.iter().find(|cache| cache.level == 2).map_or(Level::Core, |cache| cache.shared_by)
    }

    /// The fastest declared path to a node's memory.
    pub fn nearest_path(&self, to: u32) -> Option<&MemoryPath> {
        self.paths.iter().filter(|path| path.to == to).min_by_key(|path| path.latency_ns)
    }

    /// The CPUs that run.
    pub fn present(&self) -> CpuSet {
        CpuSet::range(0, self.shape.cpus()).difference(&self.placement.offline)
    }

    /// The units of a level without the CPUs that are off.
    pub fn present_units(&self, level: Level) -> Vec<CpuSet> {
        let present = self.present();
        let units = self.units(level).into_iter().map(|unit| unit.intersection(&present));
        units.filter(|unit| !unit.is_empty()).collect()
    }

    /// The CPUs without scheduling domains, whichever way they came to be so.
    pub fn apart(&self) -> CpuSet {
        self.placement.isolated.union(&self.placement.partition)
    }

    /// The CPUs that share each last-level cache in the scheduler's eyes.
    pub fn llcs(&self) -> Vec<CpuSet> {
        self.units(self.llc)
    }

    /// Memory of the guest in MiB.
    pub fn memory_mib(&self) -> u64 {
        self.nodes.iter().map(|node| node.memory_mib).sum()
    }
}
