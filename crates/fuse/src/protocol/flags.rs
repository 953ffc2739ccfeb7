//! Flag words of the protocol. Unknown bits are kept if the kernel may add some, and rejected if
//! they would change the meaning of the request.

use bitflags::bitflags;

/// Major version of the protocol.
pub const MAJOR: u32 = 7;
/// The newest minor version that is supported.
pub const MINOR: u32 = 45;
/// The oldest minor version that is supported (Linux 5.4); older ones have other structure sizes.
pub const MINOR_MIN: u32 = 31;

bitflags! {
    /// Capabilities that kernel and server agree on in `INIT`. The upper half travels in `flags2`.
    ///
    /// ```
    /// use creamery_fuse::protocol::InitFlags;
    /// assert_eq!(InitFlags::SECURITY_CTX.bits(), 1 << 32);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct InitFlags: u64 {
        /// Several reads of one file at a time.
        const ASYNC_READ = 1 << 0;
        /// POSIX locks come to the server.
        const POSIX_LOCKS = 1 << 1;
        /// `open` truncates by itself.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// "." and ".." can be looked up, so the mount can be exported.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than 4 KiB.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask (it must, with ACLs).
        const DONT_MASK = 1 << 6;
        /// The device takes splices for writing.
        const SPLICE_WRITE = 1 << 7;
        /// The device can move pages.
        const SPLICE_MOVE = 1 << 8;
        /// The device gives splices for reading.
        const SPLICE_READ = 1 << 9;
        /// `flock` locks come to the server.
        const FLOCK_LOCKS = 1 << 10;
        /// Controls on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Cached pages are dropped when the modification time changed.
        const AUTO_INVAL_DATA = 1 << 12;
        /// `READDIRPLUS` is known.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel chooses between `READDIR` and `READDIRPLUS`.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct I/O in several requests at a time.
        const ASYNC_DIO = 1 << 15;
        /// Writes stay in the kernel's page cache (see the crate's documentation before you request it).
        const WRITEBACK_CACHE = 1 << 16;
        /// `open` may be answered with ENOSYS once and for all.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and readdirs of one directory in parallel.
        const PARALLEL_DIROPS = 1 << 18;
        /// The server clears setuid, setgid and capabilities, first version.
        const HANDLE_KILLPRIV = 1 << 19;
        /// ACLs are checked by the kernel and stored by the server.
        const POSIX_ACL = 1 << 20;
        /// Reading an aborted connection says ECONNABORTED.
        const ABORT_ERROR = 1 << 21;
        /// The answer names `max_pages`.
        const MAX_PAGES = 1 << 22;
        /// Symlink targets stay in the page cache.
        const CACHE_SYMLINKS = 1 << 23;
        /// `opendir` may be answered with ENOSYS once and for all.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached pages are dropped only by a notification.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The answer names `map_alignment` (virtiofs).
        const MAP_ALIGNMENT = 1 << 26;
        /// Attributes may mark the root of a submount (virtiofs only).
        const SUBMOUNTS = 1 << 27;
        /// The server clears setuid, setgid and capabilities, when flags say so.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// `SETXATTR` carries flags of its own.
        const SETXATTR_EXT = 1 << 29;
        /// `flags2` is valid.
        const INIT_EXT = 1 << 30;
        /// Never to be used.
        const INIT_RESERVED = 1 << 31;
        /// Creations carry a security context.
        const SECURITY_CTX = 1 << 32;
        /// Direct access per inode (virtiofs).
        const HAS_INODE_DAX = 1 << 33;
        /// Creations carry the one supplementary group that matters.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Names can be expired without being dropped.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Shared mappings of files open for direct I/O.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Reads and writes may go straight to a backing file.
        const PASSTHROUGH = 1 << 37;
        /// Not to be exported.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// Pending requests can be sent again.
        const HAS_RESEND = 1 << 39;
        /// Mounts with mapped owners.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests over `io_uring`.
        const OVER_IO_URING = 1 << 41;
        /// Requests can time out.
        const REQUEST_TIMEOUT = 1 << 42;
        // Newer kernels offer more; unknown flags are not requested, but can be printed.
        const _ = !0;
    }

    /// The behaviour of an open file or directory in the kernel, set in the answer to `open`.
    ///
    /// ```
    /// use creamery_fuse::protocol::OpenReplyFlags;
    /// assert_eq!(OpenReplyFlags::KEEP_CACHE.bits(), 2);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct OpenReplyFlags: u32 {
        /// Bypass the page cache.
        const DIRECT_IO = 1 << 0;
        /// Do not drop cached data on this open.
        const KEEP_CACHE = 1 << 1;
        /// Not seekable.
        const NONSEEKABLE = 1 << 2;
        /// The kernel may cache this directory's entries.
        const CACHE_DIR = 1 << 3;
        /// Has no file position at all.
        const STREAM = 1 << 4;
        /// No flush on close.
        const NOFLUSH = 1 << 5;
        /// Direct writes to one inode in parallel.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    /// The treatment of a rename's target, as in renameat2(2).
    ///
    /// ```
    /// use creamery_fuse::protocol::RenameFlags;
    /// assert!(RenameFlags::from_bits(8).is_none());
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct RenameFlags: u32 {
        /// Fail if the target exists.
        const NOREPLACE = 1 << 0;
        /// Swap the two; both must exist.
        const EXCHANGE = 1 << 1;
        /// Leave a whiteout (character device 0:0) at the source.
        const WHITEOUT = 1 << 2;
    }

    /// Flags of a write.
    ///
    /// ```
    /// use creamery_fuse::protocol::WriteFlags;
    /// assert!(WriteFlags::from_bits_retain(4).contains(WriteFlags::KILL_SUIDGID));
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct WriteFlags: u32 {
        /// From the page cache (mmap): the handle and the caller are guessed.
        const CACHE = 1 << 0;
        /// A lock owner is given.
        const LOCKOWNER = 1 << 1;
        /// Clear setuid, and setgid of a group-executable file.
        const KILL_SUIDGID = 1 << 2;
        const _ = !0;
    }

    /// Flags of a release.
    ///
    /// ```
    /// use creamery_fuse::protocol::ReleaseFlags;
    /// assert_eq!(ReleaseFlags::FLOCK_UNLOCK.bits(), 2);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct ReleaseFlags: u32 {
        /// Flush too.
        const FLUSH = 1 << 0;
        /// Give back `flock` locks.
        const FLOCK_UNLOCK = 1 << 1;
        const _ = !0;
    }

    /// The kind of the caller of a control, and of its file.
    ///
    /// ```
    /// use creamery_fuse::protocol::IoctlFlags;
    /// assert_eq!(IoctlFlags::DIR.bits(), 16);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct IoctlFlags: u32 {
        /// A 32-bit program on a 64-bit machine.
        const COMPAT = 1 << 0;
        /// Only for character devices; never set for files.
        const UNRESTRICTED = 1 << 1;
        /// A 32-bit control.
        const IOCTL_32BIT = 1 << 3;
        /// On a directory.
        const DIR = 1 << 4;
        /// x32 program.
        const COMPAT_X32 = 1 << 5;
        const _ = !0;
    }

    /// Which attributes `SETATTR` carries.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub(crate) struct SetattrValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const FH = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const LOCKOWNER = 1 << 9;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
        const _ = !0;
    }

    /// Which fields of a [`StatxReply`](crate::StatxReply) are asked for or valid, as in statx(2).
    ///
    /// ```
    /// use creamery_fuse::protocol::StatxMask;
    /// assert_eq!((StatxMask::BASIC_STATS | StatxMask::BTIME).bits(), 0xfff);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct StatxMask: u32 {
        /// All fields of stat(2).
        const BASIC_STATS = 0x7ff;
        /// The time of birth.
        const BTIME = 0x800;
        const _ = !0;
    }
}

/// `GETATTR` and `STATX`: the handle is valid.
pub(crate) const GETATTR_FH: u32 = 1 << 0;
/// `OPEN` and `CREATE`: clear setuid, and setgid of a group-executable file, when truncating.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// `FSYNC`: data only.
pub(crate) const FSYNC_DATASYNC: u32 = 1 << 0;
/// `SETXATTR`: clear setgid, for the access ACL.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `READ`: the lock owner is valid.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
/// `NOTIFY_INVAL_ENTRY`: expire only.
pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;
/// High bit of a request's number: it was sent before.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;
