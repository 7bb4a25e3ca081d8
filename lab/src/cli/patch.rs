//! `topolab patch check`

use super::kernel_args::IntakeArgs;
use super::{Context, Format};
use crate::fault::{Fault, FaultKind, Outcome};
use crate::kernel::{self, Applied, KernelSpec};
use crate::patch::{self, Series, Source};
use clap::{Args, Subcommand};
use std::fmt::Write;

/// Patch commands.
#[derive(Debug, Subcommand)]
pub(super) enum PatchCommand {
    /// Reads patches as they arrive, and says what series they are, whether it is whole, and whether it applies.
    Check(CheckArgs),
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// A mail, an mbox or maildir with a thread, a folder, a quilt series, or a message-id (with b4).
    patches: String,
    /// A kernel's source to try it on; nothing is built.
    #[arg(long, value_name = "K")]
    onto: Option<String>,
    #[command(flatten)]
    intake: IntakeArgs,
}

pub(super) fn run(command: &PatchCommand, context: &Context) -> Outcome<u8> {
    let PatchCommand::Check(args) = command;
    let spec = args.onto.as_deref().map(KernelSpec::parse).transpose()?;
    let series = patch::read(&Source::parse(&args.patches), args.intake.intake())?;
    let tried = match (&spec, series.problems.is_empty()) {
        (Some(spec), true) => Some(kernel::try_on(spec, &series, &context.cache()?, context.progress, &context.cancel)),
        (Some(_) | None, _) => None,
    };
    // That it does not apply is an answer; that it could not be tried is none.
    let tried = match tried {
        Some(Err(fault)) if fault.kind != FaultKind::Apply => return Err(fault),
        other => other,
    };
    match context.format {
        Format::Json => context.print_json(&json(&series, tried.as_ref()))?,
        Format::Text | Format::Markdown => print!("{}", text(&series, tried.as_ref())),
    }
    Ok(match (series.problems.is_empty(), &tried) {
        (false, _) => FaultKind::Input.exit_code(),
        (true, Some(Err(fault))) => fault.kind.exit_code(),
        (true, Some(Ok(_)) | None) => 0,
    })
}

type Tried = Outcome<(String, Vec<Applied>)>;

fn text(series: &Series, tried: Option<&Tried>) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let mut line = |name: &str, value: &str| {
        // What a mail says is shown, not obeyed.
        let plain: String = value.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect();
        let mut lines = plain.lines();
        let _ = writeln!(out, "{name:<12} {}", lines.next().unwrap_or_default());
        lines.for_each(|more| {
            let _ = writeln!(out, "{:<12} {more}", "");
        });
    };
    let others: Vec<String> =
        series.versions.iter().filter(|v| **v != series.version).map(|v| format!("v{v}")).collect();
    let also = if others.is_empty() { String::new() } else { format!(" (also there: {})", others.join(", ")) };
    line("series", &series.title);
    line("version", &format!("v{}{also}", series.version));
    let cover = if series.cover { ", with a cover letter" } else { "" };
    line("patches", &format!("{} of {}{cover}", series.patches.len(), series.total.max(series.patches.len() as u32)));
    if let Some(commit) = &series.base_commit {
        line("base-commit", commit);
    }
    if let Some(id) = &series.change_id {
        line("change-id", id);
    }
    for (n, patch) in series.patches.iter().enumerate() {
        line(&format!("{:>4}", n + 1), &patch.title);
        for file in patch.files() {
            line("", &file);
        }
        for trailer in &patch.trailers {
            line("", &format!("+ {trailer}"));
        }
    }
    for note in &series.notes {
        line("note", note);
    }
    for problem in &series.problems {
        line("problem", &problem.message);
        for (name, words) in [("", &problem.detail), ("help", &problem.help)] {
            if let Some(words) = words {
                line(name, words);
            }
        }
    }
    match tried {
        None => {}
        Some(Ok((name, applied))) => {
            let notes = Applied::said(applied);
            let how = if notes.is_empty() { "exactly" } else { "but not exactly" };
            line("applies", &format!("to {name}, {how}"));
            notes.iter().for_each(|note| line("", note));
        }
        Some(Err(fault)) => line("applies", &format!("no: {fault}")),
    }
    out
}

fn json(series: &Series, tried: Option<&Tried>) -> serde_json::Value {
    let patches: Vec<_> = series
        .patches
        .iter()
        .map(|patch| {
            serde_json::json!({
                "title": patch.title, "read_from": patch.label, "files": patch.files(), "trailers": patch.trailers,
            })
        })
        .collect();
    let problems: Vec<_> = series
        .problems
        .iter()
        .map(|p| serde_json::json!({"message": p.message, "detail": p.detail, "help": p.help}))
        .collect();
    let applies = tried.map(|tried| match tried {
        Ok((name, applied)) => serde_json::json!({"onto": name, "applies": true, "patches": applied}),
        Err(Fault { message, detail, .. }) => {
            serde_json::json!({"applies": false, "message": message, "detail": detail})
        }
    });
    serde_json::json!({
        "schema": "topolab/1", "command": "patch check",
        "title": series.title, "version": series.version, "versions": series.versions, "total": series.total,
        "cover": series.cover, "missing": series.missing, "base_commit": series.base_commit,
        "change_id": series.change_id, "patches": patches, "notes": series.notes, "problems": problems,
        "applied": applies,
    })
}
