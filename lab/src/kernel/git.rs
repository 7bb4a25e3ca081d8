//! Kernels from a git repository or from a work tree as it stands. The user's checkout, index and objects are only read: the lab
//! has repositories of its own, which borrow the user's objects (git, Documentation/gitrepository-layout, `alternates`).
//!
//! A commit is checked out into a slot: a work tree with its builds. Moving a slot from one commit to another changes only the files
//! that differ, so that make compiles only those; the slot whose commit is nearest is taken.

use super::source::{DISK, Origin, Source, version_of};
use crate::cancel::Cancel;
use crate::digest;
use crate::fault::{Fault, Outcome, Trying};
use crate::lock;
use crate::paths::{CacheDir, require_disk};
use crate::progress::Progress;
use duct::cmd;
use std::path::{Path, PathBuf};

/// Slots of one repository: work tree and builds are 2 to 3 GiB each.
const SLOTS: usize = 2;
/// Files that a slot's commit may differ by before another slot is begun: between two releases some 12,000 do, within a
/// development cycle's week a few hundred.
const FAR: usize = 3000;
/// Runs git: for the user's repository with the user's configuration (safe.directory), for ours without any.
pub(super) struct Git {
    folder: PathBuf,
    env: Vec<(&'static str, PathBuf)>,
    ours: bool,
}

impl Git {
    fn of_user(folder: &Path) -> Self {
        Self { folder: folder.into(), env: Vec::new(), ours: false }
    }

    pub(super) fn ours(tree: &Path) -> Self {
        let env = vec![("GIT_DIR", tree.join(".git")), ("GIT_WORK_TREE", tree.into())];
        Self { folder: tree.into(), env, ours: true }
    }

    fn command(&self, words: &[&str]) -> duct::Expression {
        let mut git = cmd("git", words).dir(&self.folder).stdin_null().stderr_capture().unchecked();
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
            git = git.env_remove(name);
        }
        for (name, value) in [("LC_ALL", "C"), ("GIT_OPTIONAL_LOCKS", "0"), ("GIT_TERMINAL_PROMPT", "0")] {
            git = git.env(name, value);
        }
        if self.ours {
            for (name, value) in [
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_AUTHOR_NAME", "topolab"),
                ("GIT_AUTHOR_EMAIL", "topolab@localhost"),
                ("GIT_AUTHOR_DATE", "1767225600 +0000"),
                ("GIT_COMMITTER_NAME", "topolab"),
                ("GIT_COMMITTER_EMAIL", "topolab@localhost"),
                ("GIT_COMMITTER_DATE", "1767225600 +0000"),
            ] {
                git = git.env(name, value);
            }
        }
        for (name, value) in &self.env {
            git = git.env(name, value);
        }
        git
    }

    /// What it prints, or what it says when it fails.
    pub(super) fn run(&self, words: &[&str]) -> Outcome<Result<String, String>> {
        let output = self.command(words).stdout_capture().run().trying("git")?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Ok(match output.status.success() {
            true => Ok(out.into_owned()),
            false => Err(format!("{err}{out}")),
        })
    }

    /// What it says on its standard error, whether it succeeds or fails.
    pub(super) fn words_of(&self, words: &[&str]) -> Outcome<Result<String, String>> {
        let output = self.command(words).stdout_capture().run().trying("git")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(if output.status.success() { Ok(said) } else { Err(said) })
    }

