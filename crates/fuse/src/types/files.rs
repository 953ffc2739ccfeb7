//! Open files and directories, and requests through them.

use super::{FileHandle, NodeId};
use crate::protocol::{IoctlFlags, OpenReplyFlags, ReleaseFlags, WriteFlags};

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
    /// The number of the file in later requests.
    pub handle: FileHandle,
    /// The kernel's treatment of the file.
    pub flags: OpenReplyFlags,
}

/// A request to open a file.
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

/// A read: the file and the range.
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
    /// Offset in bytes; at most `i64::MAX`.
    pub offset: u64,
    /// The file's open flags now (`O_DIRECT` can change after open).
    pub flags: u32,
    /// Owner of locks, if given: the kernel sets one if it reads around its page cache, and none if it fills pages.
    pub lock_owner: Option<u64>,
}

/// A write: the file and the offset.
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
    /// Offset in bytes; offset plus length is at most `i64::MAX`.
    pub offset: u64,
    /// The file's open flags now.
    pub flags: u32,
    /// Whether the data comes from the page cache, and other flags.
    pub write_flags: WriteFlags,
    /// Owner of locks, if given: the kernel sets one if it writes around its page cache, and none for data that stays in pages.
    pub lock_owner: Option<u64>,
}

/// The release of an open file.
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
    /// Further actions.
    pub release_flags: ReleaseFlags,
    /// Owner of locks.
    pub lock_owner: u64,
}

/// A control (ioctl). Over `/dev/fuse` the number itself gives the sizes of input and output; data
/// behind a pointer inside the argument is out of reach.
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
    /// Flags of the caller and of the file.
    pub flags: IoctlFlags,
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
    /// The result of ioctl(2).
    pub result: i32,
    /// Bytes of output.
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

/// The target of a seek from an offset.
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
