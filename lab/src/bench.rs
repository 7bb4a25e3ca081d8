//! From a wish on the command line to a finished run: kernels, images, accelerator, plan, trials. `run` and `ab` differ only
//! in how many kernels there are.

use crate::bundle::{self, Runs};
use crate::cancel::Cancel;
use crate::fault::{Fault, Outcome, Trying};
use crate::image::{self, Contents, Image, ImageWish, Supplied};
use crate::kernel::{self, Kernel, KernelSpec, Needs, Toolchain, Wish};
use crate::patch::Series;
use crate::paths::CacheDir;
use crate::plan::{Host, Plan, PlannedBundle, PlannedKernel, Role};
use crate::progress::Progress;
use crate::qemu::accel::{Probe, identity, probe_kvm, remembered};
use crate::qemu::{self, Accel, Qemu};
use crate::results::{Store, TrialRecord};
use crate::topology::{self, Arch, Cost, Costs, Topology};
use crate::trials::{self, Bench};
use std::path::{Path, PathBuf};
use topolab_wire::{Clock, Order, PROTOCOL, RootFrom, Work};

/// Which accelerator the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccelWish {
    /// KVM when a probe boots, emulation otherwise.
    Auto,
    /// KVM or nothing.
    Kvm,
    /// Emulation.
    Tcg,
}

/// A run as wished.
#[derive(Debug, Clone)]
pub struct RunWish {
    /// The command line, for the reproducer.
    pub command: String,
    /// Topologies by name or file.
    pub topologies: Vec<String>,
    /// The kernel.
    pub kernel: String,
    /// Series on the patched side of an `ab`, or on the only side of a `run`.
    pub series: Vec<Series>,
    /// Whether the kernel without the series is run as well.
    pub against_base: bool,
    /// Configuration fragments.
    pub fragments: Vec<PathBuf>,
    /// The compiler.
    pub toolchain: Toolchain,
    /// Architecture of the guests; the first that every topology has when `None`.
    pub arch: Option<Arch>,
    /// Bundles by name or folder.
    pub bundles: Vec<String>,
    /// Sources of programs that Debian lacks, by name.
    pub sources: Vec<(String, PathBuf)>,
    /// Whether the topologies' declared costs are charged.
    pub declared_costs: bool,
    /// Costs that are charged on every topology.
    pub costs: Vec<(Cost, u64)>,
    /// Whether each repetition runs once more with the scheduler's doings counted.
    pub mechanism: bool,
    /// Parameters.
    pub params: Vec<(String, String)>,
    /// The clock.
    pub clock: Clock,
    /// The accelerator.
    pub accel: AccelWish,
    /// Boots of each kernel; the default depends on the clock.
    pub boots: Option<u32>,
    /// Repetitions in a boot.
    pub reps: u32,
    /// Seed.
    pub seed: u64,
    /// Relative margin.
    pub margin: f64,
    /// Words for the kernel's command line.
    pub append: Vec<String>,
    /// Patience.
    pub deadlines: (Option<u64>, Option<u64>),
    /// Measure in spite of a mismatch.
    pub allow_mismatch: bool,
    /// Where records go.
    pub results: PathBuf,
}

/// A finished run.
#[derive(Debug)]
pub struct Finished {
    /// The plan.
    pub plan: Plan,
    /// The records.
    pub trials: Vec<TrialRecord>,
    /// The store.
    pub store: Store,
}

/// What every long step needs: where things are kept, whom to tell, and when to stop.
#[derive(Debug, Clone, Copy)]
pub struct Lab<'a> {
    /// The cache.
    pub cache: &'a CacheDir,
    /// Progress.
    pub progress: Progress,
    /// Ctrl-C.
    pub cancel: &'a Cancel,
}

