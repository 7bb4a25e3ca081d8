//! The agent's voice: marker lines as printk records (Documentation/ABI/testing/dev-kmsg).

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use topolab_wire::Marker;

/// Says a marker on the kernel log, as one record at level `info`. A lost marker is seen by the host as a missing
/// stage, so there is nothing better to do with an error here.
pub fn say(marker: &Marker) {
    let line = format!("<6>{marker}\n");
    if let Ok(mut kmsg) = std::fs::OpenOptions::new().write(true).open("/dev/kmsg") {
        let _ = kmsg.write_all(line.as_bytes());
    }
}

/// The kernel's log so far, a line a record, as the console would print it: large machines say most of it to the log alone. What
/// cannot be read is left out; the console has the rest.
pub fn log() -> String {
    let mut lines = String::new();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open("/dev/kmsg");
    let Ok(mut kmsg) = file else { return lines };
    // One record a read, of less than 2 KiB (kernel/printk/internal.h, PRINTK_MESSAGE_MAX); the prefix is short.
    let mut record = [0; 8192];
    loop {
        match kmsg.read(&mut record) {
            Ok(0) => return lines,
            Ok(length) => lines.extend(line(&String::from_utf8_lossy(&record[..length]))),
            // Records were overwritten meanwhile: the next read goes on behind them.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
            Err(_) => return lines,
        }
    }
}

/// `6,339,5140900,-;text` with continuation lines → `[    5.140900] text`.
fn line(record: &str) -> Option<String> {
    let (prefix, text) = record.split_once(';')?;
    let microseconds: u64 = prefix.split(',').nth(2)?.parse().ok()?;
    let text = text.lines().next().unwrap_or_default();
    Some(format!("[{:5}.{:06}] {text}\n", microseconds / 1_000_000, microseconds % 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_as_on_the_console() {
        let record = "4,339,5140900,-;WARNING: CPU: 3\n SUBSYSTEM=acpi\n";
        assert_eq!(line(record).as_deref(), Some("[    5.140900] WARNING: CPU: 3\n"));
        assert_eq!(line("nonsense"), None);
    }
}
