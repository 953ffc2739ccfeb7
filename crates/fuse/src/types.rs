//! The words of the operations: what a filesystem is given and what it answers, free of wire details.

use std::fmt;
use std::time::Duration;

use creamery_base::Timespec;

use crate::interrupts::Interrupted;
use crate::protocol::wire;
use crate::protocol::{OpenReplyFlags, StatxMask};

/// Names an inode towards the kernel, from the first lookup to the last forget.
///
/// ```
/// use creamery_fuse::NodeId;
/// assert_eq!(NodeId::ROOT.get(), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u64);

impl NodeId {
    /// The root directory. It needs no lookup and is never forgotten.
    pub const ROOT: Self = Self(1);
    /// No inode: a negative entry.
    pub(crate) const NONE: Self = Self(0);

    /// The node `id`.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The bare number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({})", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Names an open file or directory: whatever number `open` answered.
///
/// ```
/// use creamery_fuse::FileHandle;
/// assert_eq!(FileHandle::new(3).get(), 3);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FileHandle(u64);

impl FileHandle {
    /// The handle `id`.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The bare number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Who asks. Zero for requests that the kernel makes on its own (writing back pages, releasing).
///
/// ```
/// use creamery_fuse::RequestContext;
/// let ctx = RequestContext::new(1000, 100, 4321);
/// assert!(ctx.uid == 1000 && !ctx.is_interrupted());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    /// The caller's filesystem user id.
    pub uid: u32,
    /// The caller's filesystem group id.
    pub gid: u32,
    /// The caller's thread id in the namespace of the mounter; 0 if it has none there.
    pub pid: u32,
    interrupted: Option<Interrupted<'a>>,
}

impl<'a> RequestContext<'a> {
    /// The context of a caller that is never interrupted.
    #[must_use]
    pub const fn new(uid: u32, gid: u32, pid: u32) -> Self {
        Self { uid, gid, pid, interrupted: None }
    }

    pub(crate) fn from_header(header: &wire::InHeader, interrupted: Interrupted<'a>) -> Self {
        Self { uid: header.uid, gid: header.gid, pid: header.pid, interrupted: Some(interrupted) }
    }

    /// Whether the caller got a signal meanwhile. A long operation may look now and then, undo what it did and
    /// answer [`Errno::EINTR`](crate::Errno::EINTR); a short one need not care.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.is_some_and(Interrupted::get)
    }
}

/// A device number in the two parts all systems agree on.
///
/// ```
/// use creamery_fuse::DeviceNumber;
/// let null = DeviceNumber { major: 1, minor: 3 };
/// assert_eq!(DeviceNumber::from_wire(null.to_wire()), null);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct DeviceNumber {
    /// Which driver: 12 bits.
    pub major: u32,
    /// Which device of it: 20 bits.
    pub minor: u32,
}

impl DeviceNumber {
    /// Decodes the kernel's 32-bit form (12 bits of major amid 20 of minor).
    #[must_use]
    pub const fn from_wire(raw: u32) -> Self {
        Self { major: (raw & 0x000f_ff00) >> 8, minor: (raw & 0xff) | ((raw >> 12) & 0x000f_ff00) }
    }

    /// Encodes into the kernel's 32-bit form; bits beyond 12 and 20 are lost.
    #[must_use]
    pub const fn to_wire(self) -> u32 {
        (self.minor & 0xff) | ((self.major & 0xfff) << 8) | ((self.minor & 0x000f_ff00) << 12)
    }
}

/// Attributes of an inode.
///
/// ```
/// use creamery_fuse::Attr;
/// let directory = Attr { ino: 256, mode: 0o040_755, nlink: 1, blksize: 4096, ..Attr::default() };
/// assert_eq!(directory.kind(), 4);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Attr {
    /// What `st_ino` shows; need not equal the node id.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes in use.
    pub blocks: u64,
    /// Last access.
    pub atime: Timespec,
    /// Last change of the data.
    pub mtime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
    /// Type and permission bits.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Which device a device node stands for.
    pub rdev: DeviceNumber,
    /// Preferred size of I/O: a power of two, or 0 for the kernel's default.
    pub blksize: u32,
    /// `FUSE_ATTR_*`; of use on virtiofs only.
    pub flags: u32,
}

impl Attr {
    /// The file type as directory entries carry it (`DT_REG`, ...).
    #[must_use]
    pub const fn kind(&self) -> u32 {
        (self.mode & 0o170_000) >> 12
    }
}

