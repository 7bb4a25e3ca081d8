//! A kernel's behaviour signature: a hash of what is loaded, without what only says when and from which lines it was built. Two
//! kernels of one signature do the same; a patch that leaves it alone changes nothing that a measurement could see. syzkaller finds
//! no-op commits in this way (pkg/build/linux.go, `elfBinarySignature`).

use crate::fault::{Outcome, Trying};
use goblin::elf::Elf;
use goblin::elf::section_header::{SHF_ALLOC, SHT_NOBITS, SHT_NOTE};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Sections that are loaded and say nothing of behaviour: the build id, and what debuggers and unwinders read, which repeats what
/// the code has and moves with it.
const SILENT: &[&str] = &[
    ".notes",
    ".note.gnu.build-id",
    ".BTF",
    ".BTF_ids",
    ".orc_unwind",
    ".orc_unwind_ip",
    ".orc_header",
    ".orc_lookup",
];

/// The signature of a `vmlinux`.
pub(super) fn of(vmlinux: &Path) -> Outcome<String> {
    let bytes = std::fs::read(vmlinux).trying(vmlinux.display())?;
    let elf = Elf::parse(&bytes).trying(vmlinux.display())?;
    let mut hasher = Sha256::new();
    for header in &elf.section_headers {
        let loaded =
            header.sh_flags & u64::from(SHF_ALLOC) != 0 && header.sh_type != SHT_NOBITS && header.sh_type != SHT_NOTE;
        let name = elf.shdr_strtab.get_at(header.sh_name).unwrap_or_default();
        if !loaded || SILENT.contains(&name) {
            continue;
        }
        let Some(content) = header.file_range().and_then(|range| bytes.get(range)) else { continue };
        hasher.update(name.as_bytes());
        hasher.update((content.len() as u64).to_le_bytes());
        match name {
            "__bug_table" => hasher.update(without_lines(content, bug_stride(content, &elf))),
            _ => hasher.update(content),
        }
    }
    Ok(format!("{:x}", hasher.finalize()))
}

/// Bytes of one `struct bug_entry` (include/asm-generic/bug.h): a pointer to the place, one to the format where the architecture has
/// it, one to the file name, line and flags of two bytes each. The symbol table does not tell; the line and the flags do: only with
/// the right stride are all flags small (BUGFLAG_* use the low bits, and a taint number above).
fn bug_stride(content: &[u8], elf: &Elf<'_>) -> usize {
    let flags_are_small = |stride: &usize| {
        content.len().is_multiple_of(*stride)
            && content.chunks(*stride).all(|entry| {
                let at = if elf.little_endian { stride - 1 } else { stride - 2 };
                entry.get(at).is_some_and(|high| *high < 0x20)
            })
    };
    [16, 12].into_iter().find(flags_are_small).unwrap_or(0)
}

/// The table with every line number zeroed: a comment above a WARN_ON() moves it, and changes nothing.
fn without_lines(content: &[u8], stride: usize) -> Vec<u8> {
    let mut blank = content.to_vec();
    if stride >= 4 {
        for entry in blank.chunks_mut(stride) {
            if let Some(line) = entry.get_mut(stride - 4..stride - 2) {
                line.fill(0);
            }
        }
    }
    blank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_numbers_are_blank_and_nothing_else() {
        let entry = |line: u16| [&[1, 2, 3, 4, 5, 6, 7, 8][..], &line.to_le_bytes(), &[9, 0]].concat();
        let table = |a: u16, b: u16| [entry(a), entry(b)].concat();
        assert_eq!(without_lines(&table(10, 20), 12), without_lines(&table(11, 300), 12));
        let other = [entry(10), [vec![0; 8], 20u16.to_le_bytes().to_vec(), vec![8, 0]].concat()].concat();
        assert_ne!(without_lines(&table(10, 20), 12), without_lines(&other, 12));
        assert_eq!(without_lines(&table(10, 20), 0), table(10, 20));
    }
}
