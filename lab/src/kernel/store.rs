//! The store of finished kernels, by key. An entry appears whole or not at all: it is made under another name and renamed.

use super::tree::Applied;
use crate::fault::{Fault, Outcome, Trying};
use crate::paths::CacheDir;
use std::path::{Path, PathBuf};

/// A kernel that can be booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its key: SHA-256 over everything that decides it.
    pub key: String,
    /// How tables name it: `7.2.13`, `7.2.13 + sync-llc-headroom`.
    pub name: String,
    /// `uname -r`, when it was built here.
    pub release: Option<String>,
    /// Hash of what it loads, when it was built here: kernels of one signature behave alike.
    pub signature: Option<String>,
    /// Its configuration, where it is known.
    pub config: Option<PathBuf>,
    /// How its patches went on.
    pub applied: Vec<Applied>,
    /// The image.
    pub image: PathBuf,
    /// The busy module made for it.
    pub busy_module: Option<PathBuf>,
    /// Modules that it needs before anything else, in their order; none for kernels that the lab builds.
    pub modules: Vec<PathBuf>,
}

/// What is remembered beside an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Meta {
    /// How tables name it.
    pub(super) name: String,
    /// `uname -r`.
    pub(super) release: String,
    /// Source identity.
    pub(super) source: String,
    /// Series' names.
    pub(super) series: Vec<String>,
    /// Compiler's first line.
    pub(super) compiler: String,
    /// SHA-256 of the final configuration.
    pub(super) config_sha256: String,
    /// SHA-256 of the image.
    pub(super) image_sha256: String,
    /// The image's file.
    pub(super) image: String,
    /// Hash of what it loads.
    pub(super) signature: String,
    /// How its patches went on.
    pub(super) applied: Vec<Applied>,
    /// Seconds that the build took.
    pub(super) seconds: u64,
}

/// The store's folder.
pub(super) fn folder(cache: &CacheDir) -> Outcome<PathBuf> {
    cache.folder("kernels")
}

/// A finished kernel, if the store has it.
pub(super) fn find(cache: &CacheDir, key: &str) -> Outcome<Option<Kernel>> {
    let entry = folder(cache)?.join(key);
    crate::paths::touch(&entry.join("meta.json"));
    read(&entry, key)
}

fn read(entry: &Path, key: &str) -> Outcome<Option<Kernel>> {
    let path = entry.join("meta.json");
    let Ok(text) = std::fs::read(&path) else { return Ok(None) };
    let broken = |e: serde_json::Error| {
        Fault::lab(format!("{}: {e}", entry.display())).help("remove this folder; it is made again")
    };
    let meta: Meta = serde_json::from_slice(&text).map_err(broken)?;
    Ok(Some(Kernel {
        key: key.to_string(),
        name: meta.name,
        release: Some(meta.release),
        signature: Some(meta.signature),
        config: Some(entry.join("config")),
        applied: meta.applied,
        image: entry.join(meta.image),
        busy_module: Some(entry.join("topolab_busy.ko")),
        modules: Vec::new(),
    }))
}

/// Every finished kernel, the newest first.
pub fn cached(cache: &CacheDir) -> Outcome<Vec<Kernel>> {
    let folder = folder(cache)?;
    let mut entries: Vec<_> = std::fs::read_dir(&folder)
        .trying(folder.display())?
        .flatten()
        .filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.file_name().into_string().ok()?, e.path())))
        .collect();
    entries.sort_by(|a, b| b.cmp(a));
    let mut kernels = Vec::new();
    for (_, key, path) in entries {
        kernels.extend(read(&path, &key).ok().flatten());
    }
    Ok(kernels)
}
