//! Kernels: a source ([`spec`]), patches on it ([`patch`], [`tree`]), a lean configuration ([`config`]), a build
//! ([`build`]) and the store of finished ones ([`store`]). Everything is keyed by content: what has the same key is the
//! same kernel.

mod build;
mod compiler;
mod config;
mod debian;
mod debian_image;
mod patch;
mod spec;
mod store;
mod tree;
mod version;

pub use compiler::{Compiler, REQUIRED_PROGRAMS, missing_programs};
pub use patch::Series;
pub use spec::KernelSpec;
pub use store::{Kernel, cached};

use crate::cancel::Cancel;
use crate::digest;
use crate::fault::{Fault, Outcome, Trying};
use crate::paths::CacheDir;
use crate::progress::Progress;
use crate::topology::{Arch, Topology};
use std::path::{Path, PathBuf};

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
    /// The user's own fragments.
    pub fragments: Vec<PathBuf>,
}

/// Makes a kernel, or finds it made.
pub fn provide(wish: &Wish, cache: &CacheDir, progress: Progress, cancel: &Cancel) -> Outcome<Kernel> {
    match &wish.spec {
        KernelSpec::Image(path) => image(path, wish, cache),
        KernelSpec::DebianImage(version) => {
            refuse_series(wish, &format!("debian-image:{version}"))?;
            debian_image::provide(version, wish.arch, cache, progress, cancel)
        }
        KernelSpec::Debian(version) if wish.arch != Arch::X86_64 => {
            Err(Fault::input(format!("debian:{version}: this version of topolab builds kernels for x86_64 only"))
                .help(format!("-k debian-image:{version} takes Debian's own for {}", wish.arch)))
        }
        KernelSpec::Debian(version) => {
            let source = debian::provide(version, cache, progress, cancel)?;
            let fragments = config::fragments(wish)?;
            build::provide(&source, wish, &fragments, cache, progress, cancel)
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

/// A ready image is taken as it is.
fn image(path: &Path, wish: &Wish, cache: &CacheDir) -> Outcome<Kernel> {
    refuse_series(wish, &format!("image:{}", path.display()))?;
    let key = digest::hex_of_file(path).map_err(|fault| Fault::input(format!("image:{}", fault.message)))?;
    // Taken into the cache, so that a rebuild of the user's file cannot change the kernel in the middle of a run.
    let taken = cache.folder("taken")?.join(&key);
    if !taken.exists() {
        let bytes = std::fs::read(path).trying(path.display())?;
        digest::write_whole(&taken, &bytes)?;
    }
    let name = format!("image {}", &key[..12]);
    Ok(Kernel { key, name, release: None, image: taken, busy_module: None, modules: Vec::new() })
}
