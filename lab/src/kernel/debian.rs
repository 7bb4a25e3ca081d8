//! Debian's linux-source packages: found in the archive or in the cache, unpacked once.

use super::source::{DISK, Origin, Source};
use super::version::Version;
use crate::apt::{self, Apt};
use crate::cancel::Cancel;
use crate::digest;
use crate::fault::{Fault, Outcome, Trying};
use crate::lock;
use crate::paths::{CacheDir, is_fresh, require_disk};
use crate::progress::Progress;
use crate::topology::Arch;
use duct::cmd;
use std::path::PathBuf;

/// Suites beyond the machine's own that carry newer kernels. Only a private apt sees them.
pub(super) const SUITES: &[&str] = &["trixie-backports", "sid"];

/// Finds or fetches the newest source of a version.
pub(super) fn provide(wanted: &str, cache: &CacheDir, progress: Progress, cancel: &Cancel) -> Outcome<Source> {
    let wanted_version = Version::parse(wanted)
        .ok_or_else(|| Fault::input(format!("`{wanted}` is not a kernel version such as 7.2 or 7.2.13")))?;
    let package = format!("linux-source-{}", wanted_version.series());
    let exact = wanted_version.is_exact();
    let have = cached(&package, cache)?;
    if let Some(source) = have.iter().find(|source| exact && source.version == wanted) {
        return Ok(source.clone());
    }
    let available = match archive_versions(&package, cache, cancel) {
        Ok(available) => available,
        Err(fault) => {
            // Without the archive the cache has to do, and the user is told.
            let newest =
                have.into_iter().filter(|s| !exact || s.version == wanted).max_by_key(|s| Version::parse(&s.version));
            let source = newest.ok_or(fault.clone())?;
            progress.say(format!(
                "the archive cannot be asked ({}); taking {} from the cache",
                fault.message, source.version
            ));
            return Ok(source);
        }
    };
    let newest =
        available.iter().filter(|v| !exact || upstream(v) == wanted).max_by_key(|v| Version::parse(upstream(v)));
    let cached_newest =
        have.iter().filter(|s| !exact || s.version == wanted).max_by_key(|s| Version::parse(&s.version));
    match (newest, cached_newest) {
        (None, None) => {
            let mut those: Vec<&str> =
                available.iter().map(|v| upstream(v)).chain(have.iter().map(|s| s.version.as_str())).collect();
            those.sort_by_key(|v| Version::parse(v));
            those.dedup();
            let there = if those.is_empty() { format!("no {package} at all") } else { those.join(" ") };
            Err(Fault::input(format!("the archive has no kernel source {wanted}")).help(format!("it has: {there}")))
        }
        (None, Some(source)) => Ok(source.clone()),
        (Some(version), Some(source)) if Version::parse(upstream(version)) <= Version::parse(&source.version) => {
            Ok(source.clone())
        }
        (Some(version), _) => fetch(&package, version, cache, progress, cancel),
    }
}

/// What the archive has, asked at most once a day.
fn archive_versions(package: &str, cache: &CacheDir, cancel: &Cancel) -> Outcome<Vec<String>> {
    remembered(&format!("{package}.versions"), Arch::X86_64, cache, cancel, |apt| apt.versions(package))
}

/// The archive's answer to a question, a line each, remembered for a day under a name.
pub(super) fn remembered(
    name: &str,
    arch: Arch,
    cache: &CacheDir,
    cancel: &Cancel,
    ask: impl Fn(&Apt) -> Outcome<Vec<String>>,
) -> Outcome<Vec<String>> {
    let memo = cache.folder("apt")?.join(name);
    if is_fresh(&memo) {
        return Ok(std::fs::read_to_string(&memo).trying(memo.display())?.lines().map(str::to_string).collect());
    }
    let apt = Apt::open(cache, "kernels", arch, SUITES, cancel)?;
    let whole = apt.update()?;
    let answer = ask(&apt)?;
    // What half a list says is not remembered.
    if whole {
        digest::write_whole(&memo, answer.join("\n").as_bytes())?;
    }
    Ok(answer)
}

fn source(folder: PathBuf, identity: String, version: String) -> Source {
    Source { folder, identity, name: version.clone(), version, origin: Origin::Unpacked }
}

/// `7.2.12-1~bpo13+1` → `7.2.12`.
fn upstream(version: &str) -> &str {
    version.split('-').next().unwrap_or(version)
}

/// The sources of a package that the cache has.
fn cached(package: &str, cache: &CacheDir) -> Outcome<Vec<Source>> {
    let folder = cache.plain_folder("sources")?;
    let entries = std::fs::read_dir(&folder).trying(folder.display())?;
    let prefix = format!("{package}_");
    let one = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let version = upstream(name.strip_prefix(&prefix)?).to_string();
        let identity = std::fs::read_to_string(entry.path().join("identity")).ok()?;
        Some(source(entry.path(), identity, version))
    };
    Ok(entries.flatten().filter_map(one).collect())
}

fn fetch(package: &str, version: &str, cache: &CacheDir, progress: Progress, cancel: &Cancel) -> Outcome<Source> {
    let sources = cache.plain_folder("sources")?;
    let _lock = lock::exclusive(&sources.join(format!(".{package}.lock")), cancel)?;
    let folder = sources.join(format!("{package}_{version}"));
    let ready = |identity: String| source(folder.clone(), identity, upstream(version).to_string());
    // Another lab may have fetched it while this one waited.
    if let Ok(identity) = std::fs::read_to_string(folder.join("identity")) {
        return Ok(ready(identity));
    }
    require_disk(&sources, DISK, "a kernel's source and its build")?;
    progress.say(format!("fetching {package} {version} from Debian's archive (160 MB)"));
    let apt = Apt::open(cache, "kernels", Arch::X86_64, SUITES, cancel)?;
    let deb = apt.download(package, version).inspect_err(|_| {
        // The archive may have moved on since it was asked: the next call asks again.
        let _ = cache.folder("apt").map(|folder| std::fs::remove_file(folder.join(format!("{package}.versions"))));
    })?;
    let sum = digest::hex_of_file(&deb)?;
    progress.say(format!("unpacking {package} {version}"));
    let scratch = tempfile::Builder::new().prefix(".unpacking-").tempdir_in(&sources).trying(sources.display())?;
    apt::unpack(&deb, scratch.path())?;
    let tarball = scratch.path().join("usr/src").join(format!("{package}.tar.xz"));
    let tree = scratch.path().join("tree");
    std::fs::create_dir(&tree).trying(tree.display())?;
    let unpacked = cmd!("tar", "-C", &tree, "--strip-components=1", "-xf", &tarball)
        .stderr_capture()
        .unchecked()
        .run()
        .trying("tar")?;
    if !unpacked.status.success() {
        return Err(Fault::lab(format!("tar could not unpack {package}"))
            .detail(String::from_utf8_lossy(&unpacked.stderr).trim()));
    }
    std::fs::remove_dir_all(scratch.path().join("usr")).trying("remove the unpacked tarball")?;
    std::fs::remove_file(&deb).trying(deb.display())?;
    let identity = format!("{package} {version} sha256:{sum}");
    std::fs::write(scratch.path().join("identity"), &identity).trying("write the identity")?;
    std::fs::rename(scratch.keep(), &folder).trying(folder.display())?;
    Ok(ready(identity))
}
