//! `topolab topology capture`

use super::{Context, Format};
use crate::fault::{Fault, Outcome, Trying};
use crate::tar;
use crate::topology;
use clap::Args;
use std::path::{Path, PathBuf};

/// The script that saves a tree on a machine where nothing can be installed.
const SCRIPT: &str = include_str!("../../capture.sh");

/// Flags of `capture`.
#[derive(Debug, Args)]
pub(super) struct CaptureArgs {
    /// A saved tree: a folder with sys/ and proc/ in it, or a tarball of one [default: this machine].
    #[arg(long, value_name = "DIR|FILE")]
    from: Option<PathBuf>,
    /// Where the declaration goes [default: standard output].
    #[arg(short, value_name = "F")]
    output: Option<PathBuf>,
    /// Prints the script that saves a tree, to be run on the machine in question.
    #[arg(long, conflicts_with_all = ["from", "output"])]
    script: bool,
}

pub(super) fn run(args: &CaptureArgs, context: &Context) -> Outcome<u8> {
    if args.script {
        print!("{SCRIPT}");
        return Ok(0);
    }
    let (observation, title) = match &args.from {
        None => (observe(Path::new("/"))?, "This machine".to_string()),
        Some(path) => (saved(path)?, format!("Captured from {}", path.display())),
    };
    let text = topology::capture(&title, &observation).map_err(Fault::input)?;
    match (&args.output, context.format) {
        (Some(path), _) => crate::digest::write_whole(path, text.as_bytes())?,
        (None, Format::Json) => context.print_json(&observation)?,
        (None, Format::Text | Format::Markdown) => print!("{text}"),
    }
    Ok(0)
}

fn observe(root: &Path) -> Outcome<topolab_wire::Observation> {
    topolab_agent::observe::observe(root).map_err(|e| {
        Fault::input(format!("{}: {e}", root.display()))
            .help("`topolab topology capture --script` prints what saves a tree that can be read here")
    })
}

fn saved(path: &Path) -> Outcome<topolab_wire::Observation> {
    let kind = std::fs::metadata(path).map_err(|e| Fault::input(format!("{}: {e}", path.display())))?;
    if kind.is_dir() {
        return observe(path);
    }
    let folder = tempfile::Builder::new().prefix("topolab-capture-").tempdir().trying("a temporary folder")?;
    tar::unpack(path, folder.path(), &format!("{} is no tarball", path.display()))?;
    observe(folder.path())
}
