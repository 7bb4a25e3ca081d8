//! `topolab bundle …`

use super::{Context, Format};
use crate::bundle::{Better, Bundle, Kind, Over, Program, Reading, Runs, Starts, StepDecl, bundle_names, load_bundle};
use crate::fault::Outcome;
use crate::qemu::quote;
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
                Format::Text | Format::Markdown => all.iter().for_each(|b| println!("{:18} {}", b.name, b.title)),
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
    let archs: Vec<String> = bundle.architectures.iter().map(ToString::to_string).collect();
    println!("  on        {}", archs.join(", "));
    match &bundle.runs {
        Runs::Model(model) => match &model.profile {
            None => println!("  runs      the model {}", model.name),
            Some(profile) => println!("  runs      the model {} on the profile {profile}", model.name),
        },
        Runs::Program(program) => print_program(program),
    }
    if bundle.memory_mib > 0 {
        println!("  memory    {} MiB beside the kernel's", bundle.memory_mib);
    }
    if !bundle.kernel.is_empty() {
        println!("  kernel    {}", bundle.kernel.join(" "));
    }
    for param in &bundle.params {
        let range = match &param.kind {
            Kind::Number { min, max } => format!("{min} to {max}"),
            Kind::Choice(words) => words.iter().map(|choice| choice.word.as_str()).collect::<Vec<_>>().join(" | "),
        };
        println!("  -p {}={}  {} ({range})", param.name, param.default, param.about);
    }
    for (name, sum) in &bundle.derived {
        println!("  derives   {name} = {sum}");
    }
    for metric in &bundle.metrics {
        let better = match metric.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
            Better::Neither => "beside the verdict",
        };
        let read = metric.reading.as_ref().map(|reading| format!(", {} in {}", how(reading), metric.from));
        println!("  metric    {} [{}], {better}{}", metric.name, metric.unit, read.unwrap_or_default());
    }
    for promise in &bundle.promises {
        let rule = match (&promise.says, &promise.never) {
            (Some(says), None) => format!("says {says}"),
            (None, Some(never)) => format!("never says {never}"),
            (says, never) => {
                format!("says {}, never {}", says.as_deref().unwrap_or_default(), never.as_deref().unwrap_or_default())
            }
        };
        println!("  invariant {}: {} {rule}", promise.name, promise.from);
    }
}

fn print_program(program: &Program) {
    let step = |what: &str, step: &StepDecl| {
        let words: Vec<String> = step.argv.iter().map(|word| quote(word)).collect();
        println!("  {what:9} {}  (on {}, within {} s)", words.join(" "), step.cpus.0, step.deadline_s);
        step.env.iter().for_each(|(name, value)| println!("            with {name}={value}"));
    };
    println!("  image     {}", program.image.as_deref().unwrap_or("none: the lab's own programs"));
    for supply in &program.supplies {
        println!("  --source {}=PATH  {}", supply.name, supply.about);
    }
    program.prepare.iter().for_each(|s| step("prepares", s));
    for service in &program.services {
        let ready = match &service.ready {
            Starts::Tcp(port) => format!("when TCP port {port} answers"),
            Starts::File(path) => format!("when {path} is there"),
            Starts::Says(text) => format!("when it says `{text}`"),
        };
        step(&format!("serves {}", service.name), &service.step);
        println!("            ready {ready}");
    }
    step("runs", &program.measured);
    if program.warmup > 0 {
        println!("  warm-up   {} run(s) that do not count", program.warmup);
    }
    for (what, place) in [("isolates", &program.isolate), ("network", &program.network)] {
        if let Some(place) = place {
            println!("  {what:9} {}", place.0);
        }
    }
}

fn how(reading: &Reading) -> String {
    match reading {
        Reading::Regex(regex, Over::First) => format!("behind {regex}"),
        Reading::Regex(regex, over @ (Over::Last | Over::Sum | Over::Mean | Over::Min | Over::Max)) => {
            format!("behind every {regex} ({})", format!("{over:?}").to_lowercase())
        }
        Reading::Json(pointer) => format!("at {pointer}"),
        Reading::Table { row, column } => format!("in row {row}, column {column}"),
        Reading::Hdr { percentile, .. } => format!("percentile {percentile} of the histogram"),
    }
}
