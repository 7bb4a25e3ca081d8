//! Programs that Debian lacks, from a folder or a tarball that the user names: copied, built where there is something to build, and
//! taken into the image below /opt/NAME.

use super::tree;
use crate::bundle::Supply;
use crate::cancel::Cancel;
use crate::digest;
use crate::fault::{Fault, FaultKind, Outcome, Trying};
use crate::tar;
use crate::topology::Arch;
use duct::cmd;
use std::path::{Path, PathBuf};

/// A source that was found.
#[derive(Debug, Clone)]
pub struct Supplied {
    /// What the bundle wants of it.
    pub supply: Supply,
    /// Where it lies.
    pub path: PathBuf,
    /// Hash of its content, of how it is built and of the compiler.
    pub key: String,
}

/// A file in which a build's last lines are shown.
const LAST_LINES: usize = 20;

impl Supplied {
    /// Looks at what the user named for a supply; nothing long happens here.
    pub fn find(supply: &Supply, given: &[(String, PathBuf)], bundle: &str, arch: Arch) -> Outcome<Self> {
        let Some((_, path)) = given.iter().find(|(name, _)| *name == supply.name) else {
            let stand_in = supply.stand_in.as_ref();
            let other =
                stand_in.map(|name| format!("; the nearest that needs nothing of you is another bundle: -b {name}"));
            return Err(Fault::input(format!("bundle {bundle} needs {}, which Debian does not have", supply.name))
                .detail(&supply.about)
                .help(format!("--source {}=FOLDER or TARBALL{}", supply.name, other.unwrap_or_default())));
        };
        let content = match (path.is_dir(), path.is_file()) {
            (true, _) => tree::measure(path)?.0,
            (_, true) => digest::hex_of_file(path)?,
            (false, false) => {
                return Err(Fault::input(format!(
                    "--source {}={}: there is no such folder or file",
                    supply.name,
                    path.display()
                )));
            }
        };
        let compiler = match supply.build.is_empty() {
            true => String::new(),
            false => compilers(arch)?,
        };
        let decides =
            [supply.name.clone(), content, supply.build.join("\0"), supply.take.join("\0"), compiler, arch.to_string()];
        let key = digest::hex(&decides.each_ref().map(|text| text.as_bytes()));
        Ok(Self { supply: supply.clone(), path: path.clone(), key })
    }

    /// Builds it in `scratch` and puts what is wanted below `tree`/opt/NAME; returns that folder.
    pub(super) fn install(&self, scratch: &Path, tree: &Path, arch: Arch, cancel: &Cancel) -> Outcome<PathBuf> {
        cancel.check()?;
        let source = self.unpack(scratch)?;
        if let Some((program, words)) = self.supply.build.split_first() {
            self.build(program, words, &source, arch)?;
        }
        let home = tree.join("opt").join(&self.supply.name);
        for path in &self.supply.take {
            let from = source.join(path);
            if !from.exists() {
                let how = if self.supply.build.is_empty() { "it has" } else { "its build left" };
                return Err(Fault::input(format!("--source {}: {how} no {path}", self.supply.name))
                    .detail(format!("in {}", self.path.display())));
            }
            tree::copy(&from, &if path == "." { home.clone() } else { home.join(path) })?;
        }
        Ok(home)
    }

    fn unpack(&self, scratch: &Path) -> Outcome<PathBuf> {
        let folder = scratch.join("source");
        if self.path.is_dir() {
            tree::copy(&self.path, &folder)?;
            return Ok(folder);
        }
        std::fs::create_dir_all(&folder).trying(folder.display())?;
        tar::unpack(&self.path, &folder, &format!("--source {}: tar cannot read it", self.supply.name))?;
        // Most tarballs hold one folder.
        let inside: Vec<PathBuf> =
            std::fs::read_dir(&folder).trying(folder.display())?.flatten().map(|entry| entry.path()).collect();
        match inside.as_slice() {
            [only] if only.is_dir() => Ok(only.clone()),
            _ => Ok(folder),
        }
    }

    fn build(&self, program: &str, words: &[String], source: &Path, arch: Arch) -> Outcome<()> {
        let output = cmd(program, words)
            .dir(source)
            .env("CC", compiler(arch, "gcc"))
            .env("CXX", compiler(arch, "g++"))
            .env("HOST", arch.triplet())
            .env("LC_ALL", "C")
            .env("SOURCE_DATE_EPOCH", "1767225600")
            // Nothing else of a developer's shell goes into an image: the key does not know its CFLAGS. (In duct the outer word counts first.)
            .full_env(["PATH", "HOME", "TMPDIR"].iter().filter_map(|name| Some((*name, std::env::var_os(name)?))))
            .stdin_null()
            .stderr_to_stdout()
            .stdout_capture()
            .unchecked()
            .run()
            .map_err(|e| Fault::lab(format!("{program}: {e}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        let what =
            format!("--source {}: `{}` failed ({})", self.supply.name, self.supply.build.join(" "), output.status);
        Err(Fault::new(FaultKind::Input, what).detail(lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")))
    }
}

/// What the compilers say of themselves; a missing C++ compiler is a build's own matter.
fn compilers(arch: Arch) -> Outcome<String> {
    let version = |program: &str| cmd(compiler(arch, program), ["--version"]).stdin_null().stderr_null().read();
    let c = version("gcc").map_err(|e| {
        Fault::lab(format!("{}: {e}", compiler(arch, "gcc"))).help(format!("topolab doctor --fix -a {arch}"))
    })?;
    Ok(format!("{c}\n{}", version("g++").unwrap_or_default()))
}

/// The compiler for an architecture's programs.
fn compiler(arch: Arch, program: &str) -> String {
    match arch {
        Arch::X86_64 => program.to_string(),
        Arch::Aarch64 | Arch::Ppc64le => format!("{}-{program}", arch.triplet()),
    }
}
