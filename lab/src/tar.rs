//! Tarballs of the user's, unpacked by tar: it finds the compression by itself, and refuses members that leave the folder.

use crate::fault::{Fault, Outcome, Trying};
use duct::cmd;
use std::path::Path;

/// Unpacks a file into a folder. What tar cannot read is the user's to mend; the fault begins with `what`.
pub(crate) fn unpack(file: &Path, folder: &Path, what: &str) -> Outcome<()> {
    let tar = cmd!("tar", "-C", folder, "--no-same-owner", "--no-same-permissions", "-xf", file);
    let output = tar.stdin_null().stdout_null().stderr_capture().unchecked().run().trying("tar")?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Fault::input(what).detail(String::from_utf8_lossy(&output.stderr).trim())),
    }
}
