//! What PID 1 owes the rest: filesystems, the module, the image, and a clean end.

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use topolab_wire::{CpuSet, RootFrom};

/// Where a bundle's programs are seen, as a root directory of their own.
const IMAGE: &str = "/image";

fn mount_at(what: &str, kind: &str, at: &Path, flags: MsFlags) -> io::Result<()> {
    std::fs::create_dir_all(at)?;
    mount(Some(what), at, Some(kind), flags, None::<&str>)
        .map_err(|e| io::Error::other(format!("{kind} on {}: {}", at.display(), e.desc())))
}

/// Mounts what every later step reads.
pub fn mount_kernel_filesystems() -> io::Result<()> {
    let plain = MsFlags::empty();
    mount_at("devtmpfs", "devtmpfs", Path::new("/dev"), plain)?;
    mount_at("proc", "proc", Path::new("/proc"), plain)?;
    mount_at("sysfs", "sysfs", Path::new("/sys"), plain)?;
    mount_at("tmpfs", "tmpfs", Path::new("/run"), plain)?;
    mount_at("tmpfs", "tmpfs", Path::new("/tmp"), plain)?;
    // A kernel without debugfs still has /proc/schedstat; the observation then lacks the domains' flags.
    let _ = mount_at("debugfs", "debugfs", Path::new("/sys/kernel/debug"), plain);
    // Since 7.x the domains' tree is filled only when asked for (kernel/sched/debug.c, `sched_verbose_write`).
    let _ = std::fs::write("/sys/kernel/debug/sched/verbose", "1");
    // Markers are of level `info`; whatever the command line says of loudness, they must reach the console.
    let _ = std::fs::write("/proc/sys/kernel/printk", "8");
    loopback_up()
}

/// Brings `lo` up: workloads over TCP talk to themselves. The kernel does that when an address is set, and the
/// only ioctl-free way is the sysfs flags file (Documentation/ABI/testing/sysfs-class-net, IFF_UP = 1).
fn loopback_up() -> io::Result<()> {
    match std::fs::read_to_string("/sys/class/net/lo/flags") {
        // IFF_LOOPBACK | IFF_UP
        Ok(_) => std::fs::write("/sys/class/net/lo/flags", "0x9"),
        // A kernel without networking has no workload that needs it.
        Err(_) => Ok(()),
    }
}

/// Loads a kernel module from the initramfs.
pub fn load_module(path: &str) -> io::Result<()> {
    let file = std::fs::File::open(path).map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
    nix::kmod::finit_module(&file, c"", nix::kmod::ModuleInitFlags::empty())
        .map_err(|e| io::Error::other(format!("{path}: {}", e.desc())))
}

/// Tells the busy module what the machine charges, a line a write (lab/busy, `costs`).
pub fn charge(lines: &[String]) -> io::Result<()> {
    let path = "/sys/kernel/debug/topolab/costs";
    for line in lines {
        std::fs::write(path, line).map_err(|e| io::Error::new(e.kind(), format!("{path}: {line}: {e}")))?;
    }
    Ok(())
}

/// Switches CPUs off (Documentation/core-api/cpu_hotplug.rst).
pub fn switch_off(cpus: &CpuSet) -> io::Result<()> {
    for cpu in cpus.iter() {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        std::fs::write(&path, "0").map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
    }
    Ok(())
}

/// Puts CPUs into a cpuset partition of their own, without scheduling domains (Documentation/admin-guide/cgroup-v2.rst,
/// `cpuset.cpus.partition`). Returns the cgroup that has them; none where there is nothing to isolate.
pub fn isolate(name: &str, cpus: &CpuSet) -> io::Result<Option<PathBuf>> {
    if cpus.is_empty() {
        return Ok(None);
    }
    let root = Path::new("/sys/fs/cgroup");
    if !root.join("cgroup.controllers").exists() {
        mount_at("cgroup2", "cgroup2", root, MsFlags::empty())?;
    }
    let group = root.join(name);
    std::fs::write(root.join("cgroup.subtree_control"), "+cpuset")?;
    std::fs::create_dir(&group)?;
    std::fs::write(group.join("cpuset.cpus"), cpus.to_string())?;
    let kind = group.join("cpuset.cpus.partition");
    std::fs::write(&kind, "isolated")?;
    // The write succeeds even where the kernel then calls the partition invalid, with its reason.
    match std::fs::read_to_string(&kind)?.trim() {
        "isolated" => Ok(Some(group)),
        other => Err(io::Error::other(format!("the kernel made of it: {other}"))),
    }
}

