//! `topolab kernel …`

use super::kernel_args::KernelArgs;
use super::{Context, Format};
use crate::fault::Outcome;
use crate::kernel::{self, KernelSpec, Needs, Wish};
use crate::topology::{self, Arch};
use clap::{Args, Subcommand};

/// Kernel commands.
#[derive(Debug, Subcommand)]
pub(super) enum KernelCommand {
    /// Builds a kernel, or finds it built, and prints the image's path and key.
    Build(BuildArgs),
}

#[derive(Debug, Args)]
pub(super) struct BuildArgs {
    #[arg(help = kernel::FORMS)]
    kernel: String,
    #[command(flatten)]
    with: KernelArgs,
    /// Architecture.
    #[arg(short, long, default_value = "x86_64", value_parser = super::parse_arch)]
    arch: Arch,
    /// With what these machines ask of a kernel; may be given several times.
    #[arg(short, long = "topology", value_name = "T")]
    topologies: Vec<String>,
}

pub(super) fn run(command: &KernelCommand, context: &Context) -> Outcome<u8> {
    let KernelCommand::Build(args) = command;
    let topologies = args.topologies.iter().map(|t| topology::load(t)).collect::<Outcome<Vec<_>>>()?;
    let wish = Wish {
        spec: KernelSpec::parse(&args.kernel)?,
        series: args.with.series(context)?,
        arch: args.arch,
        needs: Needs::of(&topologies),
        bundles: Vec::new(),
        fragments: args.with.fragments.clone(),
        toolchain: args.with.toolchain(),
    };
    let kernel = kernel::provide(&wish, &context.cache()?, context.progress, &context.cancel)?;
    match context.format {
        Format::Json => context.print_json(&serde_json::json!({
            "schema": "topolab/1", "command": "kernel build",
            "name": kernel.name, "key": kernel.key, "release": kernel.release, "image": kernel.image,
            "config": kernel.config, "signature": kernel.signature, "applied": kernel.applied,
        }))?,
        Format::Text | Format::Markdown => println!("{}\n{}", kernel.image.display(), kernel.key),
    }
    Ok(0)
}
