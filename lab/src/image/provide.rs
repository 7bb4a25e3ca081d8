//! Makes images: apt resolves and fetches, dpkg-deb unpacks, ELF headers say what is needed, and the result is named by what it is
//! made of. No root, no chroot, no namespaces, no emulation of the other architectures.

use super::collect::Collector;
use super::recipe::Recipe;
use super::supply::Supplied;
use super::tree;
use crate::apt::{self, Apt};
use crate::cancel::Cancel;
use crate::digest::{self, write_whole};
use crate::fault::{Fault, FaultKind, Outcome, Trying};
use crate::paths::{CacheDir, require_disk};
use crate::progress::Progress;
use crate::topology::Arch;
use std::path::{Path, PathBuf};

/// Version of this procedure: part of every key.
const PROCEDURE: &str = "3";
/// Packages, their unpacked tree and the result.
const DISK: u64 = 2 << 30;
const META: &str = "meta.json";

/// A finished image.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Image {
    /// Its recipe's name.
    pub name: String,
    /// Its architecture.
    pub arch: Arch,
    /// What it is made of: recipe, packages by their bytes, and what the user supplied.
    pub key: String,
    /// What it is: names, modes and bytes of its files.
    pub digest: String,
    /// Size of its files.
    pub bytes: u64,
    /// The packages that it was made of, `name_version_arch`.
    pub packages: Vec<String>,
    /// The tree, to appear as a root directory.
    #[serde(skip)]
    pub tree: PathBuf,
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Meta {
    key: String,
    digest: String,
    bytes: u64,
    packages: Vec<String>,
}

impl Image {
    /// Whether it has a program at this path. What a bundle brings into /bundle is not of the image.
    pub fn has(&self, path: &str) -> bool {
        path.starts_with("/bundle/") || tree::resolve(&self.tree, Path::new(path)).is_some()
    }
}

/// How an image is wished.
#[derive(Debug, Clone, Copy)]
pub struct ImageWish<'a> {
    /// The recipe.
    pub recipe: &'a Recipe,
    /// For guests of this architecture.
    pub arch: Arch,
    /// What the user supplies.
    pub supplied: &'a [Supplied],
    /// Make it even when it is there, and compare.
    pub again: bool,
}

/// Makes an image, or finds it made.
pub fn provide(wish: ImageWish<'_>, cache: &CacheDir, progress: Progress, cancel: &Cancel) -> Outcome<Image> {
    let memo = memo(wish, cache)?;
    if !wish.again
        && let Ok(key) = std::fs::read_to_string(&memo)
        && let Some(image) = found(wish, cache, &key)?
    {
        return Ok(image);
    }
    let folder = cache.folder("images")?;
    require_disk(&folder, DISK, "an image")?;
    let Recipe { name, packages, suite, .. } = wish.recipe;
    progress.say(format!("making image {name} for {} from Debian packages: {}", wish.arch, packages.join(" ")));
    let suites: Vec<&str> = suite.iter().map(String::as_str).collect();
    let archive = suite.as_ref().map_or("programs".to_string(), |suite| format!("programs-{suite}"));
    let apt = Apt::open(cache, &archive, wish.arch, &suites, cancel)?;
    apt.update()?;
    // A recipe of the user's that asks for what is not there is the user's to mend.
    let blame = |fault: Fault| match wish.recipe.own && fault.kind == FaultKind::Lab {
        true => Fault { kind: FaultKind::Input, message: format!("image {name}: {}", fault.message), ..fault },
        false => fault,
    };
    let debs = apt.closure(packages, suite.as_deref()).map_err(blame)?;
    cancel.check()?;
    let key = key(wish, &debs)?;
    let there = found(wish, cache, &key)?;
    let made = match (there, wish.again) {
        (Some(image), false) => image,
        (None, false) => make(wish, &folder, &debs, key, cancel).map_err(blame)?,
        // Where nothing is there to be compared with, it is made twice.
        (there, true) => {
            let before = there.map_or_else(|| make(wish, &folder, &debs, key.clone(), cancel), Ok)?;
            let now = make(wish, &folder, &debs, key, cancel)?;
            if before.digest != now.digest {
                return Err(Fault::lab(format!("image {name}: the same key gave other bytes"))
                    .detail(format!("key {}\nbefore {}\nnow    {}", now.key, before.digest, now.digest)));
            }
            now
        }
    };
    write_whole(&memo, made.key.as_bytes())?;
    Ok(made)
}