/// Makes the bundle's programs ready and returns their root directory.
pub fn prepare_root(from: &RootFrom) -> io::Result<PathBuf> {
    let image = PathBuf::from(IMAGE);
    match from {
        RootFrom::None => return Ok(PathBuf::from("/")),
        RootFrom::Initramfs => {}
        RootFrom::Share(tag) => {
            mount_at(tag, "virtiofs", Path::new("/run/image"), MsFlags::MS_RDONLY)?;
            overlay(Path::new("/run/image"), &image)?;
        }
    }
    for (what, at) in [
        ("proc", "proc"),
        ("sysfs", "sys"),
        ("devtmpfs", "dev"),
        ("tmpfs", "tmp"),
        ("tmpfs", "run"),
        ("tmpfs", "out"),
        ("tmpfs", "bundle"),
        ("tmpfs", "dev/shm"),
    ] {
        mount_at(what, what, &image.join(at), MsFlags::empty())?;
    }
    // A kernel whose debugfs is not there has it nowhere.
    let _ = mount_at("debugfs", "debugfs", &image.join("sys/kernel/debug"), MsFlags::empty());
    Ok(image)
}

/// The image with a writable layer in memory (Documentation/filesystems/overlayfs.rst). A kernel without overlayfs gets it read-only:
/// most programs write to /tmp and /run alone.
fn overlay(lower: &Path, at: &Path) -> io::Result<()> {
    let upper = Path::new("/run/upper");
    for folder in [&upper.join("changes"), &upper.join("work"), at] {
        std::fs::create_dir_all(folder)?;
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.join("changes").display(),
        upper.join("work").display()
    );
    let layered = mount(Some("overlay"), at, Some("overlay"), MsFlags::empty(), Some(options.as_str()));
    match layered {
        Ok(()) => Ok(()),
        Err(nix::errno::Errno::ENODEV) => mount(Some(lower), at, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .map_err(|e| io::Error::other(format!("bind on {}: {}", at.display(), e.desc()))),
        Err(e) => Err(io::Error::other(format!("overlay on {}: {}", at.display(), e.desc()))),
    }
}

/// Puts a bundle's own files into /bundle of the root.
pub fn put_files(root: &Path, files: &std::collections::BTreeMap<String, String>) -> io::Result<()> {
    let folder = root.join("bundle");
    std::fs::create_dir_all(&folder)?;
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    }
    Ok(())
}

/// Lets these CPUs take what a network card would bring: receive packet steering of every queue
/// (Documentation/networking/scaling.rst) and every interrupt that can be moved (Documentation/core-api/irq/irq-affinity.rst).
pub fn steer_network(cpus: &CpuSet) -> io::Result<()> {
    let mask = cpus.mask();
    for interface in std::fs::read_dir("/sys/class/net")?.flatten() {
        for queue in std::fs::read_dir(interface.path().join("queues"))?.flatten() {
            let path = queue.path().join("rps_cpus");
            if path.exists() {
                std::fs::write(&path, &mask)
                    .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
            }
        }
    }
    std::fs::write("/proc/irq/default_smp_affinity", &mask)?;
    for irq in std::fs::read_dir("/proc/irq")?.flatten() {
        // Per-CPU and managed interrupts refuse, and stay where they are.
        let _ = std::fs::write(irq.path().join("smp_affinity"), &mask);
    }
    Ok(())
}

/// Mounts the results share, read-write.
pub fn mount_results() -> io::Result<PathBuf> {
    let at = PathBuf::from("/run/results");
    mount_at(topolab_wire::RESULTS_TAG, "virtiofs", &at, MsFlags::empty())?;
    Ok(at)
}

/// Powers the machine off. PID 1 must not return; where even that fails, the host's deadline ends the guest.
pub fn power_off() -> ExitCode {
    nix::unistd::sync();
    let _ = reboot(RebootMode::RB_POWER_OFF);
    loop {
        std::thread::park();
    }
}
