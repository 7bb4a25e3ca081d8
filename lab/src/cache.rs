//! What the cache holds, how large it is and when it was used last; and its shrinking. Everything in it can be made again.

use crate::fault::{Fault, Outcome, Trying};
use crate::paths::CacheDir;
use nix::fcntl::{Flock, FlockArg};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What was used this lately may be in use still: a run touches its kernel and its image at every boot.
const BUSY: Duration = Duration::from_secs(3600);

/// One thing that can be removed by itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Entry {
    /// `kernel`, `source`, `objects`, `image`, `prebuilt`, `taken`, `content` (of a work tree) or `ccache`.
    pub kind: &'static str,
    /// How people name it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Bytes on disk.
    pub bytes: u64,
    /// When it was used last, as far as its files tell.
    #[serde(skip)]
    pub used: SystemTime,
}

/// Everything in the cache, what was used last first.
pub fn list(cache: &CacheDir) -> Outcome<Vec<Entry>> {
    let mut all = Vec::new();
    for (kind, folder) in [("kernel", "kernels"), ("image", "images"), ("prebuilt", "prebuilt"), ("taken", "taken")] {
        for path in children(&cache.folder(folder)?)? {
            all.push(entry(kind, path));
        }
    }
    for path in children(&cache.plain_folder("sources")?)?.into_iter().map(|home| home.join("content.git")) {
        if path.is_dir() {
            all.push(entry("content", path));
        }
    }
    all.push(entry("ccache", cache.folder("ccache")?));
    for source in children(&cache.plain_folder("sources")?)? {
        // A repository's slots are sources each.
        let slots: Vec<PathBuf> = children(&source)?.into_iter().filter(|path| path.join("tree").is_dir()).collect();
        let trees = if source.join("tree").is_dir() { vec![source.clone()] } else { slots };
        for tree in trees {
            for build in children(&tree)?.into_iter().filter(|path| name_of(path).starts_with("build-")) {
                all.push(entry("objects", build));
            }
            all.push(entry("source", tree));
        }
    }
    all.retain(|entry| entry.bytes > 0);
    // A source's own size is without its builds'.
    let builds: Vec<(PathBuf, u64)> =
        all.iter().filter(|e| e.kind == "objects").map(|e| (e.path.clone(), e.bytes)).collect();
    for source in all.iter_mut().filter(|entry| entry.kind == "source") {
        let inside = builds.iter().filter(|(path, _)| path.parent() == Some(&source.path)).map(|(_, bytes)| bytes);
        source.bytes = source.bytes.saturating_sub(inside.sum());
    }
    all.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.path.cmp(&b.path)));
    Ok(all)
}

/// Removes what was used longest ago until no more than `keep` bytes are left. What a build holds or was used within the hour
/// stays, and so does a source whose objects stay. Returns what was removed.
pub fn prune(cache: &CacheDir, keep: u64) -> Outcome<Vec<Entry>> {
    let all = list(cache)?;
    let mut total: u64 = all.iter().map(|entry| entry.bytes).sum();
    let mut removed: Vec<Entry> = Vec::new();
    let mut kept: Vec<&Entry> = Vec::new();
    // Objects before their source: they are made again from it.
    let mut oldest: Vec<&Entry> = all.iter().rev().collect();
    oldest.sort_by_key(|entry| entry.kind == "source");
    for entry in oldest {
        let recent = entry.used.elapsed().map_or(true, |age| age < BUSY);
        let needed = kept.iter().any(|other| other.path.parent() == Some(&entry.path));
        if total <= keep || recent || needed {
            kept.push(entry);
            continue;
        }
        let home = if entry.kind == "objects" { entry.path.parent().unwrap_or(&entry.path) } else { &entry.path };
        // Held until it is gone, so that no build begins in it meanwhile.
        match held(home) {
            None => kept.push(entry),
            Some(_lock) => {
                remove(&entry.path)?;
                total = total.saturating_sub(entry.bytes);
                removed.push(entry.clone());
            }
        }
    }
    Ok(removed)
}

/// A size as people write it: `20G`, `512M`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("`{text}` is not a size such as 20G, 512M or 0");
    let (number, factor) = match text.char_indices().last() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => {
            let shift = "KMGT".find(unit.to_ascii_uppercase()).ok_or_else(bad)? as u32 + 1;
            (&text[..at], 1u64 << (10 * shift))
        }
        _ => (text, 1),
    };
    number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).ok_or_else(bad)
}