/// Remembers the key of a wish: which packages a recipe means is a question to the archive, and is asked once.
fn memo(wish: ImageWish<'_>, cache: &CacheDir) -> Outcome<PathBuf> {
    // The machine's own release decides the packages: an upgraded host makes another image.
    let release = std::fs::read("/etc/os-release").unwrap_or_default();
    let arch = wish.arch.to_string();
    let mut parts = vec![PROCEDURE.as_bytes(), wish.recipe.text.as_bytes(), arch.as_bytes(), &release];
    parts.extend(wish.supplied.iter().map(|supplied| supplied.key.as_bytes()));
    Ok(cache.folder("wishes")?.join(&digest::hex(&parts)[..32]))
}

fn key(wish: ImageWish<'_>, debs: &[PathBuf]) -> Outcome<String> {
    let hashes = debs.iter().map(|deb| digest::hex_of_file(deb)).collect::<Outcome<Vec<_>>>()?;
    let arch = wish.arch.to_string();
    let mut parts = vec![PROCEDURE.as_bytes(), wish.recipe.text.as_bytes(), arch.as_bytes()];
    parts.extend(hashes.iter().map(String::as_bytes));
    parts.extend(wish.supplied.iter().map(|supplied| supplied.key.as_bytes()));
    Ok(digest::hex(&parts))
}

fn entry(wish: ImageWish<'_>, folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{}-{}-{}", wish.recipe.name, wish.arch, key.get(..16).unwrap_or(key)))
}

fn found(wish: ImageWish<'_>, cache: &CacheDir, key: &str) -> Outcome<Option<Image>> {
    let entry = entry(wish, &cache.folder("images")?, key);
    let Ok(text) = std::fs::read(entry.join(META)) else { return Ok(None) };
    let meta: Meta = serde_json::from_slice(&text).trying(entry.display())?;
    Ok((meta.key == key).then(|| finished(wish, &entry, meta)))
}

fn finished(wish: ImageWish<'_>, entry: &Path, meta: Meta) -> Image {
    let Meta { key, digest, bytes, packages } = meta;
    Image { name: wish.recipe.name.clone(), arch: wish.arch, key, digest, bytes, packages, tree: entry.join("tree") }
}

fn make(wish: ImageWish<'_>, folder: &Path, debs: &[PathBuf], key: String, cancel: &Cancel) -> Outcome<Image> {
    let scratch = tempfile::Builder::new().prefix(".making-").tempdir_in(folder).trying(folder.display())?;
    let (unpacked, tree) = (scratch.path().join("unpacked"), scratch.path().join("tree"));
    std::fs::create_dir(&unpacked).trying(unpacked.display())?;
    for deb in debs {
        cancel.check()?;
        apt::unpack(deb, &unpacked)?;
    }
    for name in ["bundle", "dev", "etc", "out", "proc", "run", "sys", "tmp"] {
        std::fs::create_dir_all(tree.join(name)).trying(tree.display())?;
    }
    // What every program expects and no package ships: base-passwd writes these when it is configured.
    for (name, text) in [
        ("etc/passwd", "root:x:0:0:root:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"),
        ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
        ("etc/hosts", "127.0.0.1 localhost\n"),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ] {
        std::fs::write(tree.join(name), text).trying(name)?;
    }
    let collector = Collector { from: &unpacked, to: &tree, arch: wish.arch };
    collector.files(&Recipe::paths(&wish.recipe.files, wish.arch))?;
    collector.programs(&Recipe::paths(&wish.recipe.programs, wish.arch))?;
    for supplied in wish.supplied {
        let work = scratch.path().join(&supplied.supply.name);
        let home = supplied.install(&work, &tree, wish.arch, cancel)?;
        let help = format!(
            "link {} statically, or name a package that has the library in the image's recipe",
            supplied.supply.name
        );
        collector.needs_of(&home, &help)?;
        std::fs::remove_dir_all(&work).trying(work.display())?;
    }
    std::fs::remove_dir_all(&unpacked).trying(unpacked.display())?;
    tree::settle(&tree)?;
    let (digest, bytes) = tree::measure(&tree)?;
    let stem = |deb: &PathBuf| deb.file_stem().map(|s| s.to_string_lossy().into_owned());
    let meta = Meta { key: key.clone(), digest, bytes, packages: debs.iter().filter_map(stem).collect() };
    let json = serde_json::to_vec_pretty(&meta).trying("an image's description")?;
    std::fs::write(scratch.path().join(META), json).trying(folder.display())?;
    let entry = entry(wish, folder, &key);
    if entry.join(META).exists() {
        // It is there: this one was made to be compared, or another lab was first.
        return Ok(finished(wish, &entry, meta));
    }
    std::fs::rename(scratch.keep(), &entry).trying(entry.display())?;
    Ok(finished(wish, &entry, meta))
}
