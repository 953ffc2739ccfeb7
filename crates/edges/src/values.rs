//! The fields of items, and the edge values of numbers, where errors are likely.
//!
//! Random bytes hardly ever hit 2^64-3. All generators of damage - fuzz targets, mutations, the tests that set one field
//! after the other - take their values from here.

use creamery_format::{
    Field, KeyType, RawBlockGroupItem, RawChunk, RawDevExtent, RawDevItem, RawDevReplace, RawDevStats,
    RawDirItem, RawExtentDataRef, RawExtentItem, RawFileExtent, RawFreeSpaceInfo, RawInlineRef,
    RawInodeExtref, RawInodeItem, RawInodeRef, RawQgroupInfo, RawQgroupLimit, RawQgroupStatus, RawRootItem,
    RawRootRef, RawSharedDataRef, RawStripe, RawVerityDescriptorItem,
};

/// Edges of numbers of 8 bytes; the edges of shorter numbers are among them, cut to their length.
const EDGES: [u64; 54] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0x1000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
    u64::MAX - 4095,
    u64::MAX - 1,
    // The following values were not found by fuzzing. Levels, of which 7 is the last:
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    // The neighbours of the largest number, where a sum of two or three wraps,
    u64::MAX - 2,
    u64::MAX - 3,
    u64::MAX - 4,
    // the ends of the range for inodes and subvolumes,
    255,
    256,
    257,
    u64::MAX - 254,
    u64::MAX - 255,
    u64::MAX - 256,
    // and powers of two with their neighbours: signs, sectors, nodes, stripes, chunks.
    0x7e,
    0x80,
    0x81,
    511,
    512,
    0xfff,
    0x1001,
    0x3fff,
    0x4000,
    0x4001,
    0x7fff,
    0x8000,
    0xfffe,
    0x1_0001,
    0x7fff_fffe,
    0x8000_0000,
    0xffff_fffe,
    (1 << 32) + 1,
    (1 << 56) + 1,
    i64::MAX as u64 - 1,
    (1 << 63) + 1,
    u64::MAX - (1 << 32),
];

/// Returns edge values for a number of `width` bytes (1 to 8) that holds `now`, its neighbours last. Their count does
/// not depend on `now`; some may be there twice.
///
/// ```
/// use creamery_edges::edge_values;
/// assert!(edge_values(8, 17).any(|value| value == u64::MAX - 3));
/// assert!(edge_values(1, 17).all(|value| value <= 255));
/// assert!(edge_values(4, 17).any(|value| value == 18));
/// ```
pub fn edge_values(width: usize, now: u64) -> impl Iterator<Item = u64> {
    let mask = u64::MAX >> (64 - 8 * width.clamp(1, 8));
    EDGES.into_iter().chain([now.wrapping_sub(1), now.wrapping_add(1)]).map(move |value| value & mask)
}

/// Returns the fields at the beginning of an item of this type; none for types without a structure.
///
/// ```
/// use creamery_edges::fields_of;
/// use creamery_format::{KeyType, RawInodeItem};
/// assert_eq!(fields_of(KeyType::INODE_ITEM), [RawInodeItem::FIELDS]);
/// ```
#[must_use]
pub fn fields_of(kind: KeyType) -> Vec<&'static [Field]> {
    match kind {
        KeyType::INODE_ITEM => vec![RawInodeItem::FIELDS],
        KeyType::INODE_REF => vec![RawInodeRef::FIELDS],
        KeyType::INODE_EXTREF => vec![RawInodeExtref::FIELDS],
        KeyType::DIR_ITEM | KeyType::DIR_INDEX | KeyType::XATTR_ITEM => vec![RawDirItem::FIELDS],
        KeyType::EXTENT_DATA => vec![RawFileExtent::FIELDS],
        KeyType::ROOT_ITEM => vec![RawRootItem::FIELDS],
        KeyType::ROOT_REF | KeyType::ROOT_BACKREF => vec![RawRootRef::FIELDS],
        KeyType::EXTENT_ITEM => vec![RawExtentItem::FIELDS, RawInlineRef::FIELDS, RawExtentDataRef::FIELDS],
        KeyType::METADATA_ITEM => vec![RawExtentItem::FIELDS, RawInlineRef::FIELDS],
        KeyType::EXTENT_DATA_REF => vec![RawExtentDataRef::FIELDS],
        KeyType::SHARED_DATA_REF => vec![RawSharedDataRef::FIELDS],
        KeyType::BLOCK_GROUP_ITEM => vec![RawBlockGroupItem::FIELDS],
        KeyType::FREE_SPACE_INFO => vec![RawFreeSpaceInfo::FIELDS],
        KeyType::DEV_EXTENT => vec![RawDevExtent::FIELDS],
        KeyType::DEV_ITEM => vec![RawDevItem::FIELDS],
        KeyType::CHUNK_ITEM => vec![RawChunk::FIELDS, RawStripe::FIELDS, RawStripe::FIELDS],
        KeyType::QGROUP_STATUS => vec![RawQgroupStatus::FIELDS],
        KeyType::QGROUP_INFO => vec![RawQgroupInfo::FIELDS],
        KeyType::QGROUP_LIMIT => vec![RawQgroupLimit::FIELDS],
        KeyType::DEV_REPLACE => vec![RawDevReplace::FIELDS],
        KeyType::VERITY_DESC_ITEM => vec![RawVerityDescriptorItem::FIELDS],
        KeyType::PERSISTENT_ITEM => vec![RawDevStats::FIELDS],
        _ => Vec::new(),
    }
}
