//! The trait that a filesystem implements: one method per operation.
//!
//! Return values are the answers. An operation that is not implemented answers `ENOSYS`, which is part of the
//! protocol: the kernel remembers it, stops asking and falls back to a simpler operation if there is
//! one (no `create`: `mknod` and `open`; no `open` or `opendir`: handle 0; no `statx`: `getattr`; no
//! `copy_file_range`: read and write; no `flush`, `fsync`, `access`: success).
//!
//! All methods run on worker threads, several at a time, also for the same inode (the kernel serialises operations on
//! one directory or file only in part). They may block, but a blocked worker answers no other request. A method
//! must not wait for something that needs another request of the same mount, unless there are more workers
//! than such waiters. A panic in a method is answered with `EIO`, and
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

/// The caller of a request.
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
    /// Called once, before any other method, on the thread that mounts. May change the proposals to the kernel.
    /// An error ends the mount.
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        Ok(())
    }

    /// Called once, after the last request was answered.
    fn destroy(&self) {}

    /// Called after another method panicked, on the same thread; the caller of the request gets `EIO`. Locks with poisoning are
    /// poisoned, others are released, and a change may be half done: a filesystem with writes should stop writing.
    /// Must not panic: that ends the process.
    fn panicked(&self, panic: &Panic) {}

    /// Finds `name` in `parent`. The answer gives the kernel a reference to the node; `ENOENT` if there is none, or
    /// [`Entry::negative`] to let the kernel cache that.
    fn lookup(&self, ctx: Context<'_>, parent: NodeId, name: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Takes back `lookups` of the kernel's references to `node`. At zero the kernel will not name the node again.
    /// Cannot fail. Must be quick: nothing waits for it, but any request may be behind it.
    fn forget(&self, node: NodeId, lookups: u64) {}

    /// Takes back references of the kernel to many nodes, like [`forget`](Self::forget).
    fn batch_forget(&self, forgets: Forgets<'_>) {
        for (node, lookups) in forgets {
            self.forget(node, lookups);
        }
    }

    /// Attributes of `node`.
    fn getattr(&self, ctx: Context<'_>, node: NodeId, handle: Option<FileHandle>) -> Result<AttrReply> {
        Err(Errno::ENOSYS)
    }

    /// Returns attributes of `node` with the time of birth. Called instead of [`getattr`](Self::getattr) if a caller
    /// requests that time. `flags` are statx(2)'s (`AT_STATX_*`).
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

    /// Changes attributes, and returns all attributes after the change. The kernel has checked permissions if
    /// the mount has `default_permissions`.
    fn setattr(&self, ctx: Context<'_>, node: NodeId, changes: &SetAttr) -> Result<AttrReply> {
        Err(Errno::ENOSYS)
    }

    /// Puts the target of a symlink into `target`, without a NUL.
    fn readlink(&self, ctx: Context<'_>, node: NodeId, target: &mut ByteSink<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file, device, fifo or socket. The answer gives the kernel a reference, like a lookup.
    fn mknod(&self, ctx: Context<'_>, parent: NodeId, name: &[u8], new: &NewInode) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory. The answer gives the kernel a reference, like a lookup.
    fn mkdir(&self, ctx: Context<'_>, parent: NodeId, name: &[u8], new: &NewInode) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Removes a name that is not a directory. The inode lives on while it is referenced or open.
    fn unlink(&self, ctx: Context<'_>, parent: NodeId, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, ctx: Context<'_>, parent: NodeId, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a symlink. The answer gives the kernel a reference, like a lookup.
    fn symlink(&self, ctx: Context<'_>, parent: NodeId, name: &[u8], target: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Renames. Answer unsupported flags with `EINVAL`.
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

    /// Gives `node` another name. The answer gives the kernel one more reference to the same node.
    fn link(&self, ctx: Context<'_>, node: NodeId, new_parent: NodeId, new_name: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Opens a file.
    fn open(&self, ctx: Context<'_>, node: NodeId, open: &OpenRequest) -> Result<Opened> {
        Err(Errno::ENOSYS)
    }

    /// Reads into `out` and returns the number of bytes; less than `out.len()` only at the end of the file, where 0 means "no more".
    /// `out` may hold bytes of an earlier answer; the method must write all bytes below the returned length.
    fn read(&self, ctx: Context<'_>, node: NodeId, read: &ReadRequest, out: &mut [u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Writes `data`, which is a part of the request buffer and begins at a page, and returns the number of bytes written. A filesystem
    /// that keeps the bytes beyond the answer costs the worker a new buffer.
    fn write(
        &self,
        ctx: Context<'_>,
        node: NodeId,
        write: &WriteRequest,
        data: &SharedBytes,
    ) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Returns space and inode counts of the filesystem.
    fn statfs(&self, ctx: Context<'_>, node: NodeId) -> Result<Statfs> {
        Err(Errno::ENOSYS)
    }

    /// Releases an open file after its last descriptor and mapping. No process gets the answer, and close(2) does
    /// not wait for it.
    fn release(&self, ctx: Context<'_>, node: NodeId, release: &ReleaseRequest) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Called when a descriptor of an open file is closed; its error is close(2)'s. Called once per close, so more
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

    /// Puts the value of an extended attribute into the sink. Put all of it: the sink knows whether only its size is wanted.
    fn getxattr(&self, ctx: Context<'_>, node: NodeId, name: &[u8], value: &mut ByteSink<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Puts the names of all extended attributes into the sink, with [`ByteSink::put_name`].
    fn listxattr(&self, ctx: Context<'_>, node: NodeId, names: &mut ByteSink<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, ctx: Context<'_>, node: NodeId, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Opens a directory. If this is not implemented, the kernel caches listings, as with
    /// [`CACHE_DIR`](crate::protocol::OpenReplyFlags::CACHE_DIR) and [`KEEP_CACHE`](crate::protocol::OpenReplyFlags::KEEP_CACHE).
    fn opendir(&self, ctx: Context<'_>, node: NodeId, open: &OpenRequest) -> Result<Opened> {
        Err(Errno::ENOSYS)
    }

    /// Puts entries after cookie `offset` (0: from the start) into the sink until it is full; none at the end. The filesystem
    /// must include "." and "..".
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

    /// Puts entries with attributes into the sink. Each entry that [`push`](DirectoryPlusSink::push) accepts gives the kernel a reference,
    /// like a lookup. The default puts only names, from [`readdir`](Self::readdir), because the kernel has no fallback.
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

    /// Releases an open directory after its last descriptor.
    fn releasedir(&self, ctx: Context<'_>, node: NodeId, release: &ReleaseRequest) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory durable.
    fn fsyncdir(&self, ctx: Context<'_>, node: NodeId, handle: FileHandle, data_only: bool) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes everything durable. Only `fuseblk` mounts and virtiofs get this request; sync(2) does not send it to our mounts.
    fn syncfs(&self, ctx: Context<'_>, node: NodeId) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Checks access, like access(2). Not called if the mount has `default_permissions`.
    fn access(&self, ctx: Context<'_>, node: NodeId, mask: u32) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file and opens it. If the name exists by now (another client of the same image), opening it is
    /// correct unless `O_EXCL` is among the flags.
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

    /// Answers a control. `input` and `output` have the size that the number announces. Answer unknown controls with
    /// `ENOTTY`.
    ///
    /// Inode flags (chattr(1)) also arrive here, but from the kernel itself: on a handle that it opens for that
    /// purpose, with 4 bytes for `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS` whatever their numbers say. Before
    /// the latter it sends `FS_IOC_FSGETXATTR`, which needs an answer.
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

    /// Copies between two files, or shares their extents. Returns the number of bytes, which may be less than `len`.
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

    /// Called with every request before the method that answers it, also with requests that no method answers; not called for
    /// `init`, `forget`, `batch_forget` and interrupts. The default does nothing.
    fn observe(&self, request: &Request<'_>) {}
}
