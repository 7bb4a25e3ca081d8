//! The resolved run: what exactly will be booted, in which order, from which seeds. Saved with its results. Pure.

use crate::bundle::Bundle;
use crate::image::Image;
use crate::qemu::Accel;
use crate::topology::{Arch, Costs, Topology};
use std::collections::BTreeMap;
use topolab_model::SplitMix64;
use topolab_wire::{Clock, Setting};

/// Which side of a comparison a kernel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Without the patch; the only one of a `run`.
    Base,
    /// With it.
    Patched,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Base => "base",
            Self::Patched => "patched",
        })
    }
}

/// A kernel of the run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlannedKernel {
    /// Its side.
    pub role: Role,
    /// How tables name it.
    pub name: String,
    /// Its key.
    pub key: String,
    /// `uname -r`, where known.
    pub release: Option<String>,
    /// Hash of what it loads, where it was built here.
    pub signature: Option<String>,
    /// What was not exact about its patches.
    pub inexact: Vec<String>,
}

/// A bundle of the run with its values.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PlannedBundle {
    /// The declaration.
    pub bundle: Bundle,
    /// Parameters' values.
    pub values: BTreeMap<String, Setting>,
}

/// Where and with what it runs: everything that a reader needs to judge the numbers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Host {
    /// CPU model, kernel and number of CPUs.
    pub machine: String,
    /// QEMU's version.
    pub qemu: String,
    /// topolab's version.
    pub topolab: String,
    /// SHA-256 of the guest agent: under the virtual clock another build of it is another input.
    pub agent: String,
    /// SHA-256 of the library that makes QEMU's threads take turns under the virtual clock.
    pub turnstile: String,
    /// Why KVM is used or not.
    pub accel_reason: String,
}

/// The whole run.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Plan {
    /// The command, for the reproducer line.
    pub command: String,
    /// Architecture of the guests.
    pub arch: Arch,
    /// Machines.
    pub topologies: Vec<Topology>,
    /// Kernels, base first.
    pub kernels: Vec<PlannedKernel>,
    /// Bundles.
    pub bundles: Vec<PlannedBundle>,
    /// The program trees that they come from.
    pub images: Vec<Image>,
    /// The clock.
    pub clock: Clock,
    /// The accelerator.
    pub accel: Accel,
    /// Boots of each kernel.
    pub boots: u32,
    /// Repetitions within a boot.
    pub reps: u32,
    /// What each machine charges, as the topologies; empty where nothing.
    pub costs: Vec<Costs>,
    /// Whether each repetition runs once more with the scheduler's doings counted.
    pub mechanism: bool,
    /// Seed of the order and of the guests.
    pub seed: u64,
    /// Words added to the kernel's command line.
    pub append: Vec<String>,
    /// Relative margin within which a difference counts as none.
    pub margin: f64,
    /// The host.
    pub host: Host,
}

/// One boot, by indices into the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// Place in the plan's canonical order: by topology, bundle, boot, kernel.
    pub number: usize,
    /// Index of the topology.
    pub topology: usize,
    /// Index of the bundle.
    pub bundle: usize,
    /// Index of the kernel.
    pub kernel: usize,
    /// Boot, from 0.
    pub boot: u32,
    /// Seed of this boot: the same for base and patched, so that they are a pair.
    pub seed: u64,
}

/// What a number's timing is worth (DESIGN §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Label {
    /// Instruction time: exact and repeatable.
    Virtual,
    /// Wall time of an emulator: placement may be read, timing may not.
    Tcg,
    /// Hardware virtualisation without pinned vCPUs.
    KvmUnpinned,
}

impl Label {
    /// Whether a timing may decide anything.
    pub fn timing_counts(self) -> bool {
        match self {
            Self::Virtual => true,
            // Unpinned vCPUs move under the guest's scheduler: its placement and the host's mix.
            Self::Tcg | Self::KvmUnpinned => false,
        }
    }

    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Tcg => "tcg",
            Self::KvmUnpinned => "kvm-unpinned",
        }
    }
}

impl Plan {
    /// Whether costs are charged anywhere. A cost of 0 is charged too, so that the points of a sweep differ in nothing else.
    pub fn charges(&self) -> bool {
        self.costs.iter().any(|costs| *costs != Costs::default())
    }

