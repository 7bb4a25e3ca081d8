//! `topolab topology …`

use super::{Context, Format};
use crate::bench;
use crate::fault::{Fault, Outcome};
use crate::kernel::{self, KernelSpec, Needs, Wish};
use crate::qemu::{self, Accel, Machine};
use crate::topology::{self, Arch, Finding, Topology};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use topolab_wire::Clock;

/// Topology commands. T is a built-in name, a file, or either with a scale: cwf-snc3@1/12.
#[derive(Debug, Subcommand)]
pub(super) enum TopologyCommand {
    /// Lists the built-in machines.
    List,
    /// Describes a machine.
    Show(One),
    /// Checks a declaration and says nothing when it is right.
    Check(One),
    /// Draws a machine as nested boxes, in SVG.
    Draw(DrawArgs),
    /// Writes a declaration of this machine, or of one whose /sys was saved.
    Capture(super::capture::CaptureArgs),
    /// Boots a machine and prints declared against observed; exit 1 when they differ or the kernel complains.
    Verify(VerifyArgs),
    /// Prints QEMU's command line for a machine, ready to paste.
    Argv(ArgvArgs),
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// NAME, FILE, NAME@1/N.
    topology: String,
}

#[derive(Debug, Args)]
pub(super) struct DrawArgs {
    /// NAME, FILE, NAME@1/N.
    topology: String,
    /// Where the picture goes [default: standard output].
    #[arg(short, value_name = "F.svg")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// NAME, FILE, NAME@1/N.
    topology: String,
    /// Architecture, where the machine names several [default: x86_64, or its only one].
    #[arg(short, long, value_parser = super::parse_arch)]
    arch: Option<Arch>,
    /// debian:7.2, debian:7.2.13, debian-image:7.2 or image:FILE [default: debian:7.2, for other architectures than x86_64
    /// debian-image:7.2].
    #[arg(short, long, value_name = "K")]
    kernel: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct ArgvArgs {
    /// NAME, FILE, NAME@1/N.
    topology: String,
    /// Architecture, where the machine names several [default: x86_64, or its only one].
    #[arg(short, long, value_parser = super::parse_arch)]
    arch: Option<Arch>,
    /// real or virtual.
    #[arg(long, default_value = "real", value_parser = super::parse_clock)]
    clock: Clock,
    /// Also write the edited device tree that an Arm machine needs to this file.
    #[arg(long, value_name = "FILE")]
    dtb: Option<PathBuf>,
}

/// The architecture to boot: the one asked for, which the machine must name.
fn arch_of(topology: &Topology, wanted: Option<Arch>) -> Outcome<Arch> {
    let arch = wanted.or_else(|| topology.cpu.contains_key(&Arch::X86_64).then_some(Arch::X86_64));
    let arch = arch.or_else(|| topology.cpu.keys().next().copied()).unwrap_or(Arch::X86_64);
    match topology.cpu.contains_key(&arch) {
        true => Ok(arch),
        false => {
            let named: Vec<String> = topology.cpu.keys().map(Arch::to_string).collect();
            Err(Fault::input(format!("{} names no CPU for {arch}", topology.name))
                .help(format!("it has: {}", named.join(" "))))
        }
    }
}

pub(super) fn run(command: &TopologyCommand, context: &Context) -> Outcome<u8> {
    match command {
        TopologyCommand::List => list(context)?,
        TopologyCommand::Show(one) => {
            let topology = topology::load(&one.topology)?;
            match context.format {
                Format::Json => context.print_json(&topology)?,
                Format::Text | Format::Markdown => print!("{}", topology::show(&topology)),
            }
        }
        TopologyCommand::Check(one) => {
            let topology = topology::load(&one.topology)?;
            if context.format == Format::Json {
                context.print_json(&serde_json::json!({ "topology": topology.name, "right": true }))?;
            }
        }
        TopologyCommand::Draw(args) => {
            let svg = topology::draw(&topology::load(&args.topology)?);
            match &args.output {
                Some(path) => crate::digest::write_whole(path, svg.as_bytes())?,
                None => print!("{svg}"),
            }
        }
        TopologyCommand::Capture(args) => return super::capture::run(args, context),
        TopologyCommand::Verify(args) => return verify(args, context),
        TopologyCommand::Argv(args) => argv(args, context)?,
    }
    Ok(0)
}

fn list(context: &Context) -> Outcome<()> {
    let all = topology::names().into_iter().map(|name| topology::load(&name)).collect::<Outcome<Vec<_>>>()?;
    match context.format {
        Format::Json => context.print_json(&all)?,
        Format::Text | Format::Markdown => {
            for topology in &all {
                println!("{:12} {}", topology.name, topology.title);
            }
        }
    }
    Ok(())
}

fn verify(args: &VerifyArgs, context: &Context) -> Outcome<u8> {
    let topology = topology::load(&args.topology)?;
    let cache = context.cache()?;
    let arch = arch_of(&topology, args.arch)?;
    let default = match arch {
        Arch::X86_64 => "debian:7.2",
        Arch::Aarch64 | Arch::Ppc64le => "debian-image:7.2",
    };
    let wish = Wish {
        spec: KernelSpec::parse(args.kernel.as_deref().unwrap_or(default))?,
        series: Vec::new(),
        arch,
        needs: Needs::of([&topology]),
        bundles: Vec::new(),
        fragments: Vec::new(),
        toolchain: kernel::Toolchain::Gcc,
    };
    let kernel = kernel::provide(&wish, &cache, context.progress, &context.cancel)?;
    let bench::Look { observation, complaints } = bench::observe(&topology, arch, &kernel, context.lab(&cache))?;
    let comparison = topology::compare(&topology, arch, &observation);
    let good = comparison.matches() && complaints.is_empty();
    match context.format {
        Format::Json => context.print_json(&serde_json::json!({
            "schema": "topolab/1", "command": "topology verify", "topology": topology.name, "arch": arch, "kernel": kernel.name,
            "matches": comparison.matches(), "rows": comparison.rows, "complaints": complaints, "observation": observation,
        }))?,
        Format::Text | Format::Markdown => {
            println!("{} on {arch} with {}: declared / observed", topology.name, kernel.name);
            for row in &comparison.rows {
                let (mark, why) = match &row.finding {
                    Finding::Same => ("=", String::new()),
                    Finding::Differs => ("≠", String::new()),
                    Finding::NotExpressible(why) => ("~", format!("  (not expressible: {why})")),
                };
                match row.declared == row.observed {
                    true => println!("{mark} {:18} {}", row.what, row.declared),
                    false => println!("{mark} {:18} {} / {}{why}", row.what, row.declared, row.observed),
                }
            }
            for (title, count) in &complaints {
                println!("! {:18} {title} (×{count})", "kernel complains");
            }
        }
    }
    Ok(u8::from(!good))
}

fn argv(args: &ArgvArgs, context: &Context) -> Outcome<()> {
    let topology = topology::load(&args.topology)?;
    let arch = arch_of(&topology, args.arch)?;
    let dtb = args.dtb.clone().unwrap_or_else(|| "machine.dtb".into());
    let machine = Machine {
        topology,
        arch,
        device_tree: (arch == Arch::Aarch64).then(|| dtb.clone()),
        accel: Accel::Tcg,
        clock: args.clock,
        seed: 1,
        kernel: "bzImage".into(),
        initrd: "initrd.cpio".into(),
        append: Vec::new(),
        console: "console.log".into(),
        qmp: "qmp.sock".into(),
        shares: Vec::new(),
    };
    match (arch, &args.dtb) {
        (Arch::Aarch64, Some(path)) => {
            let bare = Machine { device_tree: None, ..machine.clone() };
            crate::digest::write_whole(path, &qemu::device_tree(&qemu::find(arch)?, &bare)?)?;
        }
        (Arch::Aarch64, None) => {
            context.progress.say("the command needs machine.dtb, which `--dtb machine.dtb` writes".to_string())
        }
        (Arch::X86_64 | Arch::Ppc64le, _) => {}
    }
    let (program, words) = (qemu::binary(machine.arch), qemu::argv(&machine));
    match context.format {
        Format::Json => context.print_json(&serde_json::json!({ "program": program, "argv": words }))?,
        Format::Text | Format::Markdown => println!("{}", qemu::paste(program, &words)),
    }
    Ok(())
}
