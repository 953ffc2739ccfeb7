//! Types of items in the numbers of the on-disk format: code that damages images does not use our readers.

pub(crate) const INODE_ITEM: u8 = 1;
pub(crate) const INODE_REF: u8 = 12;
pub(crate) const XATTR_ITEM: u8 = 24;
pub(crate) const VERITY_DESC_ITEM: u8 = 36;
pub(crate) const DIR_ITEM: u8 = 84;
pub(crate) const DIR_INDEX: u8 = 96;
pub(crate) const EXTENT_DATA: u8 = 108;
pub(crate) const EXTENT_CSUM: u8 = 128;
pub(crate) const ROOT_ITEM: u8 = 132;
pub(crate) const ROOT_BACKREF: u8 = 144;
pub(crate) const ROOT_REF: u8 = 156;
pub(crate) const EXTENT_ITEM: u8 = 168;
pub(crate) const METADATA_ITEM: u8 = 169;
pub(crate) const DATA_REF: u8 = 178;
pub(crate) const SHARED_BLOCK_REF: u8 = 182;
pub(crate) const FREE_SPACE_EXTENT: u8 = 199;
pub(crate) const CHUNK_ITEM: u8 = 228;
pub(crate) const QGROUP_STATUS: u8 = 240;
