//! The trait that a filesystem implements: one method per operation.
//!
//! Answers are return values. What an operation does not implement answers `ENOSYS`, which is part of the
//! protocol: the kernel remembers it, stops asking and falls back to something simpler where there is
//! something (no `create`: `mknod` and `open`; no `open` or `opendir`: handle 0; no `statx`: `getattr`; no
//! `copy_file_range`: read and write; no `flush`, `fsync`, `access`: success).
//!
//! All methods run on worker threads, several at a time, also for the same inode (the kernel serialises what
//! one directory or file needs only in part). They may block, but a blocked worker serves nobody else; and
//! none may wait for something that needs another request of the same mount to be served, unless more workers
//! than such waiters exist. A panic in any of them is answered with `EIO`, and
//! [`Operations::panicked`] is called.

use creamery_base::panics::Panic;
use creamery_device::SharedBytes;

use crate::errno::{Errno, Result};
use crate::negotiate::Negotiation;
use crate::protocol::{ByteSink, DirectoryPlusSink, DirectorySink, Forgets, RenameFlags, Request, StatxMask};
use crate::types::{
    AttrReply, CopySide, Entry, FileHandle, IoctlReply, IoctlRequest, NewInode, NodeId, OpenRequest, Opened,
    ReadRequest, ReleaseRequest, RequestContext, SeekTo, SetAttr, SetXattrRequest, Statfs, StatxReply,
    WriteRequest,
};

/// Who asks.
type Context<'a> = &'a RequestContext<'a>;

