//! `topolab doctor`

use super::{Context, Format};
use crate::doctor::{self, State};
use crate::fault::Outcome;
use crate::topology::Arch;
use clap::Args;

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Install what is missing, as root or through sudo; every command is said first.
    #[arg(long)]
    fix: bool,
    /// With --fix: also the QEMU for guests of this architecture; may be given several times [always: x86_64].
    #[arg(short, long = "arch", value_parser = super::parse_arch)]
    arches: Vec<Arch>,
}

pub(super) fn run(args: &DoctorArgs, context: &Context) -> Outcome<u8> {
    if args.fix {
        doctor::fix(&[&[Arch::X86_64], args.arches.as_slice()].concat(), &context.cancel)?;
    }
    let checks = doctor::examine(&context.cache()?)?;
    match context.format {
        Format::Json => context.print_json(&serde_json::json!({
            "schema": "topolab/1", "command": "doctor", "fit": doctor::fit(&checks), "checks": checks,
        }))?,
        Format::Text | Format::Markdown => {
            for check in &checks {
                let mark = match check.state {
                    State::Good => "ok     ",
                    State::Limited => "limited",
                    State::Bad => "BAD    ",
                };
                println!("{mark} {:15} {}", check.what, check.found);
                if let Some(mend) = &check.mend {
                    println!("        {:15} mend: {mend}", "");
                }
            }
        }
    }
    Ok(if doctor::fit(&checks) { 0 } else { 5 })
}
