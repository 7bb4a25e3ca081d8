//! Kernels: a source ([`spec`]; [`debian`], [`git`], [`tarball`]), series on it ([`tree`]), a lean configuration ([`config`]), a
//! build ([`build`]) and the store of finished ones ([`store`]). Everything is keyed by content: what has the same key is the same
//! kernel, and what has the same [`signature`] behaves alike.

mod build;
mod compiler;
mod config;
mod debian;
mod debian_image;
mod git;
mod image;
mod signature;
mod source;
mod spec;
mod store;
mod tarball;
mod tree;
mod version;

pub use compiler::{REQUIRED_PROGRAMS, Toolchain, cross_package, missing_programs};
pub use config::AIDS;
pub use spec::{FORMS, KernelSpec};
pub use store::{Kernel, cached};
pub use tree::Applied;

use crate::cancel::Cancel;
use crate::fault::{Fault, Outcome};
use crate::lock;
use crate::patch::Series;
use crate::paths::CacheDir;
use crate::progress::Progress;
use crate::topology::{Arch, Topology};
use std::path::PathBuf;

/// What topologies ask of a kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// More than 255 CPUs.
    pub many_cpus: bool,
}

impl Needs {
    /// What any of these needs.
    pub fn of<'a>(topologies: impl IntoIterator<Item = &'a Topology>) -> Self {
        topologies
            .into_iter()
            .fold(Self::default(), |needs, topology| Self { many_cpus: needs.many_cpus || topology.shape.cpus() > 255 })
    }
}

/// A kernel as wished: where it comes from and what is put on it.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The source.
    pub spec: KernelSpec,
    /// Series to apply, in order.
    pub series: Vec<Series>,
    /// Architecture.
    pub arch: Arch,
    /// What the topologies ask for beyond the rest.
    pub needs: Needs,
    /// Symbols that bundles ask for, by bundle.
    pub bundles: Vec<(String, Vec<String>)>,
    /// The user's own fragments: files, or names of [`AIDS`].
    pub fragments: Vec<PathBuf>,
    /// The compiler.
    pub toolchain: Toolchain,
}

/// Makes a kernel, or finds it made.
pub fn provide(wish: &Wish, cache: &CacheDir, progress: Progress, cancel: &Cancel) -> Outcome<Kernel> {
    match &wish.spec {
        KernelSpec::Image(path) => {
            refuse_series(wish, &format!("image:{}", path.display()))?;
            image::provide(path, cache)
        }
        KernelSpec::DebianImage(version) => {
            refuse_series(wish, &format!("debian-image:{version}"))?;
            debian_image::provide(version, wish.arch, cache, progress, cancel)
        }
        KernelSpec::Debian(_) | KernelSpec::Git { .. } | KernelSpec::Tree(_) | KernelSpec::Tar(_) => {
            let fragments = config::fragments(wish)?;
            let source = source(&wish.spec, cache, progress, cancel)?;
            build::provide(&source, wish, &fragments, cache, progress, cancel)
        }
    }
}

/// What compiles kernels for this machine's own guests, by its own words.
pub fn compiler_version() -> Outcome<String> {
    compiler::Compiler::find(Toolchain::Gcc, Arch::X86_64).map(|compiler| compiler.version)
}

/// Tries a series on a kernel's source without building anything, and says how it went on.
pub fn try_on(
    spec: &KernelSpec,
    series: &Series,
    cache: &CacheDir,
    progress: Progress,
    cancel: &Cancel,
) -> Outcome<(String, Vec<Applied>)> {
    let source = source(spec, cache, progress, cancel)?;
    let _tree = lock::exclusive(&source.folder.join("lock"), cancel)?;
    Ok((source.name.clone(), tree::try_on(&source, series)?))
}

/// The source behind a name.
fn source(spec: &KernelSpec, cache: &CacheDir, progress: Progress, cancel: &Cancel) -> Outcome<source::Source> {
    match spec {
        KernelSpec::Debian(version) => debian::provide(version, cache, progress, cancel),
        KernelSpec::Git { folder, revision } => git::commit(folder, revision, cache, progress, cancel),
        KernelSpec::Tree(folder) => git::work_tree(folder, cache, progress, cancel),
        KernelSpec::Tar(file) => tarball::provide(file, cache, progress, cancel),
        KernelSpec::DebianImage(_) | KernelSpec::Image(_) => {
            Err(Fault::input("a built kernel has no source to put a patch on")
                .help("give a source, for example debian:7.2"))
        }
    }
}

/// A kernel that is built already takes neither patches nor symbols.
fn refuse_series(wish: &Wish, what: &str) -> Outcome<()> {
    if let Some(fragment) = wish.fragments.first() {
        return Err(Fault::input(format!("{what} is built already: --config {} cannot change it", fragment.display())));
    }
    match wish.series.first() {
        None => Ok(()),
        Some(series) => {
            Err(Fault::input(format!("{what} is built already: the patch {} cannot be put on it", series.name))
                .help("give a source, for example debian:7.2"))
        }
    }
}
