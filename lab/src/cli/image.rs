//! `topolab image …`

use super::{Context, Format};
use crate::fault::Outcome;
use crate::image::{Image, ImageWish, image_names, load_recipe, provide_image};
use crate::topology::Arch;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Image commands.
#[derive(Debug, Subcommand)]
pub(super) enum ImageCommand {
    /// Lists the built-in recipes.
    List,
    /// Makes an image, or finds it made, and prints its path and key.
    Build(BuildArgs),
}

/// Flags of `image build`.
#[derive(Debug, Args)]
pub(super) struct BuildArgs {
    /// NAME of a built-in recipe, or a file (with a slash).
    image: String,
    /// The guests' architecture.
    #[arg(short = 'a', long, value_name = "ARCH", default_value = "x86_64", value_parser = super::parse_arch)]
    arch: Arch,
    /// Make it even when it is there, and fail unless both are the same to the byte.
    #[arg(long)]
    again: bool,
}

pub(super) fn run(command: &ImageCommand, context: &Context) -> Outcome<u8> {
    match command {
        ImageCommand::List => {
            let all = image_names().iter().map(|name| load_recipe(name)).collect::<Outcome<Vec<_>>>()?;
            match context.format {
                Format::Json => context.print_json(&all.iter().map(|r| (&r.name, &r.title)).collect::<Vec<_>>())?,
                Format::Text | Format::Markdown => all.iter().for_each(|r| println!("{:14} {}", r.name, r.title)),
            }
        }
        ImageCommand::Build(args) => {
            let cache = context.cache()?;
            let recipe = load_recipe(&args.image)?;
            let wish = ImageWish { recipe: &recipe, arch: args.arch, supplied: &[], again: args.again };
            let image = provide_image(wish, &cache, context.progress, &context.cancel)?;
            match context.format {
                Format::Json => context.print_json(&image)?,
                Format::Text | Format::Markdown => print(&image),
            }
        }
    }
    Ok(0)
}

fn print(image: &Image) {
    println!("{}", image.tree.display());
    println!("key     {}", image.key);
    println!("digest  {}", image.digest);
    println!("size    {} MiB, of {} packages", image.bytes >> 20, image.packages.len());
}

/// `--source NAME=PATH` as paths.
pub(super) fn sources(given: &[(String, String)]) -> Vec<(String, PathBuf)> {
    given.iter().map(|(name, path)| (name.clone(), PathBuf::from(path))).collect()
}
