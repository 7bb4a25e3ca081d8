//! Debian's prebuilt cloud kernels: fetched, unpacked, and completed with the modules that the lab needs before anything
//! else, where they are not built in.

use super::store::Kernel;
use super::version::Version;
use crate::apt::{self, Apt};
use crate::cancel::Cancel;
use crate::digest;
use crate::fault::{Fault, Outcome, Trying};
use crate::paths::{CacheDir, require_disk};
use crate::progress::Progress;
use crate::topology::Arch;
use duct::cmd;
use goblin::elf::Elf;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What must be there for the results share: its bus and its file system.
const WANTED: &[&str] = &["virtio_pci", "virtiofs"];
/// A package and its unpacked modules.
const DISK: u64 = 1 << 30;

/// Finds or fetches the newest prebuilt kernel of a version.
pub(super) fn provide(
    wanted: &str,
    arch: Arch,
    cache: &CacheDir,
    progress: Progress,
    cancel: &Cancel,
) -> Outcome<Kernel> {
    let folder = cache.folder("prebuilt")?;
    let package = choose(wanted, arch, cache, cancel)?;
    let entry = folder.join(&package);
    if !entry.join("order").exists() {
        require_disk(&folder, DISK, "a prebuilt kernel")?;
        progress.say(format!("fetching {package} from Debian's archive"));
        make(&package, arch, &folder, &entry, cache, cancel)?;
    }
    let order = std::fs::read_to_string(entry.join("order")).trying(entry.display())?;
    let modules: Vec<PathBuf> = order.lines().map(|name| entry.join(name)).collect();
    let image = entry.join("vmlinuz");
    let release = package.trim_start_matches("linux-binary-").trim_start_matches("linux-image-").to_string();
    let mut parts = vec![digest::hex_of_file(&image)?];
    for module in &modules {
        parts.push(digest::hex_of_file(module)?);
    }
    let key = digest::hex(&parts.iter().map(String::as_bytes).collect::<Vec<_>>());
    Ok(Kernel {
        key,
        name: release.clone(),
        release: Some(release),
        signature: None,
        config: None,
        applied: Vec::new(),
        image,
        busy_module: None,
        modules,
    })
}

/// The package of the newest kernel that fits. Since 6.19 the image lies in `linux-binary-…`, before that in
/// `linux-image-…`.
fn choose(wanted: &str, arch: Arch, cache: &CacheDir, cancel: &Cancel) -> Outcome<String> {
    let memo = match arch {
        Arch::X86_64 => "prebuilt.names".to_string(),
        Arch::Aarch64 | Arch::Ppc64le => format!("prebuilt-{arch}.names"),
    };
    let names = super::debian::remembered(&memo, arch, cache, cancel, |apt| apt.names("linux-"))?;
    pick(wanted, flavour(arch), names.iter().map(String::as_str)).map_err(|have| {
        Fault::input(format!("the archive has no prebuilt kernel {wanted}")).help(format!("it has: {}", have.join(" ")))
    })
}

/// How names end of the kernels that boot in QEMU without further modules.
fn flavour(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "-cloud-amd64",
        Arch::Aarch64 => "-cloud-arm64",
        Arch::Ppc64le => "-powerpc64le",
    }
}

/// The best name for a version among package names, or the versions that there are.
fn pick<'a>(wanted: &str, flavour: &str, names: impl Iterator<Item = &'a str>) -> Result<String, Vec<String>> {
    // (version, is a linux-binary) orders newer first, and the package with the image first within a version.
    let mut found: BTreeMap<(Version, bool), &str> = BTreeMap::new();
    for name in names {
        let Some(rest) = name.strip_suffix(flavour) else { continue };
        let binary = rest.strip_prefix("linux-binary-");
        let Some(release) = binary.or_else(|| rest.strip_prefix("linux-image-")) else { continue };
        let version = release.split(['+', '-']).next().and_then(Version::parse).filter(Version::is_exact);
        if let Some(version) = version {
            found.insert((version, binary.is_some()), name);
        }
    }
    let wanted = Version::parse(wanted);
    let fits = |version: &Version| wanted.as_ref().is_some_and(|wanted| wanted.admits(version));
    let best = found.iter().rev().find(|((version, _), _)| fits(version));
    let mut have: Vec<String> = found.keys().map(|(version, _)| version.to_string()).collect();
    have.dedup();
    best.map(|(_, name)| (*name).to_string()).ok_or(have)
}

/// Makes the entry whole: vmlinuz, the modules, and their order.
fn make(package: &str, arch: Arch, folder: &Path, entry: &Path, cache: &CacheDir, cancel: &Cancel) -> Outcome<()> {
    let apt = Apt::open(cache, "kernels", arch, super::debian::SUITES, cancel)?;
    apt.update()?;
    let version = apt
        .versions(package)?
        .into_iter()
        .next()
        .ok_or_else(|| Fault::lab(format!("{package} has left the archive")))?;
    let deb = apt.download(package, &version)?;
    let scratch = tempfile::Builder::new().prefix(".making-").tempdir_in(folder).trying(folder.display())?;
    let unpacked = scratch.path().join("unpacked");
    std::fs::create_dir(&unpacked).trying(unpacked.display())?;
    apt::unpack(&deb, &unpacked)?;
    // Newer releases keep the list of what is built in, and the modules, in packages beside the image's; the large second one
    // is fetched only when it is needed.
    for companion in ["linux-base-", "linux-image-", "linux-modules-"] {
        let beside = package.replace("linux-binary-", companion);
        let complete = Modules::below(&unpacked)?.have(WANTED);
        if beside != package
            && !complete
            && let Some(version) = apt.versions(&beside)?.first()
        {
            apt::unpack(&apt.download(&beside, version)?, &unpacked)?;
        }
    }
    let image = walkdir::WalkDir::new(&unpacked)
        .into_iter()
        .flatten()
        // powerpc's image is an ELF file that nobody compressed.
        .find(|e| ["vmlinuz", "vmlinux"].iter().any(|name| e.file_name().to_string_lossy().starts_with(name)));
    let image = image.ok_or_else(|| Fault::lab(format!("{package} {version} holds no vmlinuz")))?;
    let whole = scratch.path().join("whole");
    std::fs::create_dir(&whole).trying(whole.display())?;
    std::fs::copy(image.path(), whole.join("vmlinuz")).trying("vmlinuz")?;
    let order = Modules::below(&unpacked)?.closure(WANTED, &whole)?;
    digest::write_whole(&whole.join("order"), order.join("\n").as_bytes())?;
    match std::fs::rename(&whole, entry) {
        Ok(()) => Ok(()),
        // Another lab was first.
        Err(_) if entry.join("order").exists() => Ok(()),
        Err(e) => Err(Fault::lab(format!("{}: {e}", entry.display()))),
    }
}

