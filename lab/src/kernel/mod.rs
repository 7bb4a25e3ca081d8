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

pub use compiler::{Compiler, REQUIRED_PROGRAMS, missing_programs};
pub use patch::Series;
pub use spec::KernelSpec;
pub use store::{Kernel, cached};

use crate::cancel::Cancel;
use crate::digest;
use crate::fault::{Fault, Outcome, Trying};
use crate::paths::CacheDir;
use crate::progress::Progress;
use crate::topology::Arch;
use std::path::{Path, PathBuf};

/// A kernel as wished: where it comes from and what is put on it.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The source.
    pub spec: KernelSpec,
    /// Series to apply, in order.
    pub series: Vec<Series>,
    /// Architecture.
    pub arch: Arch,
    /// Whether any topology has more than 255 CPUs.
    pub many_cpus: bool,
    /// The user's own fragments.
    pub fragments: Vec<PathBuf>,
}

/// Makes a kernel, or finds it made.
pub fn provide(wish: &Wish, cache: &CacheDir, progress: Progress, cancel: &Cancel) -> Outcome<Kernel> {
    match &wish.spec {
        KernelSpec::Image(path) => image(path, wish),
        KernelSpec::DebianImage(version) => {
            refuse_series(wish, &format!("debian-image:{version}"))?;
            debian_image::provide(version, cache, progress)
        }
        KernelSpec::Debian(version) => {
            let source = debian::provide(version, cache, progress)?;
            let fragments = config::fragments(wish.arch, wish.many_cpus, &wish.fragments)?;
            build::provide(&source, wish, &fragments, cache, progress, cancel)
        }
    }
}

/// A kernel that is built already takes no patch.
fn refuse_series(wish: &Wish, what: &str) -> Outcome<()> {
    match wish.series.first() {
        None => Ok(()),
        Some(series) => {
            Err(Fault::input(format!("{what} is built already: the patch {} cannot be put on it", series.name))
                .help("give a source, for example debian:7.2"))
        }
    }
}

/// A ready image is taken as it is.
fn image(path: &Path, wish: &Wish) -> Outcome<Kernel> {
    refuse_series(wish, &format!("image:{}", path.display()))?;
    let key = digest::hex_of_file(path).map_err(|fault| Fault::input(format!("image:{}", fault.message)))?;
    let path = std::fs::canonicalize(path).trying(path.display())?;
    let name = format!("image {}", &key[..12]);
    Ok(Kernel { key, name, release: None, image: path, busy_module: None, modules: Vec::new() })
}
