//! Flags of open(2) as guests of other architectures number them. FUSE carries them in the guest's encoding, and a passthrough
//! server hands them to the host's kernel: on a POWER guest O_LARGEFILE, which every 64-bit kernel adds, is the host's O_DIRECTORY,
//! and no file could be made.
//!
//! Sources: arch/powerpc/include/uapi/asm/fcntl.h, arch/arm64/include/uapi/asm/fcntl.h, include/uapi/asm-generic/fcntl.h.

use crate::topology::Arch;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use virtiofsd::filesystem::{
    Context, Entry, Extensions, FileSystem, FsOptions, OpenOptions, SerializableFileSystem, SetattrValid,
    ZeroCopyReader, ZeroCopyWriter,
};
use virtiofsd::fuse;

/// How a guest numbers the four flags on which architectures differ, each with the host's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFlags(&'static [(u32, u32)]);

/// O_DIRECTORY, O_NOFOLLOW, O_DIRECT and O_LARGEFILE on an x86 host, where glibc's O_LARGEFILE is 0.
const DIRECTORY: u32 = 0o200_000;
const NOFOLLOW: u32 = 0o400_000;
const DIRECT: u32 = 0o40_000;
const LARGEFILE: u32 = 0o100_000;

impl OpenFlags {
    /// Of guests of an architecture.
    pub fn of(arch: Arch) -> Self {
        Self(match arch {
            Arch::X86_64 => &[],
            Arch::Aarch64 => {
                &[(0o40_000, DIRECTORY), (0o100_000, NOFOLLOW), (0o200_000, DIRECT), (0o400_000, LARGEFILE)]
            }
            Arch::Ppc64le => {
                &[(0o40_000, DIRECTORY), (0o100_000, NOFOLLOW), (0o200_000, LARGEFILE), (0o400_000, DIRECT)]
            }
        })
    }

    /// The host's flags for a guest's.
    fn host(self, guest: u32) -> u32 {
        let theirs = self.0.iter().fold(0, |bits, (guest, _)| bits | guest);
        let ours = self.0.iter().filter(|(bit, _)| guest & bit != 0).fold(0, |bits, (_, host)| bits | host);
        guest & !theirs | ours
    }
}

/// A file system whose guest numbers flags so. What it does not pass on, the guest is told not to use.
pub(super) struct Translated<F> {
    pub(super) inner: F,
    pub(super) flags: OpenFlags,
}

/// Passes calls on as they come.
macro_rules! pass_on {
    ($(fn $name:ident$(<$generic:ident: $bound:path>)?(&self $(, $arg:ident: $type:ty)* $(,)?) $(-> $ret:ty)?;)*) => {
        $(fn $name$(<$generic: $bound>)?(&self $(, $arg: $type)*) $(-> $ret)? {
            self.inner.$name($($arg),*)
        })*
    };
}

impl<F: FileSystem> FileSystem for Translated<F> {
    type Inode = F::Inode;
    type Handle = F::Handle;
    type DirIter = F::DirIter;

    fn open(
        &self,
        ctx: Context,
        inode: Self::Inode,
        kill_priv: bool,
        flags: u32,
    ) -> io::Result<(Option<Self::Handle>, OpenOptions)> {
        self.inner.open(ctx, inode, kill_priv, self.flags.host(flags))
    }

    fn opendir(&self, ctx: Context, inode: Self::Inode, flags: u32) -> io::Result<(Option<Self::Handle>, OpenOptions)> {
        self.inner.opendir(ctx, inode, self.flags.host(flags))
    }

    fn create(
        &self,
        ctx: Context,
        parent: Self::Inode,
        name: &CStr,
        mode: u32,
        kill_priv: bool,
        flags: u32,
        umask: u32,
        extensions: Extensions,
    ) -> io::Result<(Entry, Option<Self::Handle>, OpenOptions)> {
        self.inner.create(ctx, parent, name, mode, kill_priv, self.flags.host(flags), umask, extensions)
    }

