//! Runs the trials of a plan: in its order, as many side by side as the clock allows, each kept as soon as it is over.

mod needs;
mod read;

pub use needs::{guests_that_fit, patience, require_memory};

use crate::bundle::{self, Ordered, Resolved, Runs};
use crate::cancel::Cancel;
use crate::fault::{Fault, FaultKind, Outcome};
use crate::guest::{self, Birth, Deadlines, Lived};
use crate::image::{Image, module_places};
use crate::kernel::Kernel;
use crate::paths::touch;
use crate::plan::{Plan, Trial};
use crate::progress::Progress;
use crate::qemu::{Accel, Machine, Qemu};
use crate::results::{KernelRef, Store, TrialRecord};
use crate::topology::{Arch, Level, Topology};
use needs::{in_initramfs, work_s};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Mutex;
use topolab_wire::{Clock, ModelOrder, Order, PROTOCOL, ProgramOrder, RootFrom, Work};

/// Tag of the read-only share with a bundle's programs.
const INPUTS_TAG: &str = "inputs";
/// Everything that running a plan needs.
pub struct Bench<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// QEMU.
    pub qemu: &'a Qemu,
    /// Kernels, as in the plan.
    pub kernels: &'a [Kernel],
    /// Program trees, as the plan's bundles; `None` for models.
    pub images: &'a [Option<Image>],
    /// Where records go.
    pub store: &'a Store,
    /// The user's own patience, if any: until the hello, and in all.
    pub deadlines: (Option<u64>, Option<u64>),
    /// Measure even on a machine that is not the declared one.
    pub allow_mismatch: bool,
    /// Progress.
    pub progress: Progress,
    /// Ctrl-C.
    pub cancel: &'a Cancel,
}

