//! `topolab kernel …`

use super::{Context, Format};
use crate::fault::Outcome;
use crate::kernel::{self, KernelSpec, Needs, Series, Wish};
use crate::topology::{self, Arch};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Kernel commands.
#[derive(Debug, Subcommand)]
pub(super) enum KernelCommand {
    /// Builds a kernel, or finds it built, and prints the image's path and key.
    Build(BuildArgs),
}

#[derive(Debug, Args)]
pub(super) struct BuildArgs {
    /// debian:7.2 (the newest 7.2.x), debian:7.2.13 (exactly) or image:FILE.
    kernel: String,
    /// A series to put on it: a folder of *.patch or one file; may be given several times.
    #[arg(long = "patch", value_name = "P")]
    patches: Vec<PathBuf>,
    /// A configuration fragment; may be given several times.
    #[arg(long = "config", value_name = "FILE")]
    fragments: Vec<PathBuf>,
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
        series: args.patches.iter().map(|path| Series::read(path)).collect::<Outcome<_>>()?,
        arch: args.arch,
        needs: Needs::of(&topologies),
        bundles: Vec::new(),
        fragments: args.fragments.clone(),
    };
    let kernel = kernel::provide(&wish, &context.cache()?, context.progress, &context.cancel)?;
    match context.format {
        Format::Json => context.print_json(&serde_json::json!({
            "schema": "topolab/1", "command": "kernel build",
            "name": kernel.name, "key": kernel.key, "release": kernel.release, "image": kernel.image,
        }))?,
        Format::Text | Format::Markdown => println!("{}\n{}", kernel.image.display(), kernel.key),
    }
    Ok(0)
}
