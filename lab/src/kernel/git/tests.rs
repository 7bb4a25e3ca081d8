//! A user's repository with a history, read and never touched.

use super::super::tree;
use super::*;
use crate::fault::FaultKind;
use std::collections::BTreeMap;

const MAKEFILE: &str = "VERSION = 7\nPATCHLEVEL = 2\nSUBLEVEL = 1\nEXTRAVERSION =\n";

struct Scene {
    folder: tempfile::TempDir,
    cache: CacheDir,
}

impl Scene {
    /// A repository of two commits, with a change in the index, another one beside it, and a product that is ignored.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = CacheDir::locate(Some(folder.path().join("cache"))).expect("a cache");
        let scene = Self { folder, cache };
        std::fs::create_dir_all(scene.user().join("kernel")).expect("a folder");
        for (name, text) in [("Makefile", MAKEFILE), ("Kconfig", ""), ("kernel/f.c", "one\n"), (".gitignore", "*.o\n")]
        {
            scene.write(name, text);
        }
        scene.git(&["init", "-q", "-b", "main"]);
        scene.git(&["add", "-A"]);
        scene.git(&["commit", "-q", "-m", "first"]);
        scene.write("kernel/f.c", "two\n");
        scene.git(&["commit", "-q", "-a", "-m", "second"]);
        scene.write("kernel/f.c", "staged\n");
        scene.git(&["add", "-A"]);
        scene.write("kernel/f.c", "dirty\n");
        scene.write("kernel/f.o", "object\n");
        scene.write("kernel/new.c", "new\n");
        scene
    }

    fn user(&self) -> PathBuf {
        self.folder.path().join("linux")
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.user().join(name), text).expect("a file");
    }

    fn git(&self, words: &[&str]) -> String {
        Git { folder: self.user(), env: Vec::new(), ours: true }.must(words).expect("git")
    }

    fn commit(&self, revision: &str) -> Outcome<Source> {
        commit(&self.user(), revision, &self.cache, Progress::choose(true), &Cancel::default())
    }

    fn as_it_stands(&self) -> Source {
        work_tree(&self.user(), &self.cache, Progress::choose(true), &Cancel::default()).expect("a source")
    }

    /// The bytes of everything that is the user's, the repository included.
    fn everything(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files =
            walkdir::WalkDir::new(self.user()).into_iter().flatten().filter(|entry| entry.file_type().is_file());
        files.map(|file| (file.path().to_path_buf(), std::fs::read(file.path()).expect("readable"))).collect()
    }
}

fn read(source: &Source, name: &str) -> String {
    tree::apply(source, &[]).expect("a tree");
    std::fs::read_to_string(source.tree().join(name)).expect("a file")
}

#[test]
fn a_commit_is_built_from_while_the_checkout_stays_as_it_is() {
    let scene = Scene::new();
    let before = scene.everything();
    let first = scene.commit("HEAD~1").expect("a source");
    assert_eq!((first.version.as_str(), read(&first, "kernel/f.c").as_str()), ("7.2.1", "one\n"));
    let second = scene.commit("main").expect("a source");
    assert_eq!(read(&second, "kernel/f.c"), "two\n");
    // The neighbour's work tree and objects are used again.
    assert_eq!(first.folder, second.folder);
    assert_ne!(first.identity, second.identity);
    assert_eq!(scene.everything(), before);
}

#[test]
fn a_tree_as_it_stands_is_keyed_by_its_content() {
    let scene = Scene::new();
    let before = scene.everything();
    let dirty = scene.as_it_stands();
    assert_eq!(read(&dirty, "kernel/f.c"), "dirty\n");
    assert_eq!(read(&dirty, "kernel/new.c"), "new\n");
    assert!(!dirty.tree().join("kernel/f.o").exists(), "a product is no source");
    assert_eq!(scene.as_it_stands(), dirty);
    assert_eq!(scene.everything(), before);
    scene.write("kernel/f.c", "dirtier\n");
    let dirtier = scene.as_it_stands();
    assert_ne!(dirtier.identity, dirty.identity);
    assert_eq!(read(&dirtier, "kernel/f.c"), "dirtier\n");
    std::fs::remove_file(scene.user().join("kernel/new.c")).expect("a file");
    scene.git(&["checkout", "-q", "-f", "main"]);
    // The same content is the same kernel, whichever way it is named.
    let clean = scene.as_it_stands();
    assert_eq!(clean.identity, scene.commit("main").expect("a source").identity);
    assert!(!{
        read(&clean, "kernel/f.c");
        clean.tree().join("kernel/new.c").exists()
    });
}

#[test]
fn a_tree_without_git_is_a_source_too() {
    let scene = Scene::new();
    std::fs::remove_dir_all(scene.user().join(".git")).expect("a repository");
    // As Debian's source packages have it.
    scene.write(".gitignore", "*.o\n/*\n!/debian/\n");
    assert_eq!(read(&scene.as_it_stands(), "kernel/f.c"), "dirty\n");
    scene.write(".config", "");
    let built = work_tree(&scene.user(), &scene.cache, Progress::choose(true), &Cancel::default());
    assert!(built.is_err_and(|fault| fault.message.contains("built in this folder")));
}

#[test]
fn what_a_repository_tracks_is_source_though_it_ignores_it() {
    let scene = Scene::new();
    scene.write(".gitignore", "/*\n");
    assert!(scene.as_it_stands().tree().ends_with("tree"));
    assert_eq!(read(&scene.as_it_stands(), "kernel/f.c"), "dirty\n");
}

#[test]
fn what_is_no_kernel_or_no_commit_is_said() {
    let scene = Scene::new();
    let fault = scene.commit("v9.9").expect_err("no such tag");
    assert_eq!(fault.kind, FaultKind::Input);
    assert!(fault.message.contains("there is no such commit"), "{fault}");
    let nowhere = commit(Path::new("/nowhere"), "HEAD", &scene.cache, Progress::choose(true), &Cancel::default());
    assert!(nowhere.is_err_and(|fault| fault.message.contains("no such folder")));
    scene.git(&["rm", "-q", "--cached", "Makefile"]);
    scene.git(&["commit", "-q", "-m", "no kernel"]);
    assert!(scene.commit("HEAD").is_err_and(|fault| fault.message.contains("no kernel source")));
}