    /// The label of every number of this run.
    pub fn label(&self) -> Label {
        match (self.clock, self.accel) {
            (Clock::Virtual, _) => Label::Virtual,
            (Clock::Real, Accel::Tcg) => Label::Tcg,
            (Clock::Real, Accel::Kvm) => Label::KvmUnpinned,
        }
    }

    /// Every trial, in the order in which they run: boots of the kernels interleaved, shuffled by the seed within each
    /// boot, so that a drift of the host falls on both sides.
    pub fn trials(&self) -> Vec<Trial> {
        let mut rng = SplitMix64::new(self.seed);
        let mut all = Vec::new();
        let mut number = 0;
        for topology in 0..self.topologies.len() {
            for bundle in 0..self.bundles.len() {
                for boot in 0..self.boots {
                    let seed = self.seed.wrapping_add(u64::from(boot));
                    let mut round: Vec<Trial> = (0..self.kernels.len())
                        .map(|kernel| Trial { number: number + kernel, topology, bundle, kernel, boot, seed })
                        .collect();
                    number += round.len();
                    // Fisher and Yates, as Durstenfeld wrote it (CACM 7, 1964).
                    for last in (1..round.len()).rev() {
                        round.swap(last, rng.below(last as u64 + 1) as usize);
                    }
                    all.extend(round);
                }
            }
        }
        all
    }

    /// A trial's name: of one length whatever it names, since the guest's memory layout follows the order's size.
    pub fn trial_name(&self, trial: &Trial) -> String {
        let parts = [
            self.topologies[trial.topology].name.as_str(),
            self.bundles[trial.bundle].bundle.name.as_str(),
            self.kernels[trial.kernel].key.as_str(),
        ];
        let text = format!("{} {} {:?}", parts.join(" "), trial.boot, self.bundles[trial.bundle].values);
        crate::digest::hex(&[text.as_bytes(), &trial.seed.to_le_bytes()])[..16].to_string()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bundle::load_bundle;
    use crate::topology::load;

    /// A plan of two kernels on a small machine.
    pub(crate) fn plan(clock: Clock, boots: u32) -> Plan {
        let bundle = load_bundle("epoll-fanin").expect("built in");
        let kernel = |role, key: &str| PlannedKernel {
            role,
            name: format!("7.2.13 {role}"),
            key: key.repeat(64),
            release: None,
            signature: None,
            inexact: Vec::new(),
        };
        Plan {
            command: "topolab ab".into(),
            arch: Arch::X86_64,
            topologies: vec![load("cwf-snc3@1/12").expect("built in")],
            kernels: vec![kernel(Role::Base, "a"), kernel(Role::Patched, "b")],
            bundles: vec![PlannedBundle { values: bundle.values(&[]).expect("defaults"), bundle }],
            images: Vec::new(),
            clock,
            accel: Accel::Tcg,
            boots,
            reps: 1,
            costs: vec![Costs::default()],
            mechanism: false,
            seed: 7,
            append: Vec::new(),
            margin: 0.01,
            host: Host {
                machine: "m".into(),
                qemu: "10".into(),
                topolab: "0".into(),
                agent: "a".repeat(64),
                turnstile: "b".repeat(64),
                accel_reason: "r".into(),
            },
        }
    }

    #[test]
    fn each_boot_has_both_kernels_in_an_order_that_the_seed_gives() {
        let trials = plan(Clock::Real, 20).trials();
        let firsts: Vec<usize> = trials.chunks(2).map(|pair| pair[0].kernel).collect();
        assert!(trials.chunks(2).all(|pair| pair[0].boot == pair[1].boot && pair[0].seed == pair[1].seed));
        assert!(firsts.contains(&0) && firsts.contains(&1), "{firsts:?}");
        assert_eq!(trials, plan(Clock::Real, 20).trials());
        let mut numbers: Vec<usize> = trials.iter().map(|trial| trial.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    }

    #[test]
    fn names_differ_and_have_one_length() {
        let plan = plan(Clock::Virtual, 3);
        let names: std::collections::BTreeSet<String> = plan.trials().iter().map(|t| plan.trial_name(t)).collect();
        assert_eq!(names.len(), 6);
        assert!(names.iter().all(|name| name.len() == 16));
    }
}