fn children(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).trying(folder.display())?;
    // What begins with a dot is being made, or a lock.
    let mut all: Vec<PathBuf> =
        entries.flatten().map(|e| e.path()).filter(|path| !name_of(path).starts_with('.')).collect();
    all.retain(|path| path.is_dir() || path.extension().is_none());
    all.sort();
    Ok(all)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn entry(kind: &'static str, path: PathBuf) -> Entry {
    let files = walkdir::WalkDir::new(&path)
        .into_iter()
        .flatten()
        .filter_map(|file| file.metadata().ok().filter(|facts| facts.is_file()));
    let bytes = files.map(|facts| facts.blocks() * 512).sum();
    // A kernel's description is touched at every use, a build's marker of objects and a tree's record of its patches at every build.
    let marks =
        ["meta.json", "System.map", "tree/.git/topolab-applied", "order", "vmlinuz"].map(|mark| path.join(mark));
    let used =
        marks.iter().chain([&path]).filter_map(|mark| std::fs::metadata(mark).and_then(|m| m.modified()).ok()).max();
    let meta = std::fs::read(path.join("meta.json"))
        .ok()
        .and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    let said = meta.and_then(|meta| meta["name"].as_str().map(str::to_string));
    let of = path.parent().map(name_of).unwrap_or_default();
    let name = match (said, kind) {
        (Some(name), _) => format!("{name} ({})", &name_of(&path)[..12.min(name_of(&path).len())]),
        (None, "objects") => format!("{} of {of}", name_of(&path).trim_start_matches("build-")),
        (None, "source") if name_of(&path).starts_with("slot-") => format!("{of} {}", name_of(&path)),
        (None, _) => name_of(&path),
    };
    Entry { kind, name, path, bytes, used: used.unwrap_or(SystemTime::UNIX_EPOCH) }
}

/// The lock of a folder that is built in, if it has one and nobody holds it.
fn held(folder: &Path) -> Option<Option<Flock<std::fs::File>>> {
    match std::fs::File::open(folder.join("lock")) {
        Err(_) => Some(None),
        Ok(file) => Flock::lock(file, FlockArg::LockExclusiveNonblock).ok().map(Some),
    }
}

/// Removes an entry: under another name first, so that a killed removal leaves nothing that looks whole.
fn remove(path: &Path) -> Outcome<()> {
    let parent = path.parent().ok_or_else(|| Fault::lab("a cache entry without a folder"))?;
    let gone = parent.join(format!(".removing-{}", name_of(path)));
    std::fs::rename(path, &gone).trying(path.display())?;
    match gone.is_dir() {
        true => std::fs::remove_dir_all(&gone).trying(gone.display()),
        false => std::fs::remove_file(&gone).trying(gone.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_size("20G"), Ok(20 << 30));
        assert_eq!(parse_size("512m"), Ok(512 << 20));
        assert_eq!(parse_size("0"), Ok(0));
        for bad in ["", "G", "-1", "1.5G", "2X"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_oldest_goes_first_and_what_is_in_use_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = CacheDir::locate(Some(folder.path().join("cache"))).expect("a cache");
        let put = |place: &str, hours: u64| {
            let path = cache.root().join(place);
            std::fs::create_dir_all(&path).expect("a folder");
            std::fs::write(path.join("meta.json"), vec![b' '; 100_000]).expect("a file");
            let time = SystemTime::now() - Duration::from_secs(hours * 3600);
            for mark in [path.join("meta.json"), path.clone()] {
                std::fs::File::open(mark).and_then(|file| file.set_modified(time)).expect("a time");
            }
        };
        put("kernels/old", 30);
        put("kernels/older", 40);
        put("kernels/new", 0);
        let names = |entries: Vec<Entry>| entries.into_iter().map(|e| e.name).collect::<Vec<_>>();
        assert_eq!(names(list(&cache).expect("a list")), ["new", "old", "older"]);
        assert_eq!(names(prune(&cache, 250_000).expect("pruned")), ["older"]);
        assert_eq!(names(prune(&cache, 0).expect("pruned")), ["old"]);
        assert_eq!(names(list(&cache).expect("a list")), ["new"]);
    }
}
