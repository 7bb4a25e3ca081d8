//! `topolab run` and `topolab ab`.

use super::kernel_args::KernelArgs;
use super::{Context, Format};
use crate::bench::{self, AccelWish, Finished, RunWish};
use crate::fault::{Fault, Outcome};
use crate::plan::Plan;
use crate::prove;
use crate::qemu::quote;
use crate::report::{self, Summary};
use crate::sweep::{Sweep, Swept};
use crate::topology::{Arch, Cost};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use topolab_wire::Clock;

/// Flags of `run` and `ab`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Machine: NAME, FILE or NAME@1/N; may be given several times.
    #[arg(short = 't', long = "topology", value_name = "T", required = true)]
    topologies: Vec<String>,
    #[arg(short, long, value_name = "K", default_value = "debian:7.2", help = format!("Kernel: {}", crate::kernel::FORMS))]
    kernel: String,
    #[command(flatten)]
    with: KernelArgs,
    /// The guests' architecture [default: the first of x86_64, aarch64, ppc64le that every machine is].
    #[arg(short = 'a', long, value_name = "ARCH", value_parser = super::parse_arch)]
    arch: Option<Arch>,
    /// Bundle: NAME or a folder with bundle.toml (with a slash); may be given several times.
    #[arg(short = 'b', long = "bundle", value_name = "B", required = true)]
    bundles: Vec<String>,
    /// A bundle's parameter.
    #[arg(short = 'p', long = "param", value_name = "KEY=VALUE", value_parser = key_value)]
    params: Vec<(String, String)>,
    /// Folder or tarball of a program that Debian lacks, for a bundle that asks for it.
    #[arg(long = "source", value_name = "NAME=PATH", value_parser = key_value)]
    sources: Vec<(String, String)>,
    /// Charge models what the topologies' [costs] declare.
    #[arg(long)]
    costs: bool,
    /// Charge models this: smt, core, llc, node, cold (times), remote, sibling (shares), cold_after.
    #[arg(long = "cost", value_name = "KEY=VALUE", value_parser = cost)]
    cost: Vec<(Cost, u64)>,
    /// Run each repetition once more with the scheduler's doings counted: wakeups, stacking, migrations, waiting, busy time.
    #[arg(long)]
    mechanism: bool,
    /// real (wall time) or virtual (instruction time, deterministic).
    #[arg(long, default_value = "real", value_parser = super::parse_clock)]
    clock: Clock,
    /// How guests run.
    #[arg(long, value_enum, default_value_t = AccelArg::Auto)]
    accel: AccelArg,
    /// Boots of each kernel [default: 3 on the real clock, 1 on the virtual one].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    boots: Option<u32>,
    /// Repetitions within a boot.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// Seed of the order and of the guests.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Differences within this many percent count as none.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    margin: f64,
    /// Words for the kernel's command line.
    #[arg(long, value_name = "WORDS")]
    append: Option<String>,
    /// Seconds until the guest's agent must have spoken.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    boot_deadline: Option<u64>,
    /// Seconds until a trial must be over.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    deadline: Option<u64>,
    /// Run everything twice, and fail unless both runs are the same to the byte; --clock virtual only.
    #[arg(long)]
    prove: bool,
    /// `ab` only: compare at several values of a cost or of a parameter, and say where verdicts flip (costs.llc=0us..200us/5).
    #[arg(long, value_name = "KEY=FROM..TO[/N]", value_parser = Sweep::parse)]
    sweep: Option<Sweep>,
    /// Measure even when the guest is not the declared machine; every record says so.
    #[arg(long)]
    allow_mismatch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AccelArg {
    /// KVM when a guest boots on it, emulation otherwise.
    Auto,
    /// KVM or nothing.
    Kvm,
    /// Emulation.
    Tcg,
}

pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.to_string())),
        _ => Err(format!("`{text}` is not KEY=VALUE")),
    }
}

fn cost(text: &str) -> Result<(Cost, u64), String> {
    let (name, value) = key_value(text)?;
    let cost = Cost::parse(&name)?;
    Ok((cost, cost.value(&value)?))
}

fn percent(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.trim_end_matches('%').parse().ok();
    value.filter(|v| (0.0..1000.0).contains(v)).ok_or_else(|| format!("`{text}` is not a percentage"))
}

/// `topolab run`: the trials of one kernel.
pub(super) fn run(args: &RunArgs, context: &Context) -> Outcome<u8> {
    go("run", args, false, context)
}

/// `topolab ab`: base against patched.
pub(super) fn ab(args: &RunArgs, context: &Context) -> Outcome<u8> {
    if args.with.patches.is_empty() {
        return Err(Fault::input("ab compares a kernel with and without a patch: --patch P is missing"));
    }
    go("ab", args, true, context)
}

