//! A resolved topology: every CPU has its place, every node its CPUs.

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
}

impl Shape {
    /// CPUs in the machine.
    pub fn cpus(&self) -> u32 {
        self.packages * self.dies * self.modules * self.cores * self.threads
    }

    /// CPUs in one unit of a level. A node's size is not a matter of shape; it counts as the whole machine here.
    pub fn cpus_per(&self, level: Level) -> u32 {
        match level {
            Level::Thread => 1,
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
    /// Model number that the guest must see, where declared.
    pub model: Option<u32>,
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
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Memory of the guest's node in MiB.
    pub memory_mib: u64,
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
    /// The unit whose CPUs the scheduler must take to share their last-level cache.
    pub llc: Level,
    /// What scaling lost, in words.
    pub losses: Vec<String>,
}

impl Topology {
    /// The CPUs of every unit of a level, in order of CPU number.
    pub fn units(&self, level: Level) -> Vec<CpuSet> {
        match level {
            Level::Node => self.nodes.iter().map(|node| node.cpus.clone()).collect(),
            _ => {
                let size = self.shape.cpus_per(level);
                (0..self.shape.cpus() / size).map(|n| CpuSet::range(n * size, (n + 1) * size)).collect()
            }
        }
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