/// The modules of an unpacked kernel: those that are built in, and the files of the others.
struct Modules {
    built_in: Vec<String>,
    files: BTreeMap<String, PathBuf>,
}

impl Modules {
    fn below(folder: &Path) -> Outcome<Self> {
        let (mut built_in, mut files) = (Vec::new(), BTreeMap::new());
        for entry in walkdir::WalkDir::new(folder).into_iter().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "modules.builtin" {
                let text = std::fs::read_to_string(entry.path()).trying(entry.path().display())?;
                built_in.extend(text.lines().map(module_name));
            } else if name.ends_with(".ko") || name.ends_with(".ko.xz") {
                files.insert(module_name(&name), entry.path().to_path_buf());
            }
        }
        Ok(Self { built_in, files })
    }

    /// Whether all of these are built in or at hand.
    fn have(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.built_in.iter().any(|b| b == name) || self.files.contains_key(*name))
    }

    /// Copies the wanted modules and what they depend on, and returns their file names, dependencies first.
    fn closure(&self, wanted: &[&str], to: &Path) -> Outcome<Vec<String>> {
        let mut order = Vec::new();
        // The archive drops the packages beside an old image. What is built in is then unknown; Debian's cloud kernels have had
        // virtiofs built in since 6.12, and a guest without it says so at its end.
        if self.built_in.is_empty() && self.files.is_empty() {
            return Ok(order);
        }
        for name in wanted {
            self.add(name, to, &mut order)?;
        }
        Ok(order)
    }

    fn add(&self, name: &str, to: &Path, order: &mut Vec<String>) -> Outcome<()> {
        let file = format!("{name}.ko");
        if self.built_in.iter().any(|built_in| built_in == name) || order.contains(&file) {
            return Ok(());
        }
        let from =
            self.files.get(name).ok_or_else(|| Fault::lab(format!("the prebuilt kernel has no module {name}")))?;
        let bytes = match from.extension().is_some_and(|e| e == "xz") {
            true => cmd!("xz", "-dc", from).stdout_capture().run().trying("xz")?.stdout,
            false => std::fs::read(from).trying(from.display())?,
        };
        for dependency in dependencies(&bytes) {
            self.add(&dependency, to, order)?;
        }
        std::fs::write(to.join(&file), bytes).trying(to.display())?;
        order.push(file);
        Ok(())
    }
}

/// `kernel/fs/fuse/virtio-fs.ko.xz` → `virtio_fs`: dashes and underscores are one in module names.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

/// What a module's `.modinfo` says that it depends on.
fn dependencies(bytes: &[u8]) -> Vec<String> {
    let Ok(elf) = Elf::parse(bytes) else { return Vec::new() };
    let is_modinfo = |header: &&goblin::elf::SectionHeader| elf.shdr_strtab.get_at(header.sh_name) == Some(".modinfo");
    let Some(range) = elf.section_headers.iter().find(is_modinfo).and_then(|header| header.file_range()) else {
        return Vec::new();
    };
    let info = String::from_utf8_lossy(bytes.get(range).unwrap_or_default()).into_owned();
    let depends = info.split('\0').find_map(|entry| entry.strip_prefix("depends=")).unwrap_or_default();
    depends.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_fits_is_picked_and_others_are_named() {
        let names = [
            "linux-image-6.12.9+deb13-cloud-amd64",
            "linux-image-6.12.117+deb13-cloud-amd64",
            "linux-image-7.2.13+deb14-cloud-amd64",
            "linux-binary-7.2.13+deb14-cloud-amd64",
            "linux-image-cloud-amd64",
            "linux-image-6.12.118+deb13-amd64",
        ];
        let pick = |wanted: &str| super::pick(wanted, "-cloud-amd64", names.into_iter());
        assert_eq!(pick("6.12").as_deref(), Ok("linux-image-6.12.117+deb13-cloud-amd64"));
        assert_eq!(pick("6.12.9").as_deref(), Ok("linux-image-6.12.9+deb13-cloud-amd64"));
        assert_eq!(pick("7.2").as_deref(), Ok("linux-binary-7.2.13+deb14-cloud-amd64"));
        assert_eq!(pick("6.16"), Err(vec!["6.12.9".to_string(), "6.12.117".into(), "7.2.13".into()]));
    }

    #[test]
    fn module_names_know_no_dashes() {
        assert_eq!(module_name("kernel/fs/fuse/virtio-fs.ko.xz"), "virtio_fs");
        assert_eq!(module_name("fuse.ko"), "fuse");
    }
}