fn go(command: &str, args: &RunArgs, against_base: bool, context: &Context) -> Outcome<u8> {
    let wish = RunWish {
        command: reproducer(),
        topologies: args.topologies.clone(),
        kernel: args.kernel.clone(),
        series: args.with.series(context)?,
        against_base,
        fragments: args.with.fragments.clone(),
        toolchain: args.with.toolchain(),
        arch: args.arch,
        bundles: args.bundles.clone(),
        sources: super::image::sources(&args.sources),
        declared_costs: args.costs,
        costs: args.cost.clone(),
        mechanism: args.mechanism,
        params: args.params.clone(),
        clock: args.clock,
        accel: match args.accel {
            AccelArg::Auto => AccelWish::Auto,
            AccelArg::Kvm => AccelWish::Kvm,
            AccelArg::Tcg => AccelWish::Tcg,
        },
        boots: args.boots,
        reps: args.reps,
        seed: args.seed,
        margin: args.margin / 100.0,
        append: args.append.iter().flat_map(|words| words.split_whitespace()).map(str::to_string).collect(),
        deadlines: (args.boot_deadline, args.deadline),
        allow_mismatch: args.allow_mismatch,
        results: context.results.clone(),
    };
    if let Some(sweep) = &args.sweep {
        return match (against_base, args.prove) {
            (true, false) => go_through(sweep, &wish, context),
            (false, _) => Err(Fault::input("--sweep compares: it is for ab")),
            (_, true) => Err(Fault::input("--sweep and --prove are two questions: ask one at a time")),
        };
    }
    if args.prove && args.clock != Clock::Virtual {
        return Err(Fault::input("--prove compares two runs, which only --clock virtual makes the same"));
    }
    let cache = context.cache()?;
    let first = bench::run(&wish, context.lab(&cache))?;
    if args.prove {
        context.progress.say("once more, to compare");
        let second = bench::run(&wish, context.lab(&cache))?;
        prove::same(&first, &second)?;
        context.progress.say("both runs are the same: records, and consoles up to the end of the measurement");
    }
    let Concluded { plan, summary, json, records, fault } = conclude(command, first)?;
    match context.format {
        Format::Json => context.print_json(&json)?,
        Format::Text => print!("{}", report::text(&plan, &summary)),
        Format::Markdown => print!("{}", report::markdown(&plan, &summary)),
    }
    context.progress.say(format!("records: {}", records.display()));
    match fault {
        Some(fault) => Err(fault),
        None => Ok(summary.exit_code()),
    }
}

/// A run with its report made and saved.
struct Concluded {
    plan: Plan,
    summary: Summary,
    json: serde_json::Value,
    /// Where the records are.
    records: PathBuf,
    /// The first fault, if a trial had one.
    fault: Option<Fault>,
}

fn conclude(command: &str, run: Finished) -> Outcome<Concluded> {
    let Finished { plan, trials, store } = run;
    let summary = report::summarise(&plan, &trials);
    let json = report::json(command, &plan, &trials, &summary);
    store.finish(&json)?;
    let fault = trials.into_iter().find_map(|trial| trial.fault).map(Fault::from);
    Ok(Concluded { plan, summary, json, records: store.folder().to_path_buf(), fault })
}

/// A comparison at each point of a sweep.
fn go_through(sweep: &Sweep, wish: &RunWish, context: &Context) -> Outcome<u8> {
    let cache = context.cache()?;
    let (mut points, mut reports) = (Vec::new(), Vec::new());
    for value in &sweep.values {
        let mut here = wish.clone();
        match &sweep.swept {
            Swept::Cost(cost) => here.costs.push((*cost, *value)),
            Swept::Param(name) => here.params.push((name.clone(), value.to_string())),
        }
        context.progress.say(format!("{} = {}", sweep.name, sweep.text(*value)));
        let Concluded { summary, json, fault, .. } = conclude("ab", bench::run(&here, context.lab(&cache))?)?;
        if let Some(fault) = fault {
            return Err(fault);
        }
        points.push(report::Point { value: sweep.text(*value), summary });
        reports.push(json);
    }
    match context.format {
        Format::Json => context.print_json(&report::sweep_json(&sweep.name, &points, reports))?,
        Format::Text => print!("{}", report::sweep_text(&sweep.name, &points)),
        Format::Markdown => println!("```\n{}```", report::sweep_text(&sweep.name, &points)),
    }
    // The worst point decides, as the worst section does.
    let sections = points.into_iter().flat_map(|point| point.summary.sections).collect();
    Ok(Summary { sections }.exit_code())
}

/// The command line as a person would type it again.
fn reproducer() -> String {
    let words = std::env::args().skip(1).map(|word| quote(&word));
    std::iter::once("topolab".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}