/// Attributes and how long the kernel may believe them.
///
/// ```
/// use std::time::Duration;
/// use creamery_fuse::{Attr, AttrReply};
/// let reply = AttrReply { attr: Attr::default(), valid: Duration::from_secs(1) };
/// assert_eq!(reply.valid.as_secs(), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttrReply {
    /// The attributes.
    pub attr: Attr,
    /// How long they hold without asking again.
    pub valid: Duration,
}

/// The same with what statx(2) adds. Of these the kernel passes on the time of birth only.
///
/// ```
/// use std::time::Duration;
/// use creamery_base::Timespec;
/// use creamery_fuse::{Attr, StatxReply};
/// let born = Timespec { sec: 7, nsec: 0 };
/// let reply = StatxReply::new(Attr::default(), Some(born), Duration::ZERO);
/// assert_eq!(reply.btime, Some(born));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatxReply {
    /// What stat(2) gives.
    pub attr: Attr,
    /// Time of birth, if known.
    pub btime: Option<Timespec>,
    /// `STATX_ATTR_*` bits that are set.
    pub attributes: u64,
    /// `STATX_ATTR_*` bits that are supported.
    pub attributes_mask: u64,
    /// How long it holds without asking again.
    pub valid: Duration,
}

impl StatxReply {
    /// Attributes with a time of birth and no attribute bits.
    #[must_use]
    pub const fn new(attr: Attr, btime: Option<Timespec>, valid: Duration) -> Self {
        Self { attr, btime, attributes: 0, attributes_mask: 0, valid }
    }

    pub(crate) fn mask(&self) -> StatxMask {
        if self.btime.is_some() { StatxMask::BASIC_STATS | StatxMask::BTIME } else { StatxMask::BASIC_STATS }
    }
}

/// A name that was found or made. Answering one gives the kernel one reference to `node`, which it returns by
/// [`forget`](crate::Operations::forget).
///
/// ```
/// use std::time::Duration;
/// use creamery_fuse::Entry;
/// assert!(Entry::negative(Duration::from_secs(1)).is_negative());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The inode.
    pub node: NodeId,
    /// Tells two lives of one node id apart (for NFS); may stay 0 when ids are not used again.
    pub generation: u64,
    /// Its attributes.
    pub attr: Attr,
    /// How long the attributes hold.
    pub attr_valid: Duration,
    /// How long the name holds.
    pub entry_valid: Duration,
}

impl Entry {
    /// The answer "there is no such name", to be believed for `valid`. Unlike
    /// [`ENOENT`](crate::Errno::ENOENT) the kernel remembers it.
    #[must_use]
    pub fn negative(valid: Duration) -> Self {
        Self {
            node: NodeId::NONE,
            generation: 0,
            attr: Attr::default(),
            attr_valid: Duration::ZERO,
            entry_valid: valid,
        }
    }

    /// Whether it says "no such name".
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.node == NodeId::NONE
    }
}

/// An open file or directory.
///
/// ```
/// use creamery_fuse::{FileHandle, Opened};
/// use creamery_fuse::protocol::OpenReplyFlags;
/// let file = Opened { handle: FileHandle::new(1), flags: OpenReplyFlags::KEEP_CACHE };
/// assert_ne!(file, Opened::default());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Opened {
    /// Names it in later requests.
    pub handle: FileHandle,
    /// How the kernel treats it.
    pub flags: OpenReplyFlags,
}

/// How a file is opened.
///
/// ```
/// use creamery_fuse::OpenRequest;
/// let open = OpenRequest { flags: 0o2, kill_suidgid: false };
/// assert!(open.writes() && open.reads());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenRequest {
    /// The flags of open(2), without `O_CREAT`, `O_EXCL`, `O_NOCTTY`, and `O_TRUNC` unless negotiated.
    pub flags: u32,
    /// Truncating must clear setuid, and setgid of a group-executable file.
    pub kill_suidgid: bool,
}

impl OpenRequest {
    /// Whether data may be read through the handle.
    #[must_use]
    pub const fn reads(&self) -> bool {
        self.flags & 3 != 1
    }

    /// Whether data may be written through the handle.
    #[must_use]
    pub const fn writes(&self) -> bool {
        self.flags & 3 != 0
    }
}

