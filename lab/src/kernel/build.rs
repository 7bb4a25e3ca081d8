//! Builds a kernel out of tree, and the busy module against it.
//!
//! One build folder per source and configuration is kept, so that a patched kernel compiles only what its base has not, and
//! a kernel with other symbols does not undo that.
//! A build that was killed leaves a marker; the next one removes every file newer than it, since a compiler or linker killed in
//! the middle leaves a torn file with a fresh time stamp.

use super::compiler::Compiler;
use super::config::{self, Fragment};
use super::source::Source;
use super::store::{self, Kernel, Meta};
use super::tree::Applied;
use super::{Wish, signature, tree};
use crate::cancel::Cancel;
use crate::digest;
use crate::fault::{Fault, FaultKind, Outcome, Trying};
use crate::lock;
use crate::paths::{CacheDir, require_disk};
use crate::progress::{Counter, Progress};
use crate::sys;
use crate::topology::Arch;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Version of the recipe: part of every key.
const RECIPE: &str = "2";
/// Room for one build folder.
const DISK: u64 = 1 << 30;
/// Objects of a lean kernel, until a build has counted them.
const OBJECTS: u64 = 1450;
/// Make's words for making something that counts.
const STEPS: &[&str] = &["  CC ", "  AS ", "  LD ", "  AR ", "  HOSTCC "];

const BUSY_SOURCE: &str = include_str!("../../busy/topolab_busy.c");
const BUSY_KBUILD: &str = include_str!("../../busy/Kbuild");

/// Finds the kernel in the store or builds it.
pub(super) fn provide(
    source: &Source,
    wish: &Wish,
    fragments: &[Fragment],
    cache: &CacheDir,
    progress: Progress,
    cancel: &Cancel,
) -> Outcome<Kernel> {
    let compiler = Compiler::find(wish.toolchain, wish.arch)?;
    let key = key(source, wish, fragments, &compiler);
    if let Some(kernel) = store::find(cache, &key)? {
        return Ok(kernel);
    }
    // One builder per key, and one per tree; whoever waited looks again, since the other one may have built this very key.
    let _key = lock::exclusive(&cache.folder("locks")?.join(&key), cancel)?;
    let tree = lock::exclusive(&source.folder.join("lock"), cancel)?;
    if let Some(kernel) = store::find(cache, &key)? {
        return Ok(kernel);
    }
    require_disk(&source.folder, DISK, "a kernel build")?;
    let applied = tree::apply(source, &wish.series)?;
    // A hunk may have gone where nobody meant it to go.
    Applied::said(&applied).into_iter().for_each(|note| progress.say(note));
    let logs = cache.folder("logs")?;
    // Objects of another compiler are no use, and two would undo each other's.
    let mixed = digest::hex(&[config::digest(fragments).as_bytes(), compiler.version.as_bytes()]);
    let build = Build {
        tree: source.tree(),
        out: source.folder.join(format!("build-{}-{}", wish.arch, &mixed[..12])),
        log: logs.join(format!("{key}.log")),
        ccache: compiler.cached.then(|| cache.folder("ccache")).transpose()?,
        compiler: &compiler,
        arch: wish.arch,
        tree_lock: &tree,
        cancel,
    };
    let begun = Instant::now();
    let name = name(source, wish);
    build.all(fragments, &name, progress)?;
    let meta = Meta {
        name,
        source: source.identity.clone(),
        series: wish.series.iter().map(|series| series.name.clone()).collect(),
        compiler: compiler.version.clone(),
        applied,
        seconds: begun.elapsed().as_secs(),
        ..Meta::default()
    };
    build.keep(&key, meta, fragments, cache)
}

/// Source, patches, configuration, compiler, module and recipe decide a kernel; nothing else does.
fn key(source: &Source, wish: &Wish, fragments: &[Fragment], compiler: &Compiler) -> String {
    let patches: Vec<String> = wish.series.iter().map(|series| series.content()).collect();
    let arch = wish.arch.to_string();
    let mut parts: Vec<&[u8]> = vec![RECIPE.as_bytes(), source.identity.as_bytes(), arch.as_bytes()];
    parts.extend([compiler.version.as_bytes(), BUSY_SOURCE.as_bytes(), BUSY_KBUILD.as_bytes()]);
    let counts = [patches.len() as u8];
    parts.push(&counts);
    parts.extend(patches.iter().map(String::as_bytes));
    parts.extend(fragments.iter().map(|fragment| fragment.text.as_bytes()));
    digest::hex(&parts)
}

