//! Free space: the free space tree's `FREE_SPACE_INFO`, and the header of the old free space cache.

use zerocopy::little_endian::{U32, U64};

use crate::key::RawKey;
use crate::raw::raw_struct;

/// Flag of [`RawFreeSpaceInfo`]: the group's free space is stored as bitmaps.
pub const FREE_SPACE_USING_BITMAPS: u32 = 1;
/// Bytes of a full `FREE_SPACE_BITMAP` item: it covers eight times as many sectors.
pub const FREE_SPACE_BITMAP_SIZE: usize = 256;

raw_struct! {
    /// The form of a block group's free space.
    ///
    /// ```
    /// use creamery_format::RawFreeSpaceInfo;
    /// assert!(!RawFreeSpaceInfo::default().uses_bitmaps());
    /// ```
    pub struct RawFreeSpaceInfo[8] {
        /// Number of free ranges, even if they are stored as bitmaps.
        0 => pub extent_count: U32,
        /// [`FREE_SPACE_USING_BITMAPS`] or 0.
        4 => pub flags: U32,
    }
}

impl RawFreeSpaceInfo {
    /// Whether the free space is stored as bitmaps.
    #[must_use]
    pub fn uses_bitmaps(&self) -> bool {
        self.flags.get() & FREE_SPACE_USING_BITMAPS != 0
    }
}

raw_struct! {
    /// Head of a block group's old free space cache: key is (-11, 0, group).
    ///
    /// ```
    /// assert_eq!(creamery_format::RawFreeSpaceHeader::LEN, 41);
    /// ```
    pub struct RawFreeSpaceHeader[41] {
        /// Key of the cache's inode.
        0 => pub location: RawKey,
        /// Transaction that wrote the cache.
        17 => pub generation: U64,
        /// Number of ranges.
        25 => pub num_entries: U64,
        /// Number of bitmaps.
        33 => pub num_bitmaps: U64,
    }
}