/// What a new inode shall be.
///
/// ```
/// use creamery_fuse::NewInode;
/// let new = NewInode { mode: 0o100_666, umask: 0o022, ..NewInode::default() };
/// assert_eq!(new.masked_mode(), 0o100_644);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NewInode {
    /// Type and permissions. Unmasked when `DONT_MASK` was negotiated.
    pub mode: u32,
    /// The caller's umask, which counts if the directory has no default ACL.
    pub umask: u32,
    /// For device nodes.
    pub rdev: DeviceNumber,
}

impl NewInode {
    /// The mode with the umask applied (harmless when the kernel did it already).
    #[must_use]
    pub const fn masked_mode(&self) -> u32 {
        self.mode & !(self.umask & 0o777)
    }
}

/// A time to set.
///
/// ```
/// use creamery_base::Timespec;
/// use creamery_fuse::SetTime;
/// let now = Timespec { sec: 5, nsec: 0 };
/// assert_eq!(SetTime::Now.resolve(now), now);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The time when the operation runs.
    Now,
    /// This time.
    At(Timespec),
}

impl SetTime {
    /// The time meant, if it is `now`.
    #[must_use]
    pub const fn resolve(self, now: Timespec) -> Timespec {
        match self {
            Self::Now => now,
            Self::At(time) => time,
        }
    }
}

/// Attributes to change; `None` stays as it is.
///
/// ```
/// use creamery_fuse::SetAttr;
/// let truncate = SetAttr { size: Some(0), ..SetAttr::default() };
/// assert!(truncate.mode.is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SetAttr {
    /// Permission bits (and type, to be ignored).
    pub mode: Option<u32>,
    /// Owner. Changing it must clear setuid and setgid too, as the kernel leaves this to us.
    pub uid: Option<u32>,
    /// Group; as with the owner.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// Last change of the inode; sent only with the writeback cache.
    pub ctime: Option<Timespec>,
    /// The open file through which it is done: ftruncate(2) needs no write permission.
    pub handle: Option<FileHandle>,
    /// Owner of locks, for mandatory ones.
    pub lock_owner: Option<u64>,
    /// Clear setuid, and setgid of a group-executable file.
    pub kill_suidgid: bool,
}

/// Where and how to read.
///
/// ```
/// use creamery_fuse::{FileHandle, ReadRequest};
/// let read = ReadRequest { handle: FileHandle::new(1), offset: 4096, flags: 0, lock_owner: None };
/// assert_eq!(read.offset, 4096);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRequest {
    /// The open file.
    pub handle: FileHandle,
    /// Where to start; at most `i64::MAX`.
    pub offset: u64,
    /// The file's open flags now (`O_DIRECT` can change after open).
    pub flags: u32,
    /// Owner of locks, if given.
    pub lock_owner: Option<u64>,
}

/// Where and how to write.
///
/// ```
/// use creamery_fuse::{FileHandle, WriteRequest};
/// use creamery_fuse::protocol::WriteFlags;
/// let write = WriteRequest {
///     handle: FileHandle::new(1), offset: 0, flags: 0, write_flags: WriteFlags::CACHE, lock_owner: None,
/// };
/// assert!(write.write_flags.contains(WriteFlags::CACHE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteRequest {
    /// The open file.
    pub handle: FileHandle,
    /// Where to start; start plus length is at most `i64::MAX`.
    pub offset: u64,
    /// The file's open flags now.
    pub flags: u32,
    /// Whether it comes from the page cache, and what else to do.
    pub write_flags: crate::protocol::WriteFlags,
    /// Owner of locks, if given.
    pub lock_owner: Option<u64>,
}

/// How an open file ends.
///
/// ```
/// use creamery_fuse::{FileHandle, ReleaseRequest};
/// use creamery_fuse::protocol::ReleaseFlags;
/// let last = ReleaseRequest {
///     handle: FileHandle::new(1), flags: 0, release_flags: ReleaseFlags::empty(), lock_owner: 0,
/// };
/// assert_eq!(last.handle.get(), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReleaseRequest {
    /// The open file.
    pub handle: FileHandle,
    /// Its open flags.
    pub flags: u32,
    /// What else to do.
    pub release_flags: crate::protocol::ReleaseFlags,
    /// Owner of locks.
    pub lock_owner: u64,
}