fn name(source: &Source, wish: &Wish) -> String {
    let mut name = source.name.clone();
    for series in &wish.series {
        name.push_str(" + ");
        name.push_str(&series.name);
    }
    name
}

/// Ends make and its compilers, which share a group; their output ends with them.
fn end_group(make: &std::process::Child) {
    if let Ok(group) = i32::try_from(make.id()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGTERM);
    }
}

/// What make makes of a kernel, and where that lies.
fn product(arch: Arch) -> (&'static str, &'static str) {
    match arch {
        Arch::X86_64 => ("bzImage", "arch/x86/boot/bzImage"),
        Arch::Aarch64 => ("Image", "arch/arm64/boot/Image"),
        // QEMU's pseries starts the ELF file itself (hw/ppc/spapr.c, `load_elf`).
        Arch::Ppc64le => ("vmlinux", "vmlinux"),
    }
}

struct Build<'a> {
    tree: PathBuf,
    out: PathBuf,
    log: PathBuf,
    ccache: Option<PathBuf>,
    compiler: &'a Compiler,
    arch: Arch,
    tree_lock: &'a lock::Held,
    cancel: &'a Cancel,
}

impl Build<'_> {
    fn all(&self, fragments: &[Fragment], name: &str, progress: Progress) -> Outcome<()> {
        std::fs::create_dir_all(&self.out).trying(self.out.display())?;
        std::fs::write(&self.log, "").trying(self.log.display())?;
        self.remove_torn_files()?;
        let marker = self.out.join(".topolab-building");
        std::fs::write(&marker, "").trying(marker.display())?;
        let made = self.steps(fragments, name, progress);
        match &made {
            // Not killed, but refused: make has removed what it could not finish (GNU make, "Errors in Recipes").
            Ok(()) => {}
            Err(fault) if fault.kind == FaultKind::Build => {}
            Err(_) => return made,
        }
        std::fs::remove_file(&marker).trying(marker.display())?;
        made
    }

    fn steps(&self, fragments: &[Fragment], name: &str, progress: Progress) -> Outcome<()> {
        self.configure(fragments)?;
        let memo = self.out.join(".topolab-objects");
        let known = std::fs::read_to_string(&memo).ok().and_then(|text| text.parse().ok());
        let mut counter = progress.count(&format!("building kernel {name}"), known.unwrap_or(OBJECTS));
        let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let made = self.make(&[&format!("-j{jobs}"), product(self.arch).0, "modules"], Some(&mut counter))?;
        counter.end();
        if known.is_none() {
            std::fs::write(&memo, made.to_string()).trying(memo.display())?;
        }
        self.busy_module()
    }

    /// A killed build leaves torn files with fresh time stamps: everything since its beginning goes, and is made again.
    fn remove_torn_files(&self) -> Outcome<()> {
        let marker = self.out.join(".topolab-building");
        let Ok(since) = std::fs::metadata(&marker).and_then(|m| m.modified()) else { return Ok(()) };
        for entry in walkdir::WalkDir::new(&self.out).into_iter().flatten() {
            let fresh = entry.metadata().ok().and_then(|m| m.modified().ok()).is_some_and(|time| time >= since);
            if fresh && entry.file_type().is_file() && entry.path() != marker {
                std::fs::remove_file(entry.path()).trying(entry.path().display())?;
            }
        }
        Ok(())
    }

    fn configure(&self, fragments: &[Fragment]) -> Outcome<()> {
        let path = self.out.join(".config");
        // Seconds at every build, which a changed fair.c need not pay: the same questions get the same answers.
        let memo = self.out.join(".topolab-configured");
        let asked = self.questions(fragments)?;
        if path.is_file() && std::fs::read_to_string(&memo).ok().as_deref() == Some(&asked) {
            return Ok(());
        }
        let _ = std::fs::remove_file(&memo);
        self.make(&["tinyconfig"], None)?;
        let mut text = std::fs::read_to_string(&path).trying(path.display())?;
        for fragment in fragments {
            text.push_str(&fragment.text);
            text.push('\n');
        }
        std::fs::write(&path, text).trying(path.display())?;
        self.make(&["olddefconfig"], None)?;
        let made = std::fs::read_to_string(&path).trying(path.display())?;
        config::verify(fragments, &made, &self.tree, self.arch)?;
        // What kconfig made of it, after this: make itself rewrites the file only when a Kconfig file changes.
        std::fs::write(&memo, &asked).trying(memo.display())
    }

    /// What a configuration depends on: the fragments, the compiler, the Kconfig files and what they ask the compiler with.
    fn questions(&self, fragments: &[Fragment]) -> Outcome<String> {
        let mut parts = vec![config::digest(fragments).into_bytes(), self.compiler.version.clone().into_bytes()];
        let tests = [
            "scripts/Kconfig.include",
            "scripts/min-tool-version.sh",
            "scripts/cc-version.sh",
            "scripts/ld-version.sh",
        ];
        let tests = tests.map(|name| self.tree.join(name)).into_iter().filter(|path| path.is_file());
        let plain = |entry: &walkdir::DirEntry| {
            entry.file_type().is_dir() || entry.file_name().to_string_lossy().starts_with("Kconfig")
        };
        let hidden = |entry: &walkdir::DirEntry| {
            entry.depth() == 1 && [".git", "Documentation", "tools"].iter().any(|name| entry.file_name() == *name)
        };
        let walk = walkdir::WalkDir::new(&self.tree).sort_by_file_name().into_iter();
        let files = walk
            .filter_entry(|entry| plain(entry) && !hidden(entry))
            .flatten()
            .filter(|entry| entry.file_type().is_file());
        for path in files.map(walkdir::DirEntry::into_path).chain(tests) {
            parts.push(path.strip_prefix(&self.tree).unwrap_or(&path).as_os_str().as_encoded_bytes().to_vec());
            parts.push(std::fs::read(&path).trying(path.display())?);
        }
        Ok(digest::hex(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    }

    /// The module is built against this very kernel, in a folder of its own.
    fn busy_module(&self) -> Outcome<()> {
        let folder = self.out.join("topolab-busy");
        std::fs::create_dir_all(&folder).trying(folder.display())?;
        std::fs::write(folder.join("topolab_busy.c"), BUSY_SOURCE).trying(folder.display())?;
        std::fs::write(folder.join("Kbuild"), BUSY_KBUILD).trying(folder.display())?;
        let header = self.tree.join("kernel/sched/sched.h");
        let text = std::fs::read_to_string(&header).trying(header.display())?;
        let sync = text
            .lines()
            .find_map(|line| line.strip_prefix("#define WF_SYNC"))
            .and_then(|rest| rest.split_whitespace().next());
        let sync = sync.ok_or_else(|| Fault::new(FaultKind::Build, "kernel/sched/sched.h defines no WF_SYNC: the busy module cannot count synchronous wakeups on this kernel"))?;
        self.make(&[&format!("M={}", folder.display()), &format!("TOPOLAB_WF_SYNC={sync}"), "modules"], None)
            .map(|_| ())
    }

    /// Runs make, appends to the log, and returns how many things it made.
    fn make(&self, words: &[&str], mut counter: Option<&mut Counter>) -> Outcome<u64> {
        self.cancel.check()?;
        let mut command = Command::new("make");
        command.arg("-C").arg(&self.tree).arg(format!("O={}", self.out.display()));
        command.args(&self.compiler.words).args(words);
        // Nothing of the moment or of the person goes into an image: not even LLVM=1 or KCFLAGS of a developer's shell, which
        // the key does not know.
        command.env_clear();
        for name in ["PATH", "HOME", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        for (name, value) in [
            ("KBUILD_BUILD_TIMESTAMP", "Thu Jan  1 00:00:00 UTC 2026"),
            ("KBUILD_BUILD_USER", "topolab"),
            ("KBUILD_BUILD_HOST", "topolab"),
            ("KBUILD_BUILD_VERSION", "1"),
            ("LOCALVERSION", ""),
            ("LC_ALL", "C"),
        ] {
            command.env(name, value);
        }
        if let Some(folder) = &self.ccache {
            command.env("CCACHE_DIR", folder);
        }
        let errors = File::options().append(true).open(&self.log).trying(self.log.display())?;
        let mut log = errors.try_clone().trying(self.log.display())?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        sys::tie_to_this_thread(&mut command);
        // A killed lab leaves compilers behind for a moment: the lock is theirs too, so that nobody builds under their hands.
        let shared = self.tree_lock.try_clone().trying("the tree's lock")?;
        sys::hand_down(&mut command, shared.into());
        let mut child = command.spawn().trying("make")?;
        let stdout = child.stdout.take().ok_or_else(|| Fault::lab("make has no output"))?;
        let (sender, lines) = channel();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut made = 0;
        loop {
            match lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) if self.cancel.requested() => {
                    writeln!(log, "{line}").trying(self.log.display())?;
                    end_group(&child);
                }
                Ok(line) => {
                    writeln!(log, "{line}").trying(self.log.display())?;
                    if STEPS.iter().any(|step| line.starts_with(step)) {
                        made += 1;
                        if let Some(counter) = counter.as_deref_mut() {
                            counter.at(made);
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.cancel.requested() => end_group(&child),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait().trying("make")?;
        let _ = reader.join();
        self.cancel.check()?;
        match (status.success(), status.code()) {
            (true, _) => Ok(made),
            (false, Some(_)) => Err(self.failure(words)),
            // What a signal ended may have left torn files: a fault of the lab, after which they are removed.
            (false, None) => Err(Fault::lab(format!("make {} was killed ({status})", words.join(" ")))
                .help("too little memory? the kernel's log says so; the next build goes on from here")),
        }
    }

    /// The first error of the log with the lines around it.
    fn failure(&self, words: &[&str]) -> Fault {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let is_error =
            |line: &&str| line.contains("error:") || line.contains("*** ") || line.contains("undefined reference");
        let first = lines.iter().position(is_error).unwrap_or(lines.len().saturating_sub(1));
        let shown = lines[first.saturating_sub(2)..(first + 8).min(lines.len())].join("\n");
        Fault::new(FaultKind::Build, format!("the kernel does not build: make {} failed", words.join(" ")))
            .detail(format!("{shown}\n\nthe whole log: {}", self.log.display()))
    }

    /// Puts the finished kernel into the store.
    fn keep(&self, key: &str, meta: Meta, fragments: &[Fragment], cache: &CacheDir) -> Outcome<Kernel> {
        let folder = store::folder(cache)?;
        let scratch = tempfile::Builder::new().prefix(".keeping-").tempdir_in(&folder).trying(folder.display())?;
        let copy = |from: &str, to: &str| {
            let from = self.out.join(from);
            let to = scratch.path().join(to);
            std::fs::copy(&from, &to).trying(from.display())?;
            // The entry is renamed into place: after a power cut it must not be there with empty files.
            File::open(&to).and_then(|file| file.sync_all()).trying(to.display())
        };
        let (image, place) = product(self.arch);
        copy(place, image)?;
        copy(".config", "config")?;
        // What was asked, for who wonders why a symbol is what it is.
        let asked: String = fragments.iter().map(|f| format!("# {}\n{}\n", f.name, f.text.trim_end())).collect();
        std::fs::write(scratch.path().join("requested.config"), asked).trying("requested.config")?;
        copy("topolab-busy/topolab_busy.ko", "topolab_busy.ko")?;
        let release =
            std::fs::read_to_string(self.out.join("include/config/kernel.release")).trying("kernel.release")?;
        let meta = Meta {
            release: release.trim().to_string(),
            config_sha256: digest::hex_of_file(&scratch.path().join("config"))?,
            image_sha256: digest::hex_of_file(&scratch.path().join(image))?,
            image: image.into(),
            signature: signature::of(&self.out.join("vmlinux"))?,
            ..meta
        };
        let json = serde_json::to_vec_pretty(&meta).trying("meta.json")?;
        digest::write_whole(&scratch.path().join("meta.json"), &json)?;
        let entry = folder.join(key);
        std::fs::rename(scratch.keep(), &entry).trying(entry.display())?;
        store::find(cache, key)?.ok_or_else(|| Fault::lab(format!("{} vanished", entry.display())))
    }
}