/// Does what is wished.
pub fn run(wish: &RunWish, lab: Lab<'_>) -> Outcome<Finished> {
    let Lab { cache, progress, cancel } = lab;
    // Everything that is the user's to mend is said before anything long begins.
    let topologies = wish.topologies.iter().map(|t| topology::load(t)).collect::<Outcome<Vec<_>>>()?;
    let arch = common_arch(wish.arch, &topologies)?;
    let bundles = bundles(wish, arch)?;
    let costs = costs(wish, &topologies, &bundles)?;
    refuse_twins("topology", topologies.iter().map(|t| t.name.as_str()))?;
    refuse_twins("bundle", bundles.iter().map(|b| b.bundle.name.as_str()))?;
    let spec = KernelSpec::parse(&wish.kernel)?;
    if wish.clock == Clock::Virtual && wish.accel == AccelWish::Kvm {
        return Err(Fault::input(
            "--clock virtual counts instructions, which KVM cannot; use --accel tcg or --clock real",
        ));
    }
    for (topology, planned) in topologies.iter().flat_map(|t| bundles.iter().map(move |b| (t, b))) {
        bundle::resolve(&planned.bundle, &planned.values, topology, arch)?;
    }
    let asked: Vec<&str> = bundles.iter().flat_map(|planned| planned.bundle.sources()).collect();
    if let Some((name, _)) = wish.sources.iter().find(|(name, _)| !asked.contains(&name.as_str())) {
        return Err(Fault::input(format!("--source {name}: no bundle of this run asks for it"))
            .help(if asked.is_empty() { "leave it out".into() } else { format!("asked for: {}", asked.join(" ")) }));
    }
    let supplied = bundles.iter().map(|b| supplied(b, wish, arch)).collect::<Outcome<Vec<_>>>()?;
    if wish.accel == AccelWish::Kvm && arch != Arch::X86_64 {
        return Err(Fault::input(format!("--accel kvm: this host runs no {arch} code")).help("leave it out to emulate"));
    }
    let qemu = qemu::find(arch)?;
    qemu.require_board(arch)?;
    for topology in &topologies {
        trials::guests_that_fit(topology)?;
    }
    let images = bundles.iter().zip(&supplied).map(|(b, s)| image_of(b, s, arch, lab)).collect::<Outcome<Vec<_>>>()?;
    for (planned, image) in bundles.iter().zip(&images) {
        programs_are_there(planned, image.as_ref())?;
    }
    for (topology, (planned, image)) in topologies.iter().flat_map(|t| bundles.iter().zip(&images).map(move |b| (t, b)))
    {
        trials::require_memory(topology, planned, image.as_ref(), wish.clock)?;
    }
    let kernels = kernels(wish, &spec, arch, &topologies, &bundles, lab)?;
    cancel.check()?;
    let (accel, accel_reason) = choose_accel(wish, arch, &qemu, &kernels[0].1, cache, progress)?;
    let plan = Plan {
        command: wish.command.clone(),
        arch,
        topologies,
        kernels: kernels
            .iter()
            .map(|(role, k)| PlannedKernel {
                role: *role,
                name: k.name.clone(),
                key: k.key.clone(),
                release: k.release.clone(),
                signature: k.signature.clone(),
                inexact: kernel::Applied::said(&k.applied),
            })
            .collect(),
        bundles,
        images: images.iter().flatten().cloned().collect(),
        clock: wish.clock,
        accel,
        boots: wish.boots.unwrap_or(match wish.clock {
            Clock::Real => 3,
            Clock::Virtual => 1,
        }),
        costs,
        reps: wish.reps,
        mechanism: wish.mechanism,
        seed: wish.seed,
        append: wish.append.clone(),
        margin: wish.margin,
        host: host(&qemu, arch, accel_reason)?,
    };
    let kernels: Vec<Kernel> = kernels.into_iter().map(|(_, kernel)| kernel).collect();
    let store = Store::begin(&wish.results, &plan)?;
    let bench = Bench {
        plan: &plan,
        qemu: &qemu,
        kernels: &kernels,
        images: &images,
        store: &store,
        deadlines: wish.deadlines,
        allow_mismatch: wish.allow_mismatch,
        progress,
        cancel,
    };
    let trials = bench.run()?;
    Ok(Finished { plan, trials, store })
}