impl Bench<'_> {
    /// Runs every trial and returns the records in the plan's canonical order. After a trial with a fault no new one is
    /// begun; what was finished is returned all the same.
    pub fn run(&self) -> Outcome<Vec<TrialRecord>> {
        let waiting: Mutex<VecDeque<Trial>> = Mutex::new(self.plan.trials().into());
        let finished: Mutex<BTreeMap<usize, TrialRecord>> = Mutex::new(BTreeMap::new());
        let stopped: Mutex<Option<Fault>> = Mutex::new(None);
        let total = self.plan.trials().len();
        std::thread::scope(|scope| -> Outcome<()> {
            for _ in 0..self.side_by_side(total)? {
                scope.spawn(|| {
                    while let Some(trial) = next(&waiting, &stopped) {
                        match self.one(&trial, total) {
                            Ok(record) => {
                                let failed = record.fault.is_some();
                                lock(&finished).insert(trial.number, record);
                                if failed {
                                    // What comes before it in the plan's order is still run, so that the records of a failed
                                    // run do not depend on which worker was faster either.
                                    lock(&waiting).retain(|other| other.number < trial.number);
                                }
                            }
                            Err(fault) => *lock(&stopped) = Some(fault),
                        }
                    }
                });
            }
            Ok(())
        })?;
        let finished = std::mem::take(&mut *lock(&finished));
        match lock(&stopped).take() {
            Some(fault) => Err(fault.help(format!(
                "{} finished trial(s) are kept in {}",
                finished.len(),
                self.store.folder().display()
            ))),
            None => Ok(up_to_the_first_fault(finished.into_values())),
        }
    }

    /// One at a time on the real clock, where guests would disturb each other; one per core on the virtual one, where the
    /// result cannot depend on it.
    fn side_by_side(&self, trials: usize) -> Outcome<usize> {
        let mut fit = usize::MAX;
        for topology in &self.plan.topologies {
            fit = fit.min(guests_that_fit(topology)?);
        }
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(match self.plan.clock {
            Clock::Real => 1,
            Clock::Virtual => cores.min(trials).min(fit),
        })
    }

    fn one(&self, trial: &Trial, total: usize) -> Outcome<TrialRecord> {
        self.cancel.check()?;
        let plan = self.plan;
        let (topology, planned) = (&plan.topologies[trial.topology], &plan.bundles[trial.bundle]);
        let role = plan.kernels[trial.kernel].role;
        let what = format!(
            "trial {}/{total}: {} on {}, {role}, boot {}",
            trial.number + 1,
            planned.bundle.name,
            topology.name,
            trial.boot
        );
        self.progress.say(format!("{what} …"));
        let begun = std::time::Instant::now();
        let folder = self.store.trial(plan, trial)?;
        let mut record = TrialRecord {
            kernel: KernelRef {
                role,
                name: plan.kernels[trial.kernel].name.clone(),
                key: plan.kernels[trial.kernel].key.clone(),
            },
            topology: topology.name.clone(),
            bundle: planned.bundle.name.clone(),
            params: self.resolved(trial)?.values,
            boot: trial.boot,
            seed: trial.seed,
            label: plan.label(),
            observed: None,
            metrics: BTreeMap::new(),
            mechanism: BTreeMap::new(),
            invariants: Vec::new(),
            cautions: Vec::new(),
            fault: None,
        };
        let outcome = self.boot(trial, &folder).and_then(|lived| self.read(&lived, trial, &mut record));
        if let Err(fault) = outcome {
            if fault.kind == FaultKind::Interrupted {
                // A trial that the user ended is no trial.
                let _ = std::fs::remove_dir_all(&folder);
                return Err(fault);
            }
            record.metrics.clear();
            record.mechanism.clear();
            record.fault = Some(fault.into());
        }
        self.store.keep(&folder, &record)?;
        let how = record.fault.as_ref().map_or("done".to_string(), |fault| format!("{} fault", fault.kind.word()));
        self.progress.say(format!("{what}: {how} after {:.0} s", begun.elapsed().as_secs_f64()));
        Ok(record)
    }

    fn boot(&self, trial: &Trial, folder: &Path) -> Outcome<Lived> {
        let plan = self.plan;
        let topology = &plan.topologies[trial.topology];
        let (kernel, planned) = (&self.kernels[trial.kernel], &plan.bundles[trial.bundle]);
        let image = self.images[trial.bundle].as_ref();
        let tree = image.map(|image| image.tree.as_path());
        let modelled = matches!(planned.bundle.runs, Runs::Model(_));
        let root = match image {
            None => RootFrom::None,
            Some(image) if in_initramfs(image, plan.clock) => RootFrom::Initramfs,
            Some(_) => RootFrom::Share(INPUTS_TAG.into()),
        };
        let mut modules = kernel.modules.clone();
        match (modelled, &kernel.busy_module) {
            (false, Some(module)) if plan.mechanism => modules.push(module.clone()),
            (false, _) => {}
            (true, Some(module)) => modules.push(module.clone()),
            (true, None) => {
                let what = &planned.bundle.name;
                return Err(Fault::input(format!(
                    "{} has no busy module, which the modelled bundle {what} needs",
                    kernel.name
                ))
                .help("let topolab build the kernel: -k debian:7.2"));
            }
        }
        // `cache prune` leaves alone what was used lately.
        kernel.image.parent().into_iter().for_each(|entry| touch(&entry.join("meta.json")));
        [Some(kernel.image.as_path()), tree].into_iter().flatten().for_each(touch);
        let order = Order {
            protocol: PROTOCOL,
            trial: plan.trial_name(trial),
            clock: plan.clock,
            modules: module_places(&modules),
            root: root.clone(),
            offline: topology.placement.offline.clone(),
            partition: topology.placement.partition.clone(),
            work: self.work(trial)?,
            costs: if plan.charges() { plan.costs[trial.topology].lines(topology) } else { Vec::new() },
            count: plan.mechanism.then(|| topology.present_units(topology.llc)),
        };
        let birth = Birth {
            qemu: self.qemu,
            machine: machine(topology, plan.arch, kernel, plan.accel, plan.clock, trial.seed, &plan.append),
            order: &order,
            modules: &modules,
            tree: tree.filter(|_| root == RootFrom::Initramfs),
            inputs: tree.filter(|_| matches!(root, RootFrom::Share(_))).map(|tree| (INPUTS_TAG, tree)),
            folder,
            deadlines: self.patience(trial),
        };
        guest::live(birth, self.cancel)
    }

    fn patience(&self, trial: &Trial) -> Deadlines {
        let (topology, planned) = (&self.plan.topologies[trial.topology], &self.plan.bundles[trial.bundle]);
        let usual = patience(topology, self.plan.accel);
        let runs = if self.plan.mechanism { 2 * self.plan.reps } else { self.plan.reps };
        Deadlines {
            decisive: self.plan.clock == Clock::Real && self.deadlines.1.is_none(),
            boot_s: self.deadlines.0.unwrap_or(usual.boot_s),
            total_s: self.deadlines.1.unwrap_or(usual.total_s + work_s(planned, topology, self.plan.clock, runs)),
        }
    }

    fn resolved(&self, trial: &Trial) -> Outcome<Resolved> {
        let (topology, planned) = (&self.plan.topologies[trial.topology], &self.plan.bundles[trial.bundle]);
        bundle::resolve(&planned.bundle, &planned.values, topology, self.plan.arch)
    }

    fn work(&self, trial: &Trial) -> Outcome<Work> {
        let plan = self.plan;
        let topology = &plan.topologies[trial.topology];
        Ok(match self.resolved(trial)?.runs {
            Ordered::Programs(programs) => {
                Work::Program(Box::new(ProgramOrder { repetitions: plan.reps, ..*programs }))
            }
            Ordered::Model { name, params, profile } => Work::Model(ModelOrder {
                model: name,
                params,
                profile,
                seed: trial.seed,
                repetitions: plan.reps,
                nodes: topology.present_units(Level::Node),
                llcs: topology.present_units(topology.llc),
            }),
        })
    }
}

/// The records up to and with the first one that has a fault.
fn up_to_the_first_fault(records: impl Iterator<Item = TrialRecord>) -> Vec<TrialRecord> {
    let mut kept = Vec::new();
    for record in records {
        let last = record.fault.is_some();
        kept.push(record);
        if last {
            break;
        }
    }
    kept
}

/// A machine for the guest module to complete.
pub fn machine(
    topology: &Topology,
    arch: Arch,
    kernel: &Kernel,
    accel: Accel,
    clock: Clock,
    seed: u64,
    append: &[String],
) -> Machine {
    Machine {
        topology: topology.clone(),
        arch,
        accel,
        clock,
        seed,
        kernel: kernel.image.clone(),
        initrd: Default::default(),
        device_tree: None,
        append: append.to_vec(),
        console: Default::default(),
        qmp: Default::default(),
        shares: Vec::new(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The data are plain maps: a worker that panicked leaves them whole.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn next(waiting: &Mutex<VecDeque<Trial>>, stopped: &Mutex<Option<Fault>>) -> Option<Trial> {
    match lock(stopped).is_some() {
        true => None,
        false => lock(waiting).pop_front(),
    }
}
