//! Program trees from Debian packages: the wanted programs and the shared libraries that they name, nothing else.
//!
//! apt resolves and fetches, dpkg-deb unpacks, and the ELF headers say what is needed; no root, no chroot, no namespaces.

use crate::apt::{self, Apt};
use crate::cancel::Cancel;
use crate::digest;
use crate::fault::{Fault, Outcome, Trying};
use crate::paths::{CacheDir, require_disk};
use crate::progress::Progress;
use crate::topology::Arch;
use goblin::elf::Elf;
use include_dir::{Dir, include_dir};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

static RECIPES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../images");

/// Version of this procedure: part of every key.
const PROCEDURE: &str = "1";
/// Packages, their unpacked tree and the result.
const DISK: u64 = 1 << 30;
/// Where Debian's dynamic loader looks without being told (ld.so(8), multiarch).
const LIBRARY_FOLDERS: &[&str] = &[
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "lib",
    "usr/lib",
    "lib64",
    "usr/lib/x86_64-linux-gnu/perl/5.36/CORE",
];

/// A finished tree.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Image {
    /// Its key.
    pub key: String,
    /// The tree, to appear as a root directory.
    #[serde(skip)]
    pub tree: PathBuf,
    /// The packages that it was made of, `name_version_arch`.
    pub packages: Vec<String>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    schema: u32,
    #[allow(dead_code)] // read by people
    title: String,
    packages: Vec<String>,
    programs: Vec<PathBuf>,
}

/// Makes a tree, or finds it made.
pub fn provide(name: &str, cache: &CacheDir, progress: Progress, cancel: &Cancel) -> Outcome<Image> {
    let text = RECIPES.get_file(format!("{name}.toml")).and_then(|file| file.contents_utf8());
    let text = text.ok_or_else(|| Fault::input(format!("no image is named `{name}`")))?;
    let recipe: Recipe = toml::from_str(text).map_err(|e| Fault::input(format!("image {name}: {e}")))?;
    if recipe.schema != 1 {
        return Err(Fault::input(format!("image {name}: schema {} is not known", recipe.schema)));
    }
    // The machine's own release decides the packages: an upgraded host makes another tree.
    let release = std::fs::read("/etc/os-release").unwrap_or_default();
    let key = digest::hex(&[PROCEDURE.as_bytes(), text.as_bytes(), &release]);
    let folder = cache.folder("images")?;
    let entry = folder.join(format!("{name}-{}", &key[..16]));
    if let Ok(list) = std::fs::read_to_string(entry.join("packages")) {
        return Ok(finished(key, &entry, &list));
    }
    require_disk(&folder, DISK, "an image")?;
    progress.say(format!("making image {name} from Debian packages: {}", recipe.packages.join(" ")));
    let apt = Apt::open(cache, "programs", Arch::X86_64, &[], cancel)?;
    apt.update()?;
    let debs = apt.closure(&recipe.packages)?;
    let scratch = tempfile::Builder::new().prefix(".making-").tempdir_in(&folder).trying(folder.display())?;
    let unpacked = scratch.path().join("unpacked");
    std::fs::create_dir(&unpacked).trying(unpacked.display())?;
    for deb in &debs {
        apt::unpack(deb, &unpacked)?;
    }
    let tree = scratch.path().join("tree");
    for folder in ["dev", "proc", "run", "sys", "tmp"] {
        std::fs::create_dir_all(tree.join(folder)).trying(tree.display())?;
    }
    collect(&unpacked, &tree, &recipe.programs)?;
    std::fs::remove_dir_all(&unpacked).trying(unpacked.display())?;
    let stem = |deb: &PathBuf| deb.file_stem().map(|s| s.to_string_lossy().into_owned());
    let list = debs.iter().filter_map(stem).collect::<Vec<_>>().join("\n");
    std::fs::write(scratch.path().join("packages"), &list).trying(folder.display())?;
    match std::fs::rename(scratch.keep(), &entry) {
        Ok(()) => Ok(finished(key, &entry, &list)),
        // Another lab was first; its tree is made of the same recipe.
        Err(_) if entry.join("packages").exists() => Ok(finished(key, &entry, &list)),
        Err(e) => Err(Fault::lab(format!("{}: {e}", entry.display()))),
    }
}

fn finished(key: String, entry: &Path, list: &str) -> Image {
    Image { key, tree: entry.join("tree"), packages: list.lines().map(str::to_string).collect() }
}

/// Copies programs and, transitively, the libraries and loaders that they name.
fn collect(from: &Path, to: &Path, programs: &[PathBuf]) -> Outcome<()> {
    let mut waiting: Vec<PathBuf> = programs.iter().map(|p| p.strip_prefix("/").unwrap_or(p).to_path_buf()).collect();
    let mut seen = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let source =
            resolve(from, &path).ok_or_else(|| Fault::lab(format!("the packages have no /{}", path.display())))?;
        let bytes = std::fs::read(&source).trying(source.display())?;
        let target = to.join(&path);
        std::fs::create_dir_all(target.parent().unwrap_or(to)).trying(target.display())?;
        std::fs::copy(&source, &target).trying(target.display())?;
        // A script has no ELF header and needs nothing that its recipe does not name.
        let Ok(elf) = Elf::parse(&bytes) else { continue };
        if let Some(loader) = elf.interpreter {
            waiting.push(PathBuf::from(loader.trim_start_matches('/')));
        }
        for library in &elf.libraries {
            let place = LIBRARY_FOLDERS
                .iter()
                .map(|folder| Path::new(folder).join(library))
                .find(|p| resolve(from, p).is_some());
            let place = place.ok_or_else(|| {
                Fault::lab(format!("/{} needs {library}, which the packages do not have", path.display()))
            })?;
            waiting.push(place);
        }
    }
    Ok(())
}

/// A path's file inside a tree, with symbolic links followed as if the tree were the root; `None` when it is not there.
fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut rest: Vec<_> = path.components().rev().map(|c| c.as_os_str().to_os_string()).collect();
    let mut here = PathBuf::new();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match part.to_str() {
            Some("/") => here = PathBuf::new(),
            Some(".") => {}
            Some("..") => {
                here.pop();
            }
            _ => {
                let next = here.join(&part);
                match std::fs::read_link(root.join(&next)) {
                    // The bound of symlink(7), MAXSYMLINKS.
                    Ok(target) if links < 40 => {
                        links += 1;
                        rest.extend(target.components().rev().map(|c| c.as_os_str().to_os_string()));
                    }
                    Ok(_) => return None,
                    Err(_) => here = next,
                }
            }
        }
    }
    let file = root.join(here);
    file.is_file().then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_inside_the_tree() {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(root.path().join("usr/lib")).expect("usr");
        std::fs::write(root.path().join("usr/lib/libx.so.1.2"), "x").expect("file");
        symlink("libx.so.1.2", root.path().join("usr/lib/libx.so.1")).expect("link");
        symlink("/usr/lib", root.path().join("lib")).expect("link");
        symlink("loop", root.path().join("loop")).expect("link");
        let found = |path: &str| resolve(root.path(), Path::new(path));
        assert_eq!(found("lib/libx.so.1"), Some(root.path().join("usr/lib/libx.so.1.2")));
        assert_eq!(found("usr/lib/../lib/libx.so.1.2"), Some(root.path().join("usr/lib/libx.so.1.2")));
        assert_eq!(found("lib/liby.so"), None);
        assert_eq!(found("loop"), None);
    }
}
