//! Where things live: the cache and the results.

use crate::fault::{Fault, Outcome, Trying};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The cache's root, and what it promises: everything in it can be made again.
#[derive(Debug, Clone)]
pub struct CacheDir(PathBuf);

impl CacheDir {
    /// `--cache`, or `$XDG_CACHE_HOME/topolab`, or `~/.cache/topolab` (XDG Base Directory Specification).
    pub fn locate(given: Option<PathBuf>) -> Outcome<Self> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let root = given
            .or_else(|| absolute("XDG_CACHE_HOME").map(|p| p.join("topolab")))
            .or_else(|| absolute("HOME").map(|p| p.join(".cache/topolab")))
            .ok_or_else(|| {
                Fault::input("neither XDG_CACHE_HOME nor HOME is set").help("say where the cache may live: --cache DIR")
            })?;
        let root = std::path::absolute(&root).trying(format!("cache {}", root.display()))?;
        std::fs::create_dir_all(&root).trying(format!("cache {}", root.display()))?;
        Ok(Self(root))
    }

    /// A folder of the cache, made when it is not there.
    pub fn folder(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).trying(format!("cache {}", path.display()))?;
        Ok(path)
    }

    /// A folder of the cache whose path `make` can bear. The kernel's Makefile refuses spaces and colons in its path, and its
    /// recipes quote nothing, so where the cache's own path has more than plain characters, this folder lies in /var/tmp,
    /// for this user and this cache alone.
    pub fn plain_folder(&self, name: &str) -> Outcome<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._+-@".contains(c);
        if self.0.to_str().is_some_and(|path| path.chars().all(plain)) {
            return self.folder(name);
        }
        let key = crate::digest::hex(&[self.0.as_os_str().as_encoded_bytes()]);
        let user = nix::unistd::geteuid();
        let root = PathBuf::from(format!("/var/tmp/topolab-{user}-{}", &key[..12]));
        match std::fs::DirBuilder::new().mode(0o700).create(&root) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Fault::lab(format!("{}: {e}", root.display()))),
        }
        // /var/tmp is everybody's: a folder that another user has put there in advance is not used.
        let owner = std::fs::symlink_metadata(&root).trying(root.display())?;
        if !owner.is_dir() || owner.uid() != user.as_raw() {
            return Err(Fault::lab(format!("{} is not this user's folder", root.display())));
        }
        let path = root.join(name);
        std::fs::create_dir_all(&path).trying(path.display())?;
        Ok(path)
    }

    /// The root itself.
    pub fn root(&self) -> &Path {
        &self.0
    }
}

/// Free bytes for an ordinary user on the file system that holds `path`.
pub fn free_bytes(path: &Path) -> Outcome<u64> {
    let stat = nix::sys::statvfs::statvfs(path).trying(format!("statvfs {}", path.display()))?;
    Ok(stat.blocks_available() as u64 * stat.fragment_size() as u64)
}

/// Memory that a new process can have, in bytes: MemAvailable of /proc/meminfo.
pub fn available_memory() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").trying("/proc/meminfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
    Ok(kib * 1024)
}

/// Refuses to begin what the disk cannot hold.
pub fn require_disk(path: &Path, needed: u64, why: &str) -> Outcome<()> {
    let free = free_bytes(path)?;
    match free >= needed {
        true => Ok(()),
        false => Err(Fault::lab(format!(
            "too little disk for {why}: {} has {} MiB free, {} MiB are needed",
            path.display(),
            free >> 20,
            needed >> 20
        ))
        .help("free some space, or put the cache elsewhere with --cache DIR")),
    }
}
/// How long an answer of the archive is taken to hold.
const FRESH: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Whether a file is there and younger than a day.
pub(crate) fn is_fresh(path: &Path) -> bool {
    let written = std::fs::metadata(path).and_then(|m| m.modified()).ok();
    written.and_then(|time| time.elapsed().ok()).is_some_and(|age| age < FRESH)
}

/// Finds a program on PATH.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

/// Notes that something of the cache is in use, which `cache prune` asks by its time. A read-only cache keeps its own counsel.
pub(crate) fn touch(path: &Path) {
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.set_modified(std::time::SystemTime::now());
    }
}
