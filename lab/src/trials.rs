//! Runs the trials of a plan: in its order, as many side by side as the clock allows, each kept as soon as it is over.

use crate::cancel::Cancel;
use crate::fault::{Fault, FaultKind, Outcome, Trying};
use crate::guest::{self, Birth, Deadlines, Lived};
use crate::image::{Bundle, Image, Runs, module_places};
use crate::kernel::Kernel;
use crate::paths::{available_memory, touch};
use crate::plan::{Plan, PlannedBundle, Trial};
use crate::progress::Progress;
use crate::qemu::{Accel, Machine, Qemu};
use crate::results::{Invariant, KernelRef, NO_COMPLAINTS, Observed, Samples, Store, TrialRecord};
use crate::topology::{Arch, Level, Topology, compare};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Mutex;
use topolab_wire::{
    Clock, ModelOrder, ModelRecord, Order, PROTOCOL, ProgramOrder, ProgramOutcome, Repetition, RootFrom, Setting,
    Value, Work,
};

/// Tag of the read-only share with a bundle's programs.
const INPUTS_TAG: &str = "inputs";
/// Memory of QEMU itself beside the guest's, in MiB, and what each vCPU adds (measured at 24 to 288 vCPUs).
const QEMU_MIB: u64 = 200;
const QEMU_MIB_PER_CPU: u64 = 4;

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

/// Patience that a healthy guest never needs, before its work: an emulated CPU takes about two seconds to bring up under the
/// virtual clock, and both cores may be busy with something else.
pub fn patience(topology: &Topology, accel: Accel) -> Deadlines {
    let cpus = u64::from(topology.shape.cpus());
    let boot_s = match accel {
        Accel::Kvm => 60 + cpus,
        Accel::Tcg => 120 + 8 * cpus,
    };
    Deadlines { boot_s, total_s: boot_s + 300 }
}

/// Seconds of wall time that the ordered work may take beyond that. A program's own deadline is in guest time, which the real
/// clock keeps; a model's CPUs share one host thread, so a second of theirs may cost a second of it for every CPU.
fn work_s(planned: &PlannedBundle, topology: &Topology, reps: u32) -> u64 {
    let runs = u64::from(reps);
    match &planned.bundle.runs {
        Runs::Program { warmup, deadline_s, .. } => (runs + u64::from(*warmup)) * (deadline_s + 10),
        Runs::Model(_) => {
            let ms = match planned.values.get("duration_ms") {
                Some(Setting::Number(ms)) => u64::try_from(*ms).unwrap_or(1000),
                Some(Setting::Word(_)) | None => 1000,
            };
            runs * (60 + 5 * u64::from(topology.shape.cpus()) * ms.div_ceil(1000))
        }
    }
}

