//! Kernels from a tarball, unpacked once per content.

use super::source::{DISK, Origin, Source, version_of};
use crate::cancel::Cancel;
use crate::digest;
use crate::fault::{Fault, Outcome, Trying};
use crate::lock;
use crate::paths::{CacheDir, require_disk};
use crate::progress::Progress;
use crate::tar;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The source in a tarball.
pub(super) fn provide(file: &Path, cache: &CacheDir, progress: Progress, cancel: &Cancel) -> Outcome<Source> {
    let place = format!("tar:{}", file.display());
    let sum = sum(file, cache).map_err(|fault| Fault::input(format!("{place}: {}", fault.message)))?;
    let sources = cache.plain_folder("sources")?;
    let folder = sources.join(format!("tar-{}", &sum[..16]));
    let _lock = lock::exclusive(&sources.join(format!(".tar-{}.lock", &sum[..16])), cancel)?;
    if !folder.join("tree").is_dir() {
        require_disk(&sources, DISK, "a kernel's source and its build")?;
        progress.say(format!("unpacking {}", file.display()));
        let scratch = tempfile::Builder::new().prefix(".unpacking-").tempdir_in(&sources).trying(sources.display())?;
        let raw = scratch.path().join("raw");
        std::fs::create_dir(&raw).trying(raw.display())?;
        tar::unpack(file, &raw, &format!("{place}: tar could not unpack it"))?;
        let tree = root(&raw).ok_or_else(|| {
            Fault::input(format!("{place}: this is no kernel source"))
                .help("a kernel's tarball has Makefile and Kconfig at its top, or in its one folder")
        })?;
        // Whoever packs a checkout packs its repository too, or a file that leads to it.
        let git = tree.join(".git");
        match git.symlink_metadata() {
            Ok(facts) if facts.is_dir() => std::fs::remove_dir_all(&git).trying(git.display())?,
            Ok(_) => std::fs::remove_file(&git).trying(git.display())?,
            Err(_) => {}
        }
        std::fs::rename(&tree, scratch.path().join("tree")).trying(tree.display())?;
        let _ = std::fs::remove_dir_all(&raw);
        std::fs::rename(scratch.keep(), &folder).trying(folder.display())?;
    }
    let makefile = std::fs::read_to_string(folder.join("tree/Makefile")).trying("Makefile")?;
    let version = version_of(&makefile, file)?;
    Ok(Source {
        name: format!("{version} tar {}", &sum[..12]),
        identity: format!("tar sha256:{sum}"),
        version,
        folder,
        origin: Origin::Unpacked,
    })
}

/// Where the kernel begins in what was unpacked.
fn root(raw: &Path) -> Option<PathBuf> {
    let is_kernel = |folder: &Path| folder.join("Makefile").is_file() && folder.join("Kconfig").is_file();
    if is_kernel(raw) {
        return Some(raw.to_path_buf());
    }
    let entries: Vec<PathBuf> = std::fs::read_dir(raw).ok()?.flatten().map(|entry| entry.path()).collect();
    entries.into_iter().find(|entry| is_kernel(entry))
}

/// SHA-256 of the file, remembered for as long as its inode, size and time stay what they are: a tarball of 150 MB takes half a
/// second to read.
fn sum(file: &Path, cache: &CacheDir) -> Outcome<String> {
    let facts = std::fs::metadata(file).trying(file.display())?;
    let path = std::path::absolute(file).trying(file.display())?;
    let text = format!("{} {} {} {}.{}", facts.dev(), facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec());
    let id = digest::hex(&[path.as_os_str().as_encoded_bytes(), text.as_bytes()]);
    let memo = cache.folder("sums")?.join(&id[..24]);
    if let Ok(sum) = std::fs::read_to_string(&memo) {
        return Ok(sum);
    }
    let sum = digest::hex_of_file(file)?;
    digest::write_whole(&memo, sum.as_bytes())?;
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use duct::cmd;

    #[test]
    fn a_tarball_is_unpacked_once_and_what_is_no_kernel_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = CacheDir::locate(Some(folder.path().join("cache"))).expect("a cache");
        let inside = folder.path().join("linux-7.2.1");
        std::fs::create_dir(&inside).expect("a folder");
        std::fs::write(inside.join("Makefile"), "VERSION = 7\nPATCHLEVEL = 2\nSUBLEVEL = 1\n").expect("a file");
        let pack = |name: &str| {
            let file = folder.path().join(name);
            cmd!("tar", "-C", folder.path(), "-cJf", &file, "linux-7.2.1").run().expect("tar");
            file
        };
        let given = |file: &Path| provide(file, &cache, Progress::choose(true), &Cancel::default());
        let fault = given(&pack("no.tar.xz")).expect_err("no Kconfig");
        assert!(fault.message.contains("no kernel source"), "{fault}");
        std::fs::write(inside.join("Kconfig"), "").expect("a file");
        let source = given(&pack("linux.tar.xz")).expect("a source");
        assert_eq!(source.version, "7.2.1");
        assert!(source.tree().join("Kconfig").is_file());
        assert_eq!(given(&folder.path().join("linux.tar.xz")), Ok(source));
        std::fs::write(folder.path().join("x.tar"), "not a tarball").expect("a file");
        assert!(given(&folder.path().join("x.tar")).is_err_and(|fault| fault.message.contains("could not unpack")));
    }
}
