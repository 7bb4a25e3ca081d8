//! `topolab topology …`

use super::{Context, Format};
use crate::fault::Outcome;
use crate::qemu::{self, Accel, Machine};
use crate::topology::{self, Arch};
use clap::{Args, Subcommand};
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
    /// Prints QEMU's command line for a machine, ready to paste.
    Argv(ArgvArgs),
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// NAME, FILE, NAME@1/N.
    topology: String,
}

#[derive(Debug, Args)]
pub(super) struct ArgvArgs {
    /// NAME, FILE, NAME@1/N.
    topology: String,
    /// real or virtual.
    #[arg(long, default_value = "real", value_parser = super::parse_clock)]
    clock: Clock,
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
            topology::load(&one.topology)?;
        }
        TopologyCommand::Argv(args) => println!("{}", argv(args)?),
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

fn argv(args: &ArgvArgs) -> Outcome<String> {
    let machine = Machine {
        topology: topology::load(&args.topology)?,
        arch: Arch::X86_64,
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
    Ok(qemu::paste(qemu::binary(machine.arch), &qemu::argv(&machine)))
}