    pass_on! {
        fn init(&self, capable: FsOptions) -> io::Result<FsOptions>;
        fn destroy(&self);
        fn lookup(&self, ctx: Context, parent: Self::Inode, name: &CStr) -> io::Result<Entry>;
        fn forget(&self, ctx: Context, inode: Self::Inode, count: u64);
        fn batch_forget(&self, ctx: Context, requests: Vec<(Self::Inode, u64)>);
        fn getattr(&self, ctx: Context, inode: Self::Inode, handle: Option<Self::Handle>) -> io::Result<(fuse::Attr, Duration)>;
        fn setattr(&self, ctx: Context, inode: Self::Inode, attr: fuse::SetattrIn, handle: Option<Self::Handle>, valid: SetattrValid) -> io::Result<(fuse::Attr, Duration)>;
        fn readlink(&self, ctx: Context, inode: Self::Inode) -> io::Result<Vec<u8>>;
        fn mkdir(&self, ctx: Context, parent: Self::Inode, name: &CStr, mode: u32, umask: u32, extensions: Extensions) -> io::Result<Entry>;
        fn unlink(&self, ctx: Context, parent: Self::Inode, name: &CStr) -> io::Result<()>;
        fn rename(&self, ctx: Context, olddir: Self::Inode, oldname: &CStr, newdir: Self::Inode, newname: &CStr, flags: u32) -> io::Result<()>;
        fn read<W: ZeroCopyWriter>(&self, ctx: Context, inode: Self::Inode, handle: Self::Handle, w: W, size: u32, offset: u64, lock_owner: Option<u64>, flags: u32) -> io::Result<usize>;
        fn write<R: ZeroCopyReader>(&self, ctx: Context, inode: Self::Inode, handle: Self::Handle, r: R, size: u32, offset: u64, lock_owner: Option<u64>, delayed_write: bool, kill_priv: bool, flags: u32) -> io::Result<usize>;
        fn flush(&self, ctx: Context, inode: Self::Inode, handle: Self::Handle, lock_owner: u64) -> io::Result<()>;
        fn fsync(&self, ctx: Context, inode: Self::Inode, datasync: bool, handle: Self::Handle) -> io::Result<()>;
        fn release(&self, ctx: Context, inode: Self::Inode, flags: u32, handle: Self::Handle, flush: bool, flock_release: bool, lock_owner: Option<u64>) -> io::Result<()>;
        fn statfs(&self, ctx: Context, inode: Self::Inode) -> io::Result<libc::statvfs64>;
        fn readdir(&self, ctx: Context, inode: Self::Inode, handle: Self::Handle, size: u32, offset: u64) -> io::Result<Self::DirIter>;
        fn fsyncdir(&self, ctx: Context, inode: Self::Inode, datasync: bool, handle: Self::Handle) -> io::Result<()>;
        fn releasedir(&self, ctx: Context, inode: Self::Inode, flags: u32, handle: Self::Handle) -> io::Result<()>;
        fn access(&self, ctx: Context, inode: Self::Inode, mask: u32) -> io::Result<()>;
        fn syncfs(&self, ctx: Context, inode: Self::Inode) -> io::Result<()>;
    }
}

impl<F: SerializableFileSystem> SerializableFileSystem for Translated<F> {
    pass_on! {
        fn prepare_serialization(&self, cancel: Arc<AtomicBool>);
        fn serialize(&self, state_pipe: File) -> io::Result<()>;
        fn deserialize_and_apply(&self, state_pipe: File) -> io::Result<()>;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guests_flags_mean_the_same_here() {
        // O_WRONLY | O_CREAT | O_LARGEFILE, then O_DIRECTORY, as each guest's kernel sends them.
        let power = OpenFlags::of(Arch::Ppc64le);
        assert_eq!(power.host(0o1 | 0o100 | 0o200_000), 0o1 | 0o100 | LARGEFILE);
        assert_eq!(power.host(0o40_000 | 0o200_000), DIRECTORY | LARGEFILE);
        let arm = OpenFlags::of(Arch::Aarch64);
        assert_eq!(arm.host(0o1 | 0o100 | 0o400_000), 0o1 | 0o100 | LARGEFILE);
        assert_eq!(arm.host(0o200_000), DIRECT);
        assert_eq!(OpenFlags::of(Arch::X86_64).host(0o777_777), 0o777_777);
    }
}