/// The architecture that every machine of a run is of.
fn common_arch(wished: Option<Arch>, topologies: &[Topology]) -> Outcome<Arch> {
    let every = |arch: &Arch| topologies.iter().all(|topology| topology.cpu.contains_key(arch));
    let found = Arch::ALL.into_iter().find(|arch| wished.is_none_or(|wished| wished == *arch) && every(arch));
    found.ok_or_else(|| {
        let said = topologies.iter().map(|topology| {
            let archs: Vec<String> = topology.cpu.keys().map(Arch::to_string).collect();
            format!("{}: {}", topology.name, archs.join(" "))
        });
        let what = wished.map_or("the machines of a run must be of one architecture".to_string(), |arch| {
            format!("-a {arch}: not every machine is one")
        });
        Fault::input(what).detail(said.collect::<Vec<_>>().join("\n"))
    })
}

fn bundles(wish: &RunWish, arch: Arch) -> Outcome<Vec<PlannedBundle>> {
    let mut all = Vec::new();
    for name in &wish.bundles {
        let bundle = bundle::load_bundle(name)?;
        if !bundle.architectures.contains(&arch) {
            let there: Vec<String> = bundle.architectures.iter().map(Arch::to_string).collect();
            return Err(Fault::input(format!("bundle {} has no programs for {arch}", bundle.name))
                .help(format!("it runs on {}", there.join(" and "))));
        }
        if !bundle.clocks.contains(&wish.clock) {
            let words: Vec<&str> = bundle.clocks.iter().map(|clock| clock_word(*clock)).collect();
            return Err(Fault::input(format!(
                "bundle {} means nothing under --clock {}",
                bundle.name,
                clock_word(wish.clock)
            ))
            .help(format!("it runs under --clock {}", words.join(" or "))));
        }
        let values = bundle.values(&wish.params)?;
        all.push(PlannedBundle { bundle, values });
    }
    Ok(all)
}

/// Records and tables go by name, so a name may come once.
fn refuse_twins<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Outcome<()> {
    let mut seen = std::collections::BTreeSet::new();
    let twin = names.into_iter().find(|name| !seen.insert(*name));
    match twin {
        None => Ok(()),
        Some(name) => Err(Fault::input(format!("the {what} `{name}` is given twice")).help("rename one of the files")),
    }
}

fn clock_word(clock: Clock) -> &'static str {
    match clock {
        Clock::Real => "real",
        Clock::Virtual => "virtual",
    }
}

fn kernels(
    wish: &RunWish,
    spec: &KernelSpec,
    arch: Arch,
    topologies: &[Topology],
    bundles: &[PlannedBundle],
    lab: Lab<'_>,
) -> Outcome<Vec<(Role, Kernel)>> {
    let make = |series: &[Series]| {
        let wish = Wish {
            spec: spec.clone(),
            series: series.to_vec(),
            arch,
            needs: Needs::of(topologies),
            bundles: bundles.iter().map(|b| (b.bundle.name.clone(), b.bundle.kernel.clone())).collect(),
            fragments: wish.fragments.clone(),
            toolchain: wish.toolchain,
        };
        kernel::provide(&wish, lab.cache, lab.progress, lab.cancel)
    };
    match wish.against_base {
        false => Ok(vec![(Role::Base, make(&wish.series)?)]),
        true => Ok(vec![(Role::Base, make(&[])?), (Role::Patched, make(&wish.series)?)]),
    }
}

/// What each machine charges.
fn costs(wish: &RunWish, topologies: &[Topology], bundles: &[PlannedBundle]) -> Outcome<Vec<Costs>> {
    let charged = topologies.iter().map(|topology| {
        let mut costs = if wish.declared_costs { topology.costs.clone() } else { Costs::default() };
        wish.costs.iter().for_each(|(cost, value)| costs.set(*cost, *value));
        costs
    });
    let charged: Vec<Costs> = charged.collect();
    let none = topologies.iter().zip(&charged).find(|(_, costs)| costs.is_empty());
    if let (true, true, Some((topology, _))) = (wish.declared_costs, wish.costs.is_empty(), none) {
        return Err(Fault::input(format!("--costs: {} declares none", topology.name))
            .help("a [costs] table in its file, or --cost KEY=VALUE"));
    }
    let program = bundles.iter().find(|planned| !matches!(planned.bundle.runs, Runs::Model(_)));
    match (wish.declared_costs || !wish.costs.is_empty(), program) {
        (true, Some(planned)) => {
            Err(Fault::input(format!("costs are charged to models, and {} is a program", planned.bundle.name))
                .help("docs/bundles.md says which model is its twin"))
        }
        (_, _) => Ok(charged),
    }
}

