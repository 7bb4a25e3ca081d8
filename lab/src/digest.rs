//! Keys and whole files: SHA-256 over what decides a thing, and writes that happen entirely or not at all.

use crate::fault::{Outcome, Trying};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;

/// SHA-256 over parts, each behind its length, so that no two lists of parts collide.
pub(crate) fn hex(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    format!("{:x}", hasher.finalize())
}

/// SHA-256 of a file's bytes.
pub(crate) fn hex_of_file(path: &Path) -> Outcome<String> {
    let mut file = std::fs::File::open(path).trying(path.display())?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer).trying(path.display())?;
        if n == 0 {
            return Ok(format!("{:x}", hasher.finalize()));
        }
        hasher.update(&buffer[..n]);
    }
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).trying(folder.display())?;
    std::io::Write::write_all(&mut file, bytes).trying(path.display())?;
    file.as_file().sync_all().trying(path.display())?;
    file.persist(path).trying(path.display())?;
    Ok(())
}
