//! The caches above one CPU (Documentation/ABI/testing/sysfs-devices-system-cpu, `cache/index*`).

use super::{cpu_list, numbered, text};
use std::path::Path;
use topolab_wire::{Cache, CacheKind};

/// Reads `cpuN/cache`. An index without a level or a sharing list is left out: the kernel itself says nothing of it.
pub(super) fn read(folder: &Path) -> Vec<Cache> {
    numbered(folder, "index").values().filter_map(|index| one(index)).collect()
}

fn one(index: &Path) -> Option<Cache> {
    Some(Cache {
        level: text(&index.join("level"))?.parse().ok()?,
        kind: kind(&text(&index.join("type"))?)?,
        size_kib: text(&index.join("size")).and_then(|t| size_kib(&t)),
        shared: cpu_list(&index.join("shared_cpu_list"))?,
    })
}

fn kind(text: &str) -> Option<CacheKind> {
    match text {
        "Instruction" => Some(CacheKind::Instruction),
        "Data" => Some(CacheKind::Data),
        "Unified" => Some(CacheKind::Unified),
        _ => None,
    }
}

/// `4096K` → 4096; the kernel always prints KiB (drivers/base/cacheinfo.c, `size_show`).
fn size_kib(text: &str) -> Option<u64> {
    text.strip_suffix('K')?.parse().ok().filter(|&kib| kib > 0)
}
