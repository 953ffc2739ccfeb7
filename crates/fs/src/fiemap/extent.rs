//! An entry of a listing.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

bitflags! {
    /// What there is to know of an extent: the bits of Linux' `FIEMAP_EXTENT_*`.
    ///
    /// ```
    /// use creamery_fs::FiemapFlags;
    /// let flags = FiemapFlags::LAST | FiemapFlags::SHARED;
    /// assert_eq!(flags.bits(), 0x2001);
    /// assert_eq!(flags.names().collect::<Vec<_>>(), ["last", "shared"]);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
    pub struct FiemapFlags: u32 {
        /// No extent of the file lies behind it.
        const LAST = 0x1;
        /// It lies nowhere yet.
        const UNKNOWN = 0x2;
        /// Its data is in memory, and gets its place when it is written back.
        const DELALLOC = 0x4;
        /// Its bytes on the device are not those of the file: they are compressed.
        const ENCODED = 0x8;
        /// It is no whole number of blocks, or does not lie where a block begins.
        const NOT_ALIGNED = 0x100;
        /// Its data is in the tree, beside the inode.
        const DATA_INLINE = 0x200;
        /// Its space is set aside, and reads as zeros.
        const UNWRITTEN = 0x800;
        /// Another file refers to it, or the file itself at another place.
        const SHARED = 0x2000;
    }
}

impl FiemapFlags {
    /// Where the data is not read from the device as it lies there.
    pub(super) const INLINE: Self = Self::DATA_INLINE.union(Self::NOT_ALIGNED);
    pub(super) const DELAYED: Self = Self::DELALLOC.union(Self::UNKNOWN);

    /// Their names, as filefrag(8) has them, in the order of the bits.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(FiemapFlags, &str); 8] = [
            (FiemapFlags::LAST, "last"),
            (FiemapFlags::UNKNOWN, "unknown_loc"),
            (FiemapFlags::DELALLOC, "delalloc"),
            (FiemapFlags::ENCODED, "encoded"),
            (FiemapFlags::NOT_ALIGNED, "not_aligned"),
            (FiemapFlags::DATA_INLINE, "inline"),
            (FiemapFlags::UNWRITTEN, "unwritten"),
            (FiemapFlags::SHARED, "shared"),
        ];
        NAMES.into_iter().filter(move |(flag, _)| self.contains(*flag)).map(|(_, name)| name)
    }
}

/// A part of a file that has data, or space set aside for it.
///
/// ```
/// use creamery_fs::{FiemapExtent, FiemapFlags};
/// let extent = FiemapExtent::new(4096, 13631488, 8192, FiemapFlags::LAST);
/// assert_eq!((extent.logical, extent.end()), (4096, 12288));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64, u32)", into = "(u64, u64, u64, u32)")]
#[non_exhaustive]
pub struct FiemapExtent {
    /// Where in the file it begins, bytes.
    pub logical: u64,
    /// Where it lies: an address of the filesystem's own, as Linux' Btrfs tells it; 0 where it is inline or lies nowhere yet.
    /// Compressed data begins there; other data is there byte by byte.
    pub physical: u64,
    /// Bytes of the file.
    pub length: u64,
    /// What there is to know of it.
    pub flags: FiemapFlags,
}

impl FiemapExtent {
    /// An entry.
    #[must_use]
    pub const fn new(logical: u64, physical: u64, length: u64, flags: FiemapFlags) -> Self {
        Self { logical, physical, length, flags }
    }

    /// Where in the file it ends, bytes.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.logical.saturating_add(self.length)
    }
}

impl From<(u64, u64, u64, u32)> for FiemapExtent {
    fn from((logical, physical, length, flags): (u64, u64, u64, u32)) -> Self {
        Self::new(logical, physical, length, FiemapFlags::from_bits_retain(flags))
    }
}

impl From<FiemapExtent> for (u64, u64, u64, u32) {
    fn from(extent: FiemapExtent) -> Self {
        (extent.logical, extent.physical, extent.length, extent.flags.bits())
    }
}
