//! `topolab bundle …`

use super::{Context, Format};
use crate::fault::Outcome;
use crate::image::{Better, Bundle, Runs, bundle_names, load_bundle};
use clap::Subcommand;

/// Bundle commands.
#[derive(Debug, Subcommand)]
pub(super) enum BundleCommand {
    /// Lists the built-in bundles.
    List,
    /// Describes a bundle.
    Show {
        /// NAME or a folder with bundle.toml.
        bundle: String,
    },
}

pub(super) fn run(command: &BundleCommand, context: &Context) -> Outcome<u8> {
    match command {
        BundleCommand::List => {
            let all = bundle_names().iter().map(|name| load_bundle(name)).collect::<Outcome<Vec<_>>>()?;
            match context.format {
                Format::Json => context.print_json(&all)?,
                Format::Text | Format::Markdown => all.iter().for_each(|b| println!("{:14} {}", b.name, b.title)),
            }
        }
        BundleCommand::Show { bundle } => {
            let bundle = load_bundle(bundle)?;
            match context.format {
                Format::Json => context.print_json(&bundle)?,
                Format::Text | Format::Markdown => print(&bundle),
            }
        }
    }
    Ok(0)
}

fn print(bundle: &Bundle) {
    println!("{}: {}", bundle.name, bundle.title);
    match &bundle.runs {
        Runs::Model(model) => println!("  runs    the model {model}"),
        Runs::Program { image, argv, .. } => println!("  runs    {} from the image {image}", argv.join(" ")),
    }
    for param in &bundle.params {
        println!("  -p {}={}  {} ({} to {})", param.name, param.default, param.about, param.min, param.max);
    }
    for metric in &bundle.metrics {
        let better = match metric.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
            Better::Neither => "beside the verdict",
        };
        println!("  metric  {} [{}], {better}", metric.name, metric.unit);
    }
}
