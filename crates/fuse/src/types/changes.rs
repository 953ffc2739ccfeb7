//! Changes of inodes.

use creamery_base::Timespec;

use super::{DeviceNumber, FileHandle};

/// The attributes of a new inode.
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
    /// The device number of a device node.
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
    /// The time to set, if it is `now`.
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
    /// Owner. A change must clear setuid and setgid too, because the kernel leaves that to the server.
    pub uid: Option<u32>,
    /// Group; a change must clear setuid and setgid, too.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// Last change of the inode; sent only with the writeback cache.
    pub ctime: Option<Timespec>,
    /// The open file of the change: ftruncate(2) needs no write permission.
    pub handle: Option<FileHandle>,
    /// Owner of locks, for mandatory ones.
    pub lock_owner: Option<u64>,
    /// Clear setuid, and setgid of a group-executable file.
    pub kill_suidgid: bool,
}

/// Options for setting an extended attribute.
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
