//! The command line: flags, help and dispatch. Each command is a thin file that calls the library and prints.

mod bundle;
mod cache;
mod capture;
mod doctor;
mod image;
mod kernel;
mod kernel_args;
mod patch;
mod run;
mod topology;

use crate::bench::Lab;
use crate::cancel::Cancel;
use crate::fault::{Fault, FaultKind, Outcome};
use crate::paths::CacheDir;
use crate::progress::Progress;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Reproduce a machine's topology in QEMU guests, and judge scheduler patches on it.
#[derive(Debug, Parser)]
#[command(name = "topolab", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// How to print the result.
    #[arg(long, global = true, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// No progress on stderr.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Where sources, kernels and images are kept [default: $XDG_CACHE_HOME/topolab or ~/.cache/topolab].
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Where records go.
    #[arg(long, global = true, value_name = "DIR", default_value = "topolab-results")]
    pub(crate) results: PathBuf,
}

/// Forms of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For a mail or a page; `ab` and `run` only.
    Markdown,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks accelerators by booting, QEMU, compilers, disk and memory, and says how to mend each lack.
    Doctor(doctor::DoctorArgs),
    /// Declared machines: list, show, check, print QEMU's command line, verify in a guest.
    #[command(subcommand)]
    Topology(topology::TopologyCommand),
    /// Kernels: fetch, patch, configure and build, cached by content.
    #[command(subcommand)]
    Kernel(kernel::KernelCommand),
    /// Patches as they arrive: mails, threads, folders, quoted replies.
    #[command(subcommand)]
    Patch(patch::PatchCommand),
    /// What is kept: list it, or make it smaller.
    #[command(subcommand)]
    Cache(cache::CacheCommand),
    /// Images: list them, or make one.
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// Bundles: list and show.
    #[command(subcommand)]
    Bundle(bundle::BundleCommand),
    /// Runs the trials of one kernel.
    Run(run::RunArgs),
    /// Runs base against patched, interleaved, and prints a table with verdicts.
    Ab(run::RunArgs),
}

/// What every command gets.
pub(crate) struct Context {
    pub(crate) format: Format,
    pub(crate) progress: Progress,
    pub(crate) cancel: Cancel,
    pub(crate) results: PathBuf,
    cache: Option<PathBuf>,
}

impl Context {
    /// The cache, located when it is first needed: `topology list` needs none.
    pub(crate) fn cache(&self) -> Outcome<CacheDir> {
        CacheDir::locate(self.cache.clone())
    }

    /// What the library's long steps need.
    pub(crate) fn lab<'a>(&'a self, cache: &'a CacheDir) -> Lab<'a> {
        Lab { cache, progress: self.progress, cancel: &self.cancel }
    }

    /// Prints a value as pretty JSON.
    pub(crate) fn print_json<T: serde::Serialize>(&self, value: &T) -> Outcome<()> {
        use crate::fault::Trying;
        println!("{}", serde_json::to_string_pretty(value).trying("JSON")?);
        Ok(())
    }
}

/// Runs the command line and returns the exit code.
pub fn run(cli: Cli) -> Outcome<u8> {
    let context = Context {
        format: cli.common.format,
        progress: Progress::choose(cli.common.quiet),
        cancel: Cancel::on_signals(),
        results: cli.common.results,
        cache: cli.common.cache,
    };
    let outcome = dispatch(cli.command, &context);
    // A child that the terminal's Ctrl-C ended looks like a failure of its own.
    match (outcome, context.cancel.requested()) {
        (Err(fault), true) => Err(Fault { kind: FaultKind::Interrupted, ..fault }),
        (outcome, _) => outcome,
    }
}

fn dispatch(command: Command, context: &Context) -> Outcome<u8> {
    match command {
        Command::Doctor(args) => doctor::run(&args, context),
        Command::Topology(command) => topology::run(&command, context),
        Command::Kernel(command) => kernel::run(&command, context),
        Command::Patch(command) => patch::run(&command, context),
        Command::Cache(command) => cache::run(&command, context),
        Command::Image(command) => image::run(&command, context),
        Command::Bundle(command) => bundle::run(&command, context),
        Command::Run(args) => run::run(&args, context),
        Command::Ab(args) => run::ab(&args, context),
    }
}

/// `real` or `virtual`.
pub(crate) fn parse_clock(text: &str) -> Result<topolab_wire::Clock, String> {
    match text {
        "real" => Ok(topolab_wire::Clock::Real),
        "virtual" => Ok(topolab_wire::Clock::Virtual),
        other => Err(format!("`{other}` is neither real nor virtual")),
    }
}

/// An architecture by the kernel's name, for clap.
pub(crate) fn parse_arch(text: &str) -> Result<crate::topology::Arch, String> {
    crate::topology::Arch::named(text).ok_or_else(|| format!("`{text}` is none of x86_64, aarch64, ppc64le"))
}
