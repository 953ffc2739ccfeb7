//! Attributes of inodes and of the filesystem.

use std::time::Duration;

use creamery_base::Timespec;

use crate::protocol::StatxMask;

/// A device number in its two parts, which are the same on all systems.
///
/// ```
/// use creamery_fuse::DeviceNumber;
/// let null = DeviceNumber { major: 1, minor: 3 };
/// assert_eq!(DeviceNumber::from_wire(null.to_wire()), null);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct DeviceNumber {
    /// The driver: 12 bits.
    pub major: u32,
    /// The device of the driver: 20 bits.
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
    /// `st_ino`; it need not equal the node id.
    pub ino: u64,
    /// Length, bytes.
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
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The device of a device node.
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

/// Attributes and their lifetime in the kernel's cache.
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
    /// Lifetime of the attributes.
    pub valid: Duration,
}

/// Attributes with the additions of statx(2). Of these the kernel passes on only the time of birth.
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
    /// The attributes of stat(2).
    pub attr: Attr,
    /// Time of birth, if known.
    pub btime: Option<Timespec>,
    /// `STATX_ATTR_*` bits that are set.
    pub attributes: u64,
    /// `STATX_ATTR_*` bits that are supported.
    pub attributes_mask: u64,
    /// Lifetime of the attributes.
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

/// Space and inodes of the filesystem, as in statvfs(3).
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
    /// Free blocks, in units of `block_size`.
    pub free: u64,
    /// Free blocks for unprivileged users, in units of `block_size`.
    pub available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Unit of the counts, and preferred size of I/O, bytes.
    pub block_size: u32,
    /// Longest name, bytes.
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
