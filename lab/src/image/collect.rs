//! Picks programs out of unpacked packages: each with the shared libraries and the loader that its ELF header names, transitively,
//! and nothing else.

use super::tree;
use crate::fault::{Fault, Outcome, Trying};
use crate::topology::Arch;
use goblin::elf::Elf;
use goblin::elf::header::{EM_AARCH64, EM_PPC64, EM_X86_64};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Picks from `from` into `to`.
pub(super) struct Collector<'a> {
    pub(super) from: &'a Path,
    pub(super) to: &'a Path,
    pub(super) arch: Arch,
}

impl Collector<'_> {
    /// Takes programs by their paths; a `*` in the last part stands for anything.
    pub(super) fn programs(&self, paths: &[String]) -> Outcome<()> {
        let mut wanted = Vec::new();
        for path in paths {
            wanted.extend(self.matching(path)?);
        }
        self.closure(wanted)
    }

    /// Takes files and folders as they are.
    pub(super) fn files(&self, paths: &[String]) -> Outcome<()> {
        for path in paths {
            for found in self.matching(path)? {
                let source = self.locate(&found).ok_or_else(|| absent(path))?;
                tree::copy(&source, &self.to.join(&found))?;
            }
        }
        Ok(())
    }

    /// Takes what the programs in a folder of the finished tree need of the packages.
    pub(super) fn needs_of(&self, folder: &Path, help: &str) -> Outcome<()> {
        let mut wanted = Vec::new();
        for entry in walkdir::WalkDir::new(folder).sort_by_file_name() {
            let entry = entry.trying(folder.display())?;
            if !entry.file_type().is_file() {
                continue;
            }
            let bytes = std::fs::read(entry.path()).trying(entry.path().display())?;
            let shown = entry.path().strip_prefix(self.to).unwrap_or(entry.path());
            let needed = self.needed(shown, &bytes, |library| {
                entry.path().with_file_name(library).exists().then(|| shown.with_file_name(library))
            });
            wanted.extend(needed.map_err(|fault| fault.help(help))?);
        }
        // What lies in the folder is there already.
        wanted.retain(|path| !self.to.join(path).exists());
        self.closure(wanted)
    }

    fn closure(&self, mut waiting: Vec<PathBuf>) -> Outcome<()> {
        // A plug-in may name what its program has loaded already, wherever that lies: it is enough that the recipe takes it too.
        let taken: BTreeMap<String, PathBuf> = waiting
            .iter()
            .filter_map(|path| Some((path.file_name()?.to_string_lossy().into_owned(), path.clone())))
            .collect();
        let mut seen = BTreeSet::new();
        while let Some(path) = waiting.pop() {
            if !seen.insert(path.clone()) {
                continue;
            }
            let source = self.locate(&path).ok_or_else(|| absent(&path.display().to_string()))?;
            let bytes = std::fs::read(&source).trying(source.display())?;
            let target = self.to.join(&path);
            std::fs::create_dir_all(target.parent().unwrap_or(self.to)).trying(target.display())?;
            std::fs::copy(&source, &target).trying(target.display())?;
            waiting.extend(self.needed(&path, &bytes, |library| taken.get(library).cloned())?);
        }
        Ok(())
    }

    /// The loader and the libraries that a file names. A script has no ELF header and needs nothing that its recipe does not name.
    fn needed(&self, path: &Path, bytes: &[u8], beside: impl Fn(&str) -> Option<PathBuf>) -> Outcome<Vec<PathBuf>> {
        let Ok(elf) = Elf::parse(bytes) else { return Ok(Vec::new()) };
        let machine = match self.arch {
            Arch::X86_64 => EM_X86_64,
            Arch::Aarch64 => EM_AARCH64,
            Arch::Ppc64le => EM_PPC64,
        };
        if elf.header.e_machine != machine {
            return Err(Fault::input(format!("/{} is no program for {}", path.display(), self.arch)));
        }
        let mut needed: Vec<PathBuf> =
            elf.interpreter.iter().map(|loader| PathBuf::from(loader.trim_start_matches('/'))).collect();
        let origin = path.parent().unwrap_or(Path::new("")).display().to_string();
        let own = elf.runpaths.iter().chain(&elf.rpaths).flat_map(|paths| paths.split(':'));
        let own = own.map(|p| plain(&p.replace("$ORIGIN", &format!("/{origin}"))));
        let folders: Vec<String> = own.chain(self.library_folders()).collect();
        for library in &elf.libraries {
            let place = folders.iter().map(|folder| Path::new(folder).join(library)).find(|p| self.locate(p).is_some());
            let place = place.or_else(|| beside(library)).ok_or_else(|| {
                Fault::lab(format!("/{} needs {library}, which the packages do not have", path.display()))
            })?;
            needed.push(place);
        }
        Ok(needed)
    }

    /// Where Debian's dynamic loader looks without being told (ld.so(8), multiarch).
    fn library_folders(&self) -> Vec<String> {
        let triplet = self.arch.triplet();
        ["lib/{}", "usr/lib/{}", "lib", "usr/lib", "lib64", "usr/lib64", "usr/lib/{}/perl/5.36/CORE"]
            .iter()
            .map(|folder| folder.replace("{}", triplet))
            .collect()
    }

    /// A path's file in the packages. Since Debian merged /usr a package may have it on either side, and the links that join both are
    /// made by one that is not unpacked here.
    fn locate(&self, path: &Path) -> Option<PathBuf> {
        let merged = path.strip_prefix("usr").map_or_else(|_| Path::new("usr").join(path), Path::to_path_buf);
        tree::resolve(self.from, path)
            .or_else(|| tree::resolve(self.from, &merged))
            .filter(|found| found.is_file() || found.is_dir())
    }

    fn matching(&self, path: &str) -> Outcome<Vec<PathBuf>> {
        let path = Path::new(path.trim_start_matches('/'));
        let pattern = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some((before, behind)) = pattern.split_once('*') else { return Ok(vec![path.to_path_buf()]) };
        let folder = path.parent().unwrap_or(Path::new(""));
        let place = self.locate(folder).ok_or_else(|| absent(&folder.display().to_string()))?;
        let mut names: Vec<String> = std::fs::read_dir(&place)
            .trying(place.display())?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.len() >= pattern.len() - 1 && name.starts_with(before) && name.ends_with(behind))
            .collect();
        names.sort();
        match names.is_empty() {
            true => Err(absent(&path.display().to_string())),
            false => Ok(names.into_iter().map(|name| folder.join(name)).collect()),
        }
    }
}

/// A path without `.` and `..`, which cannot lead out of the tree.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

fn absent(path: &str) -> Fault {
    Fault::lab(format!("the packages have no /{}", path.trim_start_matches('/')))
}