fn supplied(planned: &PlannedBundle, wish: &RunWish, arch: Arch) -> Outcome<Vec<Supplied>> {
    match &planned.bundle.runs {
        Runs::Model(_) => Ok(Vec::new()),
        Runs::Program(program) => {
            let find = |supply| Supplied::find(supply, &wish.sources, &planned.bundle.name, arch);
            program.supplies.iter().map(find).collect()
        }
    }
}

/// A program that is not in the image would only be missed in the guest.
fn programs_are_there(planned: &PlannedBundle, image: Option<&Image>) -> Outcome<()> {
    let missing = |path: &&str| path.starts_with('/') && !path.contains('{') && !image.is_some_and(|i| i.has(path));
    match planned.bundle.programs().into_iter().find(missing) {
        None => Ok(()),
        Some(path) => {
            let name = &planned.bundle.name;
            Err(match image {
                Some(image) => Fault::input(format!("bundle {name}: the image {} has no {path}", image.name))
                    .detail(format!("its tree: {}", image.tree.display())),
                None => Fault::input(format!("bundle {name} names {path}, but no image that has it"))
                    .help("image = \"shell\" has /bin/busybox; `topolab image list` says which there are"),
            })
        }
    }
}

fn image_of(planned: &PlannedBundle, supplied: &[Supplied], arch: Arch, lab: Lab<'_>) -> Outcome<Option<Image>> {
    let named = match &planned.bundle.runs {
        Runs::Model(_) => None,
        Runs::Program(program) => program.image.as_ref(),
    };
    let Some(name) = named else { return Ok(None) };
    // A folder's own recipe lies beside its bundle.toml.
    let own = planned.bundle.folder.as_ref().map(|folder| folder.join(format!("{name}.image")));
    let spec = own.filter(|path| path.exists()).map_or(name.clone(), |path| path.display().to_string());
    let recipe = image::load_recipe(&spec)?;
    let wish = ImageWish { recipe: &recipe, arch, supplied, again: false };
    image::provide_image(wish, lab.cache, lab.progress, lab.cancel).map(Some)
}

fn choose_accel(
    wish: &RunWish,
    arch: Arch,
    qemu: &Qemu,
    kernel: &Kernel,
    cache: &CacheDir,
    progress: Progress,
) -> Outcome<(Accel, String)> {
    match (wish.clock, wish.accel) {
        (Clock::Virtual, _) => Ok((Accel::Tcg, "the virtual clock needs TCG with icount".into())),
        (Clock::Real, AccelWish::Tcg) => Ok((Accel::Tcg, "asked for".into())),
        (Clock::Real, AccelWish::Auto) if arch != Arch::X86_64 => {
            Ok((Accel::Tcg, format!("KVM runs the host's own code only, and the guests are {arch}")))
        }
        (Clock::Real, AccelWish::Auto | AccelWish::Kvm) => {
            let probe = probe(qemu, kernel, cache)?;
            match (probe.works, wish.accel) {
                (true, _) => Ok((Accel::Kvm, probe.reason)),
                (false, AccelWish::Kvm) => {
                    Err(Fault::lab(format!("--accel kvm: {}", probe.reason)).help("leave it out to emulate"))
                }
                (false, AccelWish::Auto | AccelWish::Tcg) => {
                    progress.say(format!("not using KVM: {}", probe.reason));
                    Ok((Accel::Tcg, probe.reason))
                }
            }
        }
    }
}