/// A filesystem, as the kernel sees it.
///
/// ```
/// use std::time::Duration;
/// use creamery_fuse::{Attr, AttrReply, Errno, Entry, FileHandle, NodeId, Operations, RequestContext, Result};
///
/// /// An empty directory.
/// struct Nothing;
///
/// impl Operations for Nothing {
///     fn lookup(&self, _: &RequestContext<'_>, _: NodeId, _: &[u8]) -> Result<Entry> {
///         Err(Errno::ENOENT)
///     }
///     fn getattr(&self, _: &RequestContext<'_>, node: NodeId, _: Option<FileHandle>) -> Result<AttrReply> {
///         assert_eq!(node, NodeId::ROOT);
///         let attr = Attr { ino: 1, mode: 0o040_755, nlink: 1, ..Attr::default() };
///         Ok(AttrReply { attr, valid: Duration::from_secs(1) })
///     }
/// }
/// # let ctx = RequestContext::new(0, 0, 0);
/// # assert_eq!(Nothing.lookup(&ctx, NodeId::ROOT, b"x"), Err(Errno::ENOENT));
/// # assert!(Nothing.statfs(&ctx, NodeId::ROOT).is_err());
/// ```
#[allow(unused_variables, reason = "the defaults ignore their arguments, whose names are documentation")]
pub trait Operations: Send + Sync + 'static {
    /// Called once, before anything else, on the thread that mounts. May change what is asked of the kernel.
    /// An error ends the mount.
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        Ok(())
    }

    /// Called once, after the last request was answered.
    fn destroy(&self) {}

    /// One of the other methods panicked, on this thread; its caller gets `EIO`. Locks that know of panics are
    /// poisoned, others were let go, and what it was changing may be half changed: a filesystem that writes stops writing.
    /// Must not panic: that ends the process.
    fn panicked(&self, panic: &Panic) {}

    /// Finds `name` in `parent`. The answer gives the kernel a reference to the node; `ENOENT`, or
    /// [`Entry::negative`] to have that remembered.
    fn lookup(&self, ctx: Context<'_>, parent: NodeId, name: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// The kernel gives back `lookups` references to `node`. At zero it will not name the node again.
    /// Cannot fail; must be quick, as nothing waits for it and everything can be behind it.
    fn forget(&self, node: NodeId, lookups: u64) {}

    /// The same for many nodes.
    fn batch_forget(&self, forgets: Forgets<'_>) {
        for (node, lookups) in forgets {
            self.forget(node, lookups);
        }
    }

    /// Attributes of `node`.
    fn getattr(&self, ctx: Context<'_>, node: NodeId, handle: Option<FileHandle>) -> Result<AttrReply> {
        Err(Errno::ENOSYS)
    }

    /// Attributes of `node` with the time of birth. Asked instead of [`getattr`](Self::getattr) when somebody
    /// wants the latter. `flags` are statx(2)'s (`AT_STATX_*`).
    fn statx(
        &self,
        ctx: Context<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
        flags: u32,
        mask: StatxMask,
    ) -> Result<StatxReply> {
        Err(Errno::ENOSYS)
    }

    /// Changes attributes, and answers all of them as they are then. Permission was checked by the kernel if
    /// the mount has `default_permissions`.
    fn setattr(&self, ctx: Context<'_>, node: NodeId, changes: &SetAttr) -> Result<AttrReply> {
        Err(Errno::ENOSYS)
    }

    /// The target of a symlink, put into `target` without a NUL.
    fn readlink(&self, ctx: Context<'_>, node: NodeId, target: &mut ByteSink<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file, device, fifo or socket. A reference, as for a lookup.
    fn mknod(&self, ctx: Context<'_>, parent: NodeId, name: &[u8], new: &NewInode) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory. A reference, as for a lookup.
    fn mkdir(&self, ctx: Context<'_>, parent: NodeId, name: &[u8], new: &NewInode) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Removes a name of anything but a directory. The inode lives on while it is referenced or open.
    fn unlink(&self, ctx: Context<'_>, parent: NodeId, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, ctx: Context<'_>, parent: NodeId, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a symlink. A reference, as for a lookup.
    fn symlink(&self, ctx: Context<'_>, parent: NodeId, name: &[u8], target: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Renames. Flags the filesystem does not do are answered with `EINVAL`.
    fn rename(
        &self,
        ctx: Context<'_>,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Gives `node` another name. One more reference to the same node.
    fn link(&self, ctx: Context<'_>, node: NodeId, new_parent: NodeId, new_name: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Opens a file.
    fn open(&self, ctx: Context<'_>, node: NodeId, open: &OpenRequest) -> Result<Opened> {
        Err(Errno::ENOSYS)
    }

    /// Reads into `out` and answers how much; less only at the end of the file, where 0 means "no more".
    /// `out` may hold bytes of an earlier answer; those below the returned length must have been written.
    fn read(&self, ctx: Context<'_>, node: NodeId, read: &ReadRequest, out: &mut [u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Writes `data`, which is a part of the request buffer and begins at a page, and answers how much was written. Who keeps
    /// the bytes beyond the answer costs the worker a new buffer.
    fn write(
        &self,
        ctx: Context<'_>,
        node: NodeId,
        write: &WriteRequest,
        data: &SharedBytes,
    ) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Space and files of the filesystem.
    fn statfs(&self, ctx: Context<'_>, node: NodeId) -> Result<Statfs> {
        Err(Errno::ENOSYS)
    }

    /// The last descriptor and mapping of an open file are gone. The answer reaches nobody, and close(2) does
    /// not wait for it.
    fn release(&self, ctx: Context<'_>, node: NodeId, release: &ReleaseRequest) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// A descriptor of an open file is being closed; its error is close(2)'s. Comes once per close, so more
    /// often than `release`.
    fn flush(&self, ctx: Context<'_>, node: NodeId, handle: FileHandle, lock_owner: u64) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file durable.
    fn fsync(&self, ctx: Context<'_>, node: NodeId, handle: FileHandle, data_only: bool) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Sets an extended attribute.
    fn setxattr(
        &self,
        ctx: Context<'_>,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        set: &SetXattrRequest,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The value of an extended attribute. Put all of it: the sink knows whether only its size is wanted.
    fn getxattr(&self, ctx: Context<'_>, node: NodeId, name: &[u8], value: &mut ByteSink<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The names of all extended attributes, by [`ByteSink::put_name`].
    fn listxattr(&self, ctx: Context<'_>, node: NodeId, names: &mut ByteSink<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, ctx: Context<'_>, node: NodeId, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Opens a directory. Where that is not implemented the kernel keeps what listings told, as with
    /// [`CACHE_DIR`](crate::protocol::OpenReplyFlags::CACHE_DIR) and [`KEEP_CACHE`](crate::protocol::OpenReplyFlags::KEEP_CACHE).
    fn opendir(&self, ctx: Context<'_>, node: NodeId, open: &OpenRequest) -> Result<Opened> {
        Err(Errno::ENOSYS)
    }

    /// Entries after cookie `offset` (0: from the start) until the sink is full; none at the end. "." and
    /// ".." are the filesystem's to give.
    fn readdir(
        &self,
        ctx: Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The same with attributes. Each entry that went into the sink by
    /// [`push`](DirectoryPlusSink::push) is a reference, as for a lookup. By default names alone, from
    /// [`readdir`](Self::readdir), as the kernel has nothing to fall back to.
    fn readdirplus(
        &self,
        ctx: Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        sink: &mut DirectoryPlusSink<'_>,
    ) -> Result<()> {
        self.readdir(ctx, node, handle, offset, sink.names())
    }

    /// The last descriptor of a directory is gone.
    fn releasedir(&self, ctx: Context<'_>, node: NodeId, release: &ReleaseRequest) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory durable.
    fn fsyncdir(&self, ctx: Context<'_>, node: NodeId, handle: FileHandle, data_only: bool) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes everything durable. Comes on `fuseblk` mounts and virtiofs only, not from sync(2) on ours.
    fn syncfs(&self, ctx: Context<'_>, node: NodeId) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Checks access, as access(2). Not asked when the mount has `default_permissions`.
    fn access(&self, ctx: Context<'_>, node: NodeId, mask: u32) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file and opens it. If the name exists by now (another client of the same image), opening it is
    /// right unless `O_EXCL` is among the flags.
    fn create(
        &self,
        ctx: Context<'_>,
        parent: NodeId,
        name: &[u8],
        new: &NewInode,
        open: &OpenRequest,
    ) -> Result<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file without a name in the filesystem of `parent` and opens it. Its link count is 0; `link`
    /// may give it a name.
    fn tmpfile(
        &self,
        ctx: Context<'_>,
        parent: NodeId,
        new: &NewInode,
        open: &OpenRequest,
    ) -> Result<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// A control. `input` and `output` have the size that the number itself tells. Answer `ENOTTY` to those
    /// not known.
    ///
    /// Inode flags (chattr(1)) come this way, too, but from the kernel itself: on a handle it opens for the
    /// purpose, with 4 bytes for `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS` whatever their numbers say; and
    /// before it sends the latter it wants `FS_IOC_FSGETXATTR` answered.
    fn ioctl(
        &self,
        ctx: Context<'_>,
        node: NodeId,
        ioctl: &IoctlRequest,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<IoctlReply> {
        Err(Errno::ENOSYS)
    }

    /// Allocates, punches a hole or zeroes; `mode` is fallocate(2)'s.
    fn fallocate(
        &self,
        ctx: Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Finds the next data or hole; `ENXIO` past the end. Pages dirtied by mmap may still lie in the kernel.
    fn lseek(
        &self,
        ctx: Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        Err(Errno::ENOSYS)
    }

    /// Copies between two files, or shares their extents. Answers how much, which may be less than `len`.
    fn copy_file_range(
        &self,
        ctx: Context<'_>,
        from: &CopySide,
        to: &CopySide,
        len: u64,
        flags: u64,
    ) -> Result<u64> {
        Err(Errno::ENOSYS)
    }

    /// Anything else, and a chance to see requests go by; called before each of the methods above but
    /// `forget` and `init`. Does nothing.
    fn observe(&self, request: &Request<'_>) {}
}
