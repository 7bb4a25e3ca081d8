//! The agent's voice: marker lines as printk records (Documentation/ABI/testing/dev-kmsg).

use std::io::Write;
use topolab_wire::Marker;

/// Says a marker on the kernel log, as one record at level `info`. A lost marker is seen by the host as a missing
/// stage, so there is nothing better to do with an error here.
pub fn say(marker: &Marker) {
    let line = format!("<6>{marker}\n");
    if let Ok(mut kmsg) = std::fs::OpenOptions::new().write(true).open("/dev/kmsg") {
        let _ = kmsg.write_all(line.as_bytes());
    }
}