/// How to set an extended attribute.
///
/// ```
/// use creamery_fuse::SetXattrRequest;
/// let set = SetXattrRequest { flags: SetXattrRequest::CREATE, kill_sgid: false };
/// assert!(set.create() && !set.replace());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SetXattrRequest {
    /// [`CREATE`](Self::CREATE), [`REPLACE`](Self::REPLACE) or 0.
    pub flags: u32,
    /// Setting the access ACL must clear setgid.
    pub kill_sgid: bool,
}

impl SetXattrRequest {
    /// Fail if the attribute exists.
    pub const CREATE: u32 = 1;
    /// Fail if the attribute does not exist.
    pub const REPLACE: u32 = 2;

    /// Whether the attribute must be new.
    #[must_use]
    pub const fn create(&self) -> bool {
        self.flags & Self::CREATE != 0
    }

    /// Whether the attribute must exist.
    #[must_use]
    pub const fn replace(&self) -> bool {
        self.flags & Self::REPLACE != 0
    }
}

/// A control (ioctl). Over `/dev/fuse` the sizes of input and output come from the number itself; anything behind
/// a pointer inside the argument is out of reach.
///
/// ```
/// use creamery_fuse::{FileHandle, IoctlRequest};
/// use creamery_fuse::protocol::IoctlFlags;
/// let get_flags = IoctlRequest {
///     handle: FileHandle::new(1), flags: IoctlFlags::empty(), command: 0x8008_6601, argument: 0,
/// };
/// assert_eq!(get_flags.command & 0xff, 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoctlRequest {
    /// The open file or directory.
    pub handle: FileHandle,
    /// Who asks.
    pub flags: crate::protocol::IoctlFlags,
    /// The number of the control.
    pub command: u32,
    /// The third argument as it was passed (a pointer in the caller's memory, most often).
    pub argument: u64,
}

/// The answer to a control.
///
/// ```
/// use creamery_fuse::IoctlReply;
/// assert_eq!(IoctlReply { result: 0, len: 8 }.len, 8);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct IoctlReply {
    /// What ioctl(2) returns.
    pub result: i32,
    /// How many bytes of output were filled.
    pub len: usize,
}

/// One side of a copy on the server.
///
/// ```
/// use creamery_fuse::{CopySide, FileHandle, NodeId};
/// let from = CopySide { node: NodeId::new(2), handle: FileHandle::new(1), offset: 0 };
/// assert_eq!(from.offset, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopySide {
    /// The inode.
    pub node: NodeId,
    /// The open file.
    pub handle: FileHandle,
    /// Where to start.
    pub offset: u64,
}

/// What to look for from an offset.
///
/// ```
/// use creamery_fuse::SeekTo;
/// assert_eq!(SeekTo::from_whence(4), Some(SeekTo::Hole));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTo {
    /// Relative to the start.
    Start,
    /// Relative to the end (the offset is an `i64` in disguise).
    End,
    /// The next data.
    Data,
    /// The next hole; the file's end counts as one.
    Hole,
}

impl SeekTo {
    /// From lseek(2)'s number. `SEEK_CUR` never comes: the kernel knows the position.
    #[must_use]
    pub const fn from_whence(whence: u32) -> Option<Self> {
        match whence {
            0 => Some(Self::Start),
            2 => Some(Self::End),
            3 => Some(Self::Data),
            4 => Some(Self::Hole),
            _ => None,
        }
    }
}

/// Space and files.
///
/// ```
/// use creamery_fuse::Statfs;
/// let half = Statfs { blocks: 100, free: 50, available: 50, block_size: 4096, ..Statfs::default() };
/// assert_eq!(half.name_len_max, 255);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statfs {
    /// All blocks, in units of `block_size`.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks for users.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Unit of the counts, and preferred size of I/O.
    pub block_size: u32,
    /// Longest name.
    pub name_len_max: u32,
}

impl Default for Statfs {
    fn default() -> Self {
        Self {
            blocks: 0,
            free: 0,
            available: 0,
            files: 0,
            files_free: 0,
            block_size: 4096,
            name_len_max: 255,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_keep_12_and_20_bits() {
        for (major, minor) in [(0, 0), (8, 1), (259, 65_537), (0xfff, 0xf_ffff), (10, 229)] {
            let number = DeviceNumber { major, minor };
            assert_eq!(DeviceNumber::from_wire(number.to_wire()), number);
        }
        assert_eq!(DeviceNumber { major: 8, minor: 1 }.to_wire(), 0x801);
    }
}
