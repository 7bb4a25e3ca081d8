//! What a user puts on a kernel: the flags that `kernel build`, `run` and `ab` share.

use crate::fault::Outcome;
use crate::kernel::Toolchain;
use crate::patch::{self, Intake, Series, Source};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Patches, configuration, compiler.
#[derive(Debug, Clone, Args)]
pub(super) struct KernelArgs {
    /// A series: a mail, an mbox or maildir with its thread, a folder, a quilt series, or a message-id (with b4); may be given
    /// several times.
    #[arg(long = "patch", value_name = "P")]
    pub(super) patches: Vec<String>,
    #[command(flatten)]
    pub(super) intake: IntakeArgs,
    /// A configuration fragment, or lockdep or kasan; may be given several times.
    #[arg(long = "config", value_name = "FILE")]
    pub(super) fragments: Vec<PathBuf>,
    /// What compiles the kernel.
    #[arg(long, value_enum, default_value_t = CompilerArg::Gcc)]
    pub(super) compiler: CompilerArg,
}

/// How patches are taken in.
#[derive(Debug, Clone, Args)]
pub(super) struct IntakeArgs {
    /// Take a patch that is only quoted in a reply.
    #[arg(long)]
    pub(super) unquote: bool,
    /// Undo what a mailer did to a patch, where nothing has to be guessed.
    #[arg(long)]
    pub(super) repair: bool,
    /// Take the patches that are there of a series that is not whole.
    #[arg(long)]
    pub(super) partial: bool,
    /// This version of a series instead of the newest in its thread.
    #[arg(long, value_name = "N")]
    pub(super) patch_version: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CompilerArg {
    /// GCC and GNU binutils.
    Gcc,
    /// Clang and LLD, the newest that is installed.
    Clang,
}

impl IntakeArgs {
    pub(super) fn intake(&self) -> Intake {
        Intake { unquote: self.unquote, repair: self.repair, partial: self.partial, version: self.patch_version }
    }
}

impl KernelArgs {
    pub(super) fn toolchain(&self) -> Toolchain {
        match self.compiler {
            CompilerArg::Gcc => Toolchain::Gcc,
            CompilerArg::Clang => Toolchain::Clang,
        }
    }

    /// Reads the series; what was undone or left out on the way is said.
    pub(super) fn series(&self, context: &super::Context) -> Outcome<Vec<Series>> {
        let one = |text: &String| {
            let series = patch::read(&Source::parse(text), self.intake.intake())?.usable()?;
            series.notes.iter().for_each(|note| context.progress.say(format!("{}: {note}", series.name)));
            Ok(series)
        };
        self.patches.iter().map(one).collect()
    }
}