/// Refuses a guest that the host's memory cannot hold, and says how many fit.
pub fn guests_that_fit(topology: &Topology) -> Outcome<usize> {
    let needed = topology.memory_mib() + QEMU_MIB + QEMU_MIB_PER_CPU * u64::from(topology.shape.cpus());
    let available = available_memory()? >> 20;
    match available / needed {
        0 => Err(Fault::lab(format!(
            "too little memory to boot {}: {needed} MiB are needed, {available} MiB are available",
            topology.name
        ))
        .help("scale the machine down with @1/N, or end other programs")),
        n => usize::try_from(n).trying("memory"),
    }
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
            params: planned.values.clone(),
            boot: trial.boot,
            seed: trial.seed,
            label: plan.label(),
            observed: None,
            metrics: BTreeMap::new(),
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
        let tree = self.images[trial.bundle].as_ref().map(|image| image.tree.as_path());
        let modelled = matches!(planned.bundle.runs, Runs::Model(_));
        let root = match (tree, plan.clock) {
            (None, _) => RootFrom::None,
            (Some(_), Clock::Real) => RootFrom::Share(INPUTS_TAG.into()),
            (Some(_), Clock::Virtual) => RootFrom::Initramfs,
        };
        let mut modules = kernel.modules.clone();
        match (modelled, &kernel.busy_module) {
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
            work: self.work(trial),
        };
        let birth = Birth {
            qemu: self.qemu,
            machine: machine(topology, Arch::X86_64, kernel, plan.accel, plan.clock, trial.seed, &plan.append),
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
        Deadlines {
            boot_s: self.deadlines.0.unwrap_or(usual.boot_s),
            total_s: self.deadlines.1.unwrap_or(usual.total_s + work_s(planned, topology, self.plan.reps)),
        }
    }

    fn work(&self, trial: &Trial) -> Work {
        let plan = self.plan;
        let (topology, planned) = (&plan.topologies[trial.topology], &plan.bundles[trial.bundle]);
        match &planned.bundle.runs {
            Runs::Model(model) => Work::Model(ModelOrder {
                model: model.clone(),
                params: planned.values.clone(),
                seed: trial.seed,
                repetitions: plan.reps,
                nodes: topology.present_units(Level::Node),
                llcs: topology.present_units(topology.llc),
            }),
            Runs::Program { argv, warmup, deadline_s, .. } => Work::Program(ProgramOrder {
                argv: Bundle::words(argv, &planned.values),
                env: BTreeMap::new(),
                cpus: None,
                warmup: *warmup,
                repetitions: plan.reps,
                deadline_ms: deadline_s * 1000,
            }),
        }
    }

    /// Turns what the guest left into the record: first whether it was the machine, then the numbers.
    fn read(&self, lived: &Lived, trial: &Trial, record: &mut TrialRecord) -> Outcome<()> {
        let topology = &self.plan.topologies[trial.topology];
        let observed = Observed::from(&compare(topology, Arch::X86_64, &lived.observation));
        let complaints = lived.complaints();
        record.cautions.clone_from(&lived.cautions);
        if lived.late {
            self.progress.say(format!(
                "{} on {}: the host is so busy that QEMU's main loop did not wait for its turn; if another run differs, that is why",
                record.bundle, record.topology
            ));
        }
        record.invariants.push(Invariant {
            name: NO_COMPLAINTS.into(),
            holds: complaints.is_empty(),
            evidence: complaints.into_iter().map(|(title, _)| title).collect::<Vec<_>>().join("; "),
        });
        let (matches, differs) = (observed.matches, observed.differs.clone());
        record.observed = Some(observed);
        if !matches && !self.allow_mismatch {
            let rows: Vec<String> = differs
                .iter()
                .map(|r| format!("{}: declared {}, observed {}", r.what, r.declared, r.observed))
                .collect();
            return Err(Fault::new(
                FaultKind::Mismatch,
                format!("the guest is not the declared machine {}", topology.name),
            )
            .detail(rows.join("\n"))
            .help("--allow-mismatch measures all the same, and says so on every record"));
        }
        if lived.done.repetitions.len() != self.plan.reps as usize {
            return Err(Fault::lab(format!(
                "{} repetitions came back, {} were ordered",
                lived.done.repetitions.len(),
                self.plan.reps
            )));
        }
        for (n, repetition) in lived.done.repetitions.iter().enumerate() {
            self.read_one(n, repetition, &lived.results, trial, record)?;
        }
        Ok(())
    }

    fn read_one(
        &self,
        n: usize,
        repetition: &Repetition,
        results: &Path,
        trial: &Trial,
        record: &mut TrialRecord,
    ) -> Outcome<()> {
        let text =
            |name: &str| std::fs::read(results.join(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let bundle = &self.plan.bundles[trial.bundle].bundle;
        let unreadable = |why: String| {
            let said = [&repetition.stdout, &repetition.stderr].map(|name| text(name).unwrap_or_default()).join("\n");
            let tail: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
            Fault::new(FaultKind::Bundle, format!("{}, repetition {n}: {why}", bundle.name)).detail(format!(
                "{}\n\nthe raw output: results/{} and {} in the trial's folder",
                tail[tail.len().saturating_sub(12)..].join("\n"),
                repetition.stdout,
                repetition.stderr
            ))
        };
        match &repetition.outcome {
            ProgramOutcome::Exit(0) => {}
            ProgramOutcome::Exit(code) => return Err(unreadable(format!("exit status {code}"))),
            ProgramOutcome::Signal(signal) => return Err(unreadable(format!("killed by signal {signal}"))),
            ProgramOutcome::Deadline => return Err(unreadable("its deadline passed".into())),
            ProgramOutcome::NotStarted(why) => return Err(unreadable(format!("not started: {why}"))),
        }
        let stdout = text(&repetition.stdout).map_err(|e| unreadable(e.to_string()))?;
        let values: BTreeMap<String, Value> = match &repetition.record {
            None => bundle.read(&stdout).map_err(unreadable)?,
            Some(_) => {
                let model: ModelRecord = serde_json::from_str(&stdout).map_err(|e| unreadable(e.to_string()))?;
                for (name, (holds, evidence)) in model.invariants {
                    record.invariants.push(Invariant { name, holds, evidence });
                }
                model.metrics
            }
        };
        for (name, Value { unit, value, thin }) in values {
            let samples =
                record.metrics.entry(name).or_insert_with(|| Samples { unit, samples: Vec::new(), thin: false });
            samples.samples.push(value);
            samples.thin |= thin;
        }
        Ok(())
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