/// Whether KVM works here, by booting this kernel on the smallest machine.
pub fn probe(qemu: &Qemu, kernel: &Kernel, cache: &CacheDir) -> Outcome<Probe> {
    let scratch = tempfile::Builder::new().prefix("topolab-").tempdir().trying("a temporary folder")?;
    let at = |name: &str| scratch.path().join(name);
    let order = Order {
        protocol: PROTOCOL,
        trial: "probe".into(),
        clock: Clock::Real,
        modules: Vec::new(),
        root: RootFrom::None,
        offline: Default::default(),
        partition: Default::default(),
        work: Work::Observe,
        costs: Vec::new(),
        count: None,
    };
    image::write_initramfs(&at("initrd"), &Contents { arch: Arch::X86_64, order: &order, modules: &[], tree: None })?;
    let mut machine = trials::machine(&topology::load("smoke")?, Arch::X86_64, kernel, Accel::Kvm, Clock::Real, 1, &[]);
    machine.console = at("console");
    machine.qmp = at("qmp");
    machine.initrd = at("initrd");
    probe_kvm(qemu, &machine, scratch.path(), &memo(cache))
}

fn memo(cache: &CacheDir) -> PathBuf {
    cache.root().join("kvm-probe.json")
}

/// The remembered answer of a probe on this boot of the host.
pub fn known_probe(qemu: &Qemu, cache: &CacheDir) -> Option<Probe> {
    remembered(&memo(cache), &identity(qemu))
}

/// What a reader must know of the host.
fn host(qemu: &Qemu, arch: Arch, accel_reason: String) -> Outcome<Host> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_string()));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(Host {
        machine: format!("{} × {}, Linux {}", cpus, model.unwrap_or_else(|| "unknown CPU".into()), release.trim()),
        qemu: qemu.version.clone(),
        topolab: env!("CARGO_PKG_VERSION").into(),
        agent: image::agent_digest(arch)?,
        turnstile: qemu::turnstile_digest(),
        accel_reason,
    })
}

/// What a look at a machine shows.
#[derive(Debug)]
pub struct Look {
    /// The kernel's view of it.
    pub observation: topolab_wire::Observation,
    /// What the kernel complained of, with how often.
    pub complaints: Vec<(String, usize)>,
}

/// Boots a machine to look at it, and nothing else.
pub fn observe(topology: &Topology, arch: Arch, kernel: &Kernel, lab: Lab<'_>) -> Outcome<Look> {
    let Lab { cache, progress, cancel } = lab;
    let qemu = qemu::find(arch)?;
    qemu.require_board(arch)?;
    trials::guests_that_fit(topology)?;
    // Only the host's own architecture can run on it.
    let accel = match arch {
        Arch::X86_64 if probe(&qemu, kernel, cache)?.works => Accel::Kvm,
        Arch::X86_64 | Arch::Aarch64 | Arch::Ppc64le => Accel::Tcg,
    };
    progress.say(format!("booting {} ({} CPUs) with {}", topology.name, topology.shape.cpus(), kernel.name));
    let folder = tempfile::Builder::new().prefix("topolab-verify-").tempdir().trying("a temporary folder")?;
    let order = Order {
        protocol: PROTOCOL,
        trial: "verify".into(),
        clock: Clock::Real,
        modules: image::module_places(&kernel.modules),
        root: RootFrom::None,
        offline: topology.placement.offline.clone(),
        partition: topology.placement.partition.clone(),
        work: Work::Observe,
        costs: Vec::new(),
        count: None,
    };
    let birth = crate::guest::Birth {
        qemu: &qemu,
        machine: trials::machine(topology, arch, kernel, accel, Clock::Real, 1, &[]),
        order: &order,
        modules: &kernel.modules,
        tree: None,
        inputs: None,
        folder: Path::new(folder.path()),
        deadlines: trials::patience(topology, accel),
    };
    let lived = crate::guest::live(birth, cancel)?;
    let complaints = lived.complaints();
    Ok(Look { observation: lived.observation, complaints })
}