    /// Writes what it prints to a file, byte for byte.
    pub(super) fn write(&self, words: &[&str], to: &Path) -> Outcome<()> {
        let output = self.command(words).stdout_path(to).run().trying("git")?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Fault::lab(format!("git {} failed", words.join(" ")))
                .detail(String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// Begins a repository of the lab's with its work tree.
    pub(super) fn begin(&self) -> Outcome<()> {
        self.must(&["init", "-q", "-b", "pristine"])?;
        for (key, value) in [("core.autocrlf", "false"), ("gc.auto", "0"), ("advice.detachedHead", "false")] {
            self.must(&["config", key, value])?;
        }
        Ok(())
    }

    /// What it prints; a failure is the lab's.
    pub(super) fn must(&self, words: &[&str]) -> Outcome<String> {
        self.run(words)?.map_err(|said| {
            let shown = words.iter().take(6).copied().collect::<Vec<_>>().join(" ");
            Fault::lab(format!("git {shown} failed in the lab's repository")).detail(said.trim())
        })
    }
}

/// A commit of the user's repository.
pub(super) fn commit(
    folder: &Path,
    revision: &str,
    cache: &CacheDir,
    progress: Progress,
    cancel: &Cancel,
) -> Outcome<Source> {
    let user = Git::of_user(folder);
    let place = format!("git:{}@{revision}", folder.display());
    let asked = |words: &[&str], what: &str| -> Outcome<String> {
        if !folder.is_dir() {
            return Err(Fault::input(format!("{place}: there is no such folder")));
        }
        let said = user.run(words)?.map_err(|said| Fault::input(format!("{place}: {what}")).detail(said.trim()))?;
        Ok(said.trim().to_string())
    };
    let objects =
        asked(&["rev-parse", "--path-format=absolute", "--git-path", "objects"], "this is no git repository")?;
    let named = format!("{revision}^{{commit}}");
    let commit = asked(&["rev-parse", "--verify", "--end-of-options", &named], "there is no such commit")?;
    let tree = asked(&["rev-parse", "--verify", &format!("{commit}^{{tree}}")], "the commit has no tree")?;
    let makefile = asked(&["show", &format!("{commit}:Makefile")], "this is no kernel source: it has no Makefile")?;
    let version = version_of(&makefile, folder)?;
    let name = format!("{version} g{}", &commit[..12.min(commit.len())]);
    let home = home("git", Path::new(&objects), cache)?;
    let source = |slot: PathBuf| Source {
        folder: slot,
        identity: format!("git tree {tree}"),
        version: version.clone(),
        name: name.clone(),
        origin: Origin::Commit(commit.clone()),
    };
    slot(&home, &PathBuf::from(objects), &commit, progress, cancel).map(source)
}

/// A work tree as it stands. Its content becomes a commit of a repository of ours; what its repository ignores and does not track, a
/// build's products above all, is no source.
pub(super) fn work_tree(folder: &Path, cache: &CacheDir, progress: Progress, cancel: &Cancel) -> Outcome<Source> {
    let place = format!("tree:{}", folder.display());
    let root = folder.canonicalize().map_err(|e| Fault::input(format!("{place}: {e}")))?;
    let makefile = std::fs::read_to_string(root.join("Makefile"))
        .map_err(|e| Fault::input(format!("{place}: this is no kernel source: Makefile: {e}")))?;
    let version = version_of(&makefile, &root)?;
    let home = home("tree", &root, cache)?;
    let _lock = lock::exclusive(&home.join("lock"), cancel)?;
    let store = home.join("content.git");
    let ours = Git {
        folder: root.clone(),
        env: vec![("GIT_DIR", store.clone()), ("GIT_WORK_TREE", root.clone())],
        ours: true,
    };
    let objects = objects_of(&root)?;
    if !store.join("ready").is_file() {
        let _ = std::fs::remove_dir_all(&store);
        progress.say(format!("reading {} for the first time", root.display()));
        std::fs::create_dir_all(&store).trying(store.display())?;
        ours.must(&["init", "-q"])?;
        // Speed over size: the objects are read once or twice.
        for (key, value) in [
            ("core.autocrlf", "false"),
            ("core.compression", "0"),
            ("core.untrackedCache", "true"),
            ("index.version", "4"),
            ("gc.auto", "0"),
        ] {
            ours.must(&["config", key, value])?;
        }
        // What the user's repository has need not be stored again.
        if let Ok(objects) = &objects {
            lend(&store.join("objects"), Path::new(objects))?;
            if let Ok(known) = Git::of_user(&root).run(&["rev-parse", "--verify", "HEAD^{tree}"])? {
                ours.must(&["read-tree", known.trim()])?;
            }
        }
        std::fs::write(store.join("ready"), "").trying(store.display())?;
    }
    // A killed run leaves its lock; ours says that no other run is at work here.
    let _ = std::fs::remove_file(store.join("index.lock"));
    match objects {
        Ok(_) => {
            // The user's own excludes hold as well; what the user tracks is source even where a .gitignore names it.
            let excludes = format!("core.excludesFile={}", root.join(".git/info/exclude").display());
            ours.must(&["-c", &excludes, "add", "-A", "."])?;
            let tracked = Git::of_user(&root).run(&["ls-files", "-i", "-c", "--exclude-standard"])?.unwrap_or_default();
            if !tracked.is_empty() {
                let ours_already = ours.must(&["ls-files"])?;
                let known: std::collections::BTreeSet<&str> = ours_already.lines().collect();
                let new = |name: &&str| !known.contains(name) && root.join(name).symlink_metadata().is_ok();
                let named: Vec<&str> = tracked.lines().filter(new).collect();
                for some in named.chunks(1000) {
                    ours.must(&[&["add", "-f", "--"], some].concat())?;
                }
            }
        }
        // Nobody's .gitignore counts without a repository: that of Debian's packages names everything. Then nothing tells source
        // from products, so there may be none, as kbuild itself demands of a source that is built elsewhere.
        Err(_) => {
            if [".config", "include/config", "vmlinux"].iter().any(|made| root.join(made).exists()) {
                return Err(Fault::input(format!(
                    "{place}: a kernel was built in this folder, and no repository says what is source"
                ))
                .help("make mrproper there, or use image:FILE for the kernel that was built"));
            }
            ours.must(&["add", "-A", "-f", "."])?;
        }
    }
    if ours.run(&["ls-files", "--error-unmatch", "Makefile", "Kconfig"])?.is_err() {
        return Err(Fault::input(format!(
            "{place}: its .gitignore names the source itself, so that nothing of it is tracked"
        ))
        .help("git add -f what is source, or remove the .git folder"));
    }
    let tree = ours.must(&["write-tree"])?.trim().to_string();
    let commit = ours.must(&["commit-tree", &tree, "-m", "as it stands"])?.trim().to_string();
    let slot = slot(&home, &store.join("objects"), &commit, progress, cancel)?;
    Ok(Source {
        folder: slot,
        identity: format!("git tree {tree}"),
        name: format!("{version} tree {}", &tree[..12.min(tree.len())]),
        version,
        origin: Origin::Commit(commit),
    })
}

/// Where the objects of the repository are that a folder is the top of, or why it is none's.
fn objects_of(root: &Path) -> Outcome<Result<String, String>> {
    // A folder somewhere inside another repository is no work tree of it.
    if !root.join(".git").exists() {
        return Ok(Err("no .git here".into()));
    }
    let said = Git::of_user(root).run(&["rev-parse", "--path-format=absolute", "--git-path", "objects"])?;
    Ok(said.map(|objects| objects.trim().to_string()))
}

/// A folder for a repository's slots, by where its objects are.
fn home(kind: &str, place: &Path, cache: &CacheDir) -> Outcome<PathBuf> {
    let id = digest::hex(&[place.as_os_str().as_encoded_bytes()]);
    let home = cache.plain_folder("sources")?.join(format!("{kind}-{}", &id[..16]));
    std::fs::create_dir_all(&home).trying(home.display())?;
    Ok(home)
}

/// Lets a repository read another one's objects.
pub(super) fn lend(objects: &Path, from: &Path) -> Outcome<()> {
    let info = objects.join("info");
    std::fs::create_dir_all(&info).trying(info.display())?;
    std::fs::write(info.join("alternates"), format!("{}\n", from.display())).trying(info.display())
}

/// The slot to build a commit in.
fn slot(home: &Path, objects: &Path, commit: &str, progress: Progress, cancel: &Cancel) -> Outcome<PathBuf> {
    let _lock = lock::exclusive(&home.join("slots.lock"), cancel)?;
    let mut known = Vec::new();
    for n in 0..SLOTS {
        let slot = home.join(format!("slot-{n}"));
        if let Ok(at) = std::fs::read_to_string(slot.join("commit")) {
            known.push((distance(&slot.join("tree"), at.trim(), commit)?, slot));
        }
    }
    known.sort();
    let nearest = known.first().cloned();
    let slot = match nearest {
        Some((differing, slot)) if differing <= FAR || known.len() >= SLOTS => slot,
        Some(_) | None => {
            let taken = |n: &usize| known.iter().any(|(_, slot)| slot.ends_with(format!("slot-{n}")));
            let slot = home.join(format!("slot-{}", (0..SLOTS).find(|n| !taken(n)).unwrap_or(0)));
            require_disk(home, DISK, "a kernel's work tree and its build")?;
            progress.say(format!("checking {} out into a work tree of the lab", &commit[..12.min(commit.len())]));
            let tree = slot.join("tree");
            std::fs::create_dir_all(&tree).trying(tree.display())?;
            Git::ours(&tree).begin()?;
            lend(&tree.join(".git/objects"), objects)?;
            slot
        }
    };
    // Whoever builds next to this commit finds this slot, and waits for it if it is busy.
    digest::write_whole(&slot.join("commit"), commit.as_bytes())?;
    Ok(slot)
}

/// How many files differ between two commits; everything, where one of them is gone.
fn distance(tree: &Path, from: &str, to: &str) -> Outcome<usize> {
    if from == to {
        return Ok(0);
    }
    let said = Git::ours(tree).run(&["diff", "--name-only", "--no-renames", from, to])?;
    Ok(said.map_or(usize::MAX, |names| names.lines().count()))
}

#[cfg(test)]
mod tests;
