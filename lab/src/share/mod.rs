//! virtiofs shares, served in this process by the `virtiofsd` crate: no daemon, no root, nothing left behind.
//!
//! One thread per share waits for QEMU to connect, then serves until QEMU closes. The folder given is all that the guest
//! can reach.

mod open_flags;

pub use open_flags::OpenFlags;

use crate::fault::{Fault, Outcome, Trying};
use open_flags::Translated;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use vhost::vhost_user::{Error as VhostUserError, Listener};
use vhost_user_backend::{Error as DaemonError, VhostUserDaemon};
use virtiofsd::filesystem::{FileSystem, SerializableFileSystem};
use virtiofsd::passthrough::{CachePolicy, Config, PassthroughFs, read_only::PassthroughFsRo};
use virtiofsd::vhost_user::VhostUserFsBackendBuilder;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

/// Whether the guest may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It may only read.
    ReadOnly,
    /// It may do both.
    ReadWrite,
}

/// A share being served. Dropping it ends the service.
pub struct Served {
    socket: PathBuf,
    thread: Option<JoinHandle<Result<(), String>>>,
}

/// Serves `folder` on a socket under the tag `tag`.
pub fn serve(folder: &Path, access: Access, flags: OpenFlags, tag: &str, socket: &Path) -> Outcome<Served> {
    let root_dir = folder
        .to_str()
        .ok_or_else(|| Fault::input(format!("{}: a shared folder's path must be UTF-8", folder.display())))?
        .to_string();
    let cache_policy = match access {
        // The host and the guest both look at the files, so nothing may be cached in the guest.
        Access::ReadWrite => CachePolicy::Never,
        // Programs never change, and mapping them without a cache under an overlay gave a second run pages of zeros.
        Access::ReadOnly => CachePolicy::Always,
    };
    let config = Config { root_dir, cache_policy, ..Config::default() };
    let listener = Listener::new(socket, true).trying(format!("socket {}", socket.display()))?;
    let what = format!("virtiofs share {}", folder.display());
    let thread = match access {
        Access::ReadOnly => in_thread(PassthroughFsRo::new(config).trying(&what)?, flags, listener, tag)?,
        Access::ReadWrite => in_thread(PassthroughFs::new(config).trying(&what)?, flags, listener, tag)?,
    };
    Ok(Served { socket: socket.to_path_buf(), thread: Some(thread) })
}

fn in_thread<F>(
    inner: F,
    flags: OpenFlags,
    mut listener: Listener,
    tag: &str,
) -> Outcome<JoinHandle<Result<(), String>>>
where
    F: FileSystem + SerializableFileSystem + Send + Sync + 'static,
{
    // No thread pool: one guest writes a few small files, and a pool would unshare(2) threads of this process.
    let backend = VhostUserFsBackendBuilder::default()
        .set_thread_pool_size(0)
        .set_tag(Some(tag.to_string()))
        .build(Translated { inner, flags })
        .trying("virtiofs backend")?;
    let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
    let mut daemon = VhostUserDaemon::new(format!("share-{tag}"), Arc::new(backend), memory)
        .map_err(|e| Fault::lab(format!("virtiofs share {tag}: {e}")))?;
    let serve = move || {
        daemon.start(&mut listener).map_err(|e| e.to_string())?;
        match daemon.wait() {
            // QEMU closing the socket is the normal end of a share.
            Ok(()) | Err(DaemonError::HandleRequest(VhostUserError::Disconnected | VhostUserError::PartialMessage)) => {
                Ok(())
            }
            Err(e) => Err(e.to_string()),
        }
    };
    std::thread::Builder::new().name(format!("share-{tag}")).spawn(serve).trying("start a share's thread")
}

impl Served {
    /// Waits for the end of the service, after QEMU has gone; its error is the lab's.
    pub fn finish(mut self) -> Outcome<()> {
        self.join().map_err(|e| Fault::lab(format!("virtiofs: {e}")))
    }

    fn join(&mut self) -> Result<(), String> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // A QEMU that never came leaves the thread in accept(2): a connection that closes at once unblocks it.
        if let Ok(stream) = UnixStream::connect(&self.socket) {
            drop(stream);
        }
        let ended = thread.join().unwrap_or_else(|_| Err("the share's thread panicked".into()));
        let _ = std::fs::remove_file(&self.socket);
        ended
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.join();
    }
}
