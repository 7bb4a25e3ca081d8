//! The initramfs: the agent as /init, the order, the busy module, and a program tree where the clock asks for it; as one
//! uncompressed cpio (an emulated CPU would spend seconds on decompressing).

use crate::fault::{Fault, Outcome, Trying};
use crate::topology::Arch;
use cpio::newc::{Builder, trailer};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use topolab_wire::{ORDER_PATH, Order};

/// The agents, built and embedded by build.rs; empty where this build has none.
const X86_64: &[u8] = include_bytes!(env!("TOPOLAB_AGENT"));
const AARCH64: &[u8] = include_bytes!(env!("TOPOLAB_AGENT_AARCH64"));
const PPC64LE: &[u8] = include_bytes!(env!("TOPOLAB_AGENT_PPC64LE"));

/// The agent for guests of an architecture.
fn agent(arch: Arch) -> Outcome<&'static [u8]> {
    let agent = match arch {
        Arch::X86_64 => X86_64,
        Arch::Aarch64 => AARCH64,
        Arch::Ppc64le => PPC64LE,
    };
    match agent.is_empty() {
        false => Ok(agent),
        true => Err(Fault::lab(format!("this topolab was built without an agent for guests of {arch}")).help(
            "`ci/packages cross && ci/cross-rust` in its source fetches a compiler for it; then build topolab again",
        )),
    }
}

/// SHA-256 of an architecture's agent.
pub fn agent_digest(arch: Arch) -> Outcome<String> {
    Ok(crate::digest::hex(&[agent(arch)?]))
}

/// What goes in.
pub struct Contents<'a> {
    /// Whose agent.
    pub arch: Arch,
    /// The order.
    pub order: &'a Order,
    /// Kernel modules, for the places where the order names them, in its order.
    pub modules: &'a [PathBuf],
    /// A program tree to appear under /image.
    pub tree: Option<&'a Path>,
}

/// Where the initramfs carries these modules, in their order.
pub fn module_places(modules: &[PathBuf]) -> Vec<String> {
    let place = |(n, path): (usize, &PathBuf)| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        format!("/topolab/{n:02}-{name}")
    };
    modules.iter().enumerate().map(place).collect()
}

/// Writes the archive. The same contents give the same bytes: entries are sorted, and owners, times and inode numbers are
/// the archive's own.
pub fn write(to: &Path, contents: &Contents<'_>) -> Outcome<()> {
    let file = std::fs::File::create(to).trying(to.display())?;
    let mut archive = Archive { out: BufWriter::new(file), inode: 1 };
    for folder in ["bundle", "dev", "image", "out", "proc", "run", "sys", "tmp", "topolab"] {
        archive.folder(folder).trying(to.display())?;
    }
    archive.file("init", 0o755, agent(contents.arch)?).trying(to.display())?;
    let order = serde_json::to_vec(contents.order).trying("the order as JSON")?;
    archive.file(ORDER_PATH.trim_start_matches('/'), 0o644, &order).trying(to.display())?;
    for (name, module) in contents.order.modules.iter().zip(contents.modules) {
        let bytes = std::fs::read(module).trying(module.display())?;
        archive.file(name.trim_start_matches('/'), 0o644, &bytes).trying(to.display())?;
    }
    if let Some(tree) = contents.tree {
        archive.tree(tree, "image")?;
    }
    let mut out = trailer(archive.out).trying(to.display())?;
    out.flush().trying(to.display())
}

struct Archive<W: Write> {
    out: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) -> std::io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
        let mut writer = Builder::new(name).ino(self.inode).mode(mode).nlink(1).write(&mut self.out, size);
        writer.write_all(bytes)?;
        writer.finish()?;
        Ok(())
    }

    fn folder(&mut self, name: &str) -> std::io::Result<()> {
        self.entry(name, 0o040_755, &[])
    }

    fn file(&mut self, name: &str, permissions: u32, bytes: &[u8]) -> std::io::Result<()> {
        self.entry(name, 0o100_000 | permissions, bytes)
    }

    fn tree(&mut self, root: &Path, below: &str) -> Outcome<()> {
        for entry in walkdir::WalkDir::new(root).min_depth(1).sort_by_file_name() {
            let entry = entry.trying(root.display())?;
            let inside = entry.path().strip_prefix(root).trying(root.display())?;
            let name = format!("{below}/{}", inside.display());
            let kind = entry.file_type();
            let written = if kind.is_dir() {
                self.folder(&name)
            } else if kind.is_file() {
                let mode = entry.metadata().trying(entry.path().display())?.permissions().mode() & 0o777;
                let bytes = std::fs::read(entry.path()).trying(entry.path().display())?;
                self.file(&name, mode, &bytes)
            } else if kind.is_symlink() {
                let aim = std::fs::read_link(entry.path()).trying(entry.path().display())?;
                self.entry(&name, 0o120_777, aim.as_os_str().as_encoded_bytes())
            } else {
                return Err(Fault::lab(format!("{}: neither file, folder nor link", entry.path().display())));
            };
            written.trying(&name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topolab_wire::{Clock, PROTOCOL, RootFrom, Work};

    #[test]
    fn the_same_contents_give_the_same_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = folder.path().join("tree");
        std::fs::create_dir_all(tree.join("usr/bin")).expect("tree");
        std::fs::write(tree.join("usr/bin/x"), "x").expect("x");
        let order = Order {
            protocol: PROTOCOL,
            trial: "0123456789abcdef".into(),
            clock: Clock::Virtual,
            modules: Vec::new(),
            root: RootFrom::Initramfs,
            offline: Default::default(),
            partition: Default::default(),
            work: Work::Observe,
            costs: Vec::new(),
            count: None,
        };
        let make = |name: &str| {
            let path = folder.path().join(name);
            write(&path, &Contents { arch: Arch::X86_64, order: &order, modules: &[], tree: Some(&tree) })
                .expect("an archive");
            std::fs::read(path).expect("bytes")
        };
        let one = make("one");
        std::fs::write(tree.join("usr/bin/x"), "x").expect("x again, with a new time");
        assert_eq!(one, make("other"));
        assert!(one.windows(12).any(|w| w == b"image/usr/bi"));
    }
}
