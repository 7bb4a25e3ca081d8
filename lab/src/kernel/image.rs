//! A ready image, taken as it is, with its configuration where that lies beside it.

use super::store::Kernel;
use crate::digest;
use crate::fault::{Fault, Outcome, Trying};
use crate::paths::CacheDir;
use std::path::{Path, PathBuf};

/// What every guest of the lab needs from its kernel, and why a boot without it ends in nothing.
const NEEDED: &[(&str, &str)] = &[
    ("BLK_DEV_INITRD", "the agent arrives in an initramfs"),
    ("VIRTIO_PCI", "the results' share is a PCI device"),
    ("VIRTIO_FS", "results come back over virtiofs"),
    ("TMPFS", "the agent keeps records in memory"),
    ("SCHEDSTATS", "the scheduler's domains are read from /proc/schedstat"),
];

/// Takes an image into the cache, so that a rebuild of the user's file cannot change the kernel in the middle of a run.
pub(super) fn provide(path: &Path, cache: &CacheDir) -> Outcome<Kernel> {
    let key = digest::hex_of_file(path).map_err(|fault| Fault::input(format!("image:{}", fault.message)))?;
    let config = config_of(path);
    if let Some(config) = &config {
        require(path, config)?;
    }
    let folder = cache.folder("taken")?;
    let taken = folder.join(&key);
    if !taken.exists() {
        let bytes = std::fs::read(path).trying(path.display())?;
        digest::write_whole(&taken, &bytes)?;
    }
    let name = format!("image {}", &key[..12]);
    Ok(Kernel {
        key,
        name,
        release: None,
        signature: None,
        config,
        applied: Vec::new(),
        image: taken,
        busy_module: None,
        modules: Vec::new(),
    })
}

/// The configuration beside an image: `config-VERSION` of a distribution's `vmlinuz-VERSION`, or the `.config` of the build tree
/// that it lies in (`arch/x86/boot/bzImage`).
fn config_of(image: &Path) -> Option<PathBuf> {
    let image = image.canonicalize().ok()?;
    let folder = image.parent()?;
    let version = image.file_name()?.to_str()?.split_once('-').map(|(_, version)| format!("config-{version}"));
    let beside = version.into_iter().chain(["config".to_string(), ".config".into()]).map(|name| folder.join(name));
    // Only a build tree's own folders are climbed.
    let above = folder.ancestors().take(4).filter(|up| folder.ends_with("boot") && up.join("Makefile").is_file());
    beside.chain(above.map(|up| up.join(".config"))).find(|path| path.is_file())
}

/// Refuses a kernel whose configuration says that no guest of it can be heard. Modules count only where they are built in: an image
/// comes without its modules.
fn require(image: &Path, config: &Path) -> Outcome<()> {
    let text = std::fs::read_to_string(config).trying(config.display())?;
    // Other architectures and old kernels have other lists; a file that is no configuration says nothing.
    if !text.contains("CONFIG_64BIT") {
        return Ok(());
    }
    let has = |symbol: &str| text.lines().any(|line| line == format!("CONFIG_{symbol}=y"));
    let lacks: Vec<String> = NEEDED
        .iter()
        .filter(|(symbol, _)| !has(symbol))
        .map(|(symbol, why)| format!("CONFIG_{symbol}=y: {why}"))
        .collect();
    match lacks.is_empty() {
        true => Ok(()),
        false => Err(Fault::input(format!("image:{}: its configuration lacks what the lab needs", image.display()))
            .detail(format!("{}\n(read from {})", lacks.join("\n"), config.display()))
            .help("build the image with these symbols, or let topolab build it: tree:DIR or git:DIR@REV")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_beside_the_image_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("vmlinuz-7.2.13-x");
        std::fs::write(&image, "image").expect("a file");
        let cache = CacheDir::locate(Some(folder.path().join("cache"))).expect("a cache");
        assert_eq!(provide(&image, &cache).map(|kernel| kernel.config), Ok(None));
        let config = folder.path().join("config-7.2.13-x");
        std::fs::write(&config, "CONFIG_64BIT=y\nCONFIG_VIRTIO_FS=m\nCONFIG_TMPFS=y\n").expect("a file");
        let fault = provide(&image, &cache).expect_err("no virtiofs");
        let detail = fault.detail.unwrap_or_default();
        assert!(detail.contains("CONFIG_VIRTIO_FS=y") && !detail.contains("TMPFS"), "{detail}");
        let all: String = NEEDED.iter().map(|(symbol, _)| format!("CONFIG_{symbol}=y\n")).collect();
        std::fs::write(&config, format!("CONFIG_64BIT=y\n{all}")).expect("a file");
        assert_eq!(provide(&image, &cache).map(|kernel| kernel.config), Ok(config.canonicalize().ok()));
    }
}
