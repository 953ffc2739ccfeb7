//! Attributes of an inode, for `stat`. `ops/set_attributes` changes them.

use creamery_base::{Generation, InodeId, Result, Timespec, Wait};

use crate::inode::{FileType, Inode, InodeFlags, InodeItem};

pub(crate) const S_ISGID: u32 = 0o2000;
/// The mode bits that can be changed.
pub(crate) const MODE_BITS: u32 = 0o7777;

/// The number of a device node.
///
/// ```
/// use creamery_fs::DeviceNumber;
/// let null = DeviceNumber { major: 1, minor: 3 };
/// assert_eq!(DeviceNumber::decode(null.encode()), null);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeviceNumber {
    /// The driver (12 bits).
    pub major: u32,
    /// The driver's device (20 bits).
    pub minor: u32,
}

impl DeviceNumber {
    /// From the number in an inode item.
    #[must_use]
    pub const fn decode(stored: u64) -> Self {
        Self { major: (stored >> 20 & 0xfff) as u32, minor: (stored & 0xf_ffff) as u32 }
    }

    /// The number in an inode item.
    #[must_use]
    pub const fn encode(self) -> u64 {
        (self.major as u64 & 0xfff) << 20 | self.minor as u64 & 0xf_ffff
    }
}

/// The four times of an inode.
///
/// ```
/// use creamery_base::Timespec;
/// use creamery_fs::Times;
/// let then = Timespec { sec: -1, nsec: 5 };
/// assert_eq!(Times::all(then).birth, then);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Last access.
    pub access: Timespec,
    /// Last change of the data.
    pub modification: Timespec,
    /// Last change of the inode.
    pub change: Timespec,
    /// Birth.
    pub birth: Timespec,
}

impl Times {
    /// Sets all four to one time.
    #[must_use]
    pub const fn all(time: Timespec) -> Self {
        Self { access: time, modification: time, change: time, birth: time }
    }
}

/// The metadata of an inode.
///
/// ```
/// fn is_setuid(attributes: &creamery_fs::Attributes) -> bool {
///     attributes.mode & 0o4000 != 0
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// The inode.
    pub id: InodeId,
    /// Its kind.
    pub kind: FileType,
    /// Type and permission bits.
    pub mode: u32,
    /// Names; 1 for a directory.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The number of a device node.
    pub device: DeviceNumber,
    /// Bytes in the file.
    pub size: u64,
    /// Bytes allocated for the file's data.
    pub allocated: u64,
    /// The times.
    pub times: Times,
    /// Flags.
    pub flags: InodeFlags,
    /// The transaction that made the inode; distinguishes it from inodes of earlier filesystems with an equal number.
    pub generation: Generation,
    /// Counts changes.
    pub change_counter: u64,
}

impl Attributes {
    pub(crate) fn new(id: InodeId, item: &InodeItem) -> Self {
        Self {
            id,
            kind: item.kind(),
            mode: item.mode,
            nlink: item.nlink,
            uid: item.uid,
            gid: item.gid,
            device: DeviceNumber::decode(item.rdev),
            size: item.size,
            allocated: item.nbytes,
            times: Times {
                access: item.atime,
                modification: item.mtime,
                change: item.ctime,
                birth: item.otime,
            },
            flags: item.flags,
            generation: item.generation,
            change_counter: item.sequence,
        }
    }
}

impl Inode {
    /// The attributes of the inode.
    pub(crate) fn stat(&self, wait: Wait) -> Result<Attributes> {
        Ok(Attributes::new(self.id, &self.item(wait)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_stored_as_the_kernel_does() {
        assert_eq!(DeviceNumber { major: 5, minor: 300 }.encode(), 5_243_180);
        assert_eq!(DeviceNumber { major: 259, minor: 70_000 }.encode(), 271_651_184);
    }
}
