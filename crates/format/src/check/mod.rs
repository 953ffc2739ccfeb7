//! Checks of items before they are read: sizes and ranges of every known type.
//!
//! [`check_item`] runs on every item of every leaf, after each read and before each write, so later readers of an item
//! may rely on its length. It is cheap: it reads one item alone and follows no pointer. Checks of two
//! items, or of another tree, belong to the checker of whole filesystems.

mod extents;
mod files;
mod writing;

use creamery_base::{ObjectId, TreeId};
use zerocopy::FromBytes;

use crate::block::{BlockRef, LEVEL_MAX};
use crate::corrupt::CorruptKind;
use crate::items::chunk::{Chunk, RawBlockGroupItem};
use crate::items::device::{RawDevExtent, RawDevItem, RawDevReplace};
use crate::items::free_space::{FREE_SPACE_BITMAP_SIZE, RawFreeSpaceHeader, RawFreeSpaceInfo};
use crate::items::qgroup::{RawQgroupInfo, RawQgroupLimit, RawQgroupStatus};
use crate::items::root::{RawRootItem, RootFlags, RootRef};
use crate::items::state::RawBalanceItem;
use crate::key::{Key, KeyType};
pub use writing::{WritingRules, check_leaf_for_writing};

/// The smallest unit of data addresses and lengths.
pub(crate) const SECTOR_MIN: u64 = 4096;

/// Checks the item in `slot` of a leaf whose heads are in order. Unknown types pass.
///
/// # Errors
/// The first problem of the item.
pub fn check_item(leaf: BlockRef<'_>, slot: usize) -> Result<(), CorruptKind> {
    let (key, data) = (leaf.key(slot), leaf.data(slot));
    match key.kind {
        KeyType::INODE_ITEM => files::inode(&key, data),
        KeyType::INODE_REF => files::inode_refs(&key, data),
        KeyType::INODE_EXTREF => files::inode_extrefs(data),
        KeyType::XATTR_ITEM | KeyType::DIR_ITEM | KeyType::DIR_INDEX => files::dir_entries(&key, data),
        KeyType::DIR_LOG_ITEM | KeyType::DIR_LOG_INDEX => size(&key, data, 8),
        KeyType::ORPHAN_ITEM | KeyType::QGROUP_RELATION => size(&key, data, 0),
        KeyType::EXTENT_DATA => files::file_extent(&key, data),
        KeyType::EXTENT_CSUM => csum(&key, data),
        KeyType::ROOT_ITEM => root(data),
        KeyType::ROOT_REF | KeyType::ROOT_BACKREF => {
            RootRef::parse(data).and_then(|found| files::name(found.name))
        }
        KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => extents::extent_item(&key, data),
        KeyType::TREE_BLOCK_REF
        | KeyType::SHARED_BLOCK_REF
        | KeyType::EXTENT_DATA_REF
        | KeyType::SHARED_DATA_REF => extents::keyed_ref(&key, data),
        KeyType::BLOCK_GROUP_ITEM => block_group(&key, data),
        KeyType::FREE_SPACE_INFO => size(&key, data, RawFreeSpaceInfo::LEN).and_then(|()| range(&key)),
        KeyType::FREE_SPACE_EXTENT => size(&key, data, 0).and_then(|()| range(&key)),
        KeyType::FREE_SPACE_BITMAP => {
            size_range(&key, data, 1, FREE_SPACE_BITMAP_SIZE).and_then(|()| range(&key))
        }
        KeyType::DEV_EXTENT => dev_extent(&key, data),
        KeyType::DEV_ITEM => dev_item(&key, data),
        KeyType::CHUNK_ITEM => chunk_range(&key, &Chunk::parse(data)?),
        _ => rare(&key, data),
    }
}

/// Checks items of which a filesystem has a handful.
fn rare(key: &Key, data: &[u8]) -> Result<(), CorruptKind> {
    match key.kind {
        KeyType::UNTYPED if key.objectid == ObjectId::FREE_SPACE => size(key, data, RawFreeSpaceHeader::LEN),
        KeyType::QGROUP_STATUS => size_range(key, data, RawQgroupStatus::LEN, RawQgroupStatus::LEN + 8),
        KeyType::QGROUP_INFO => size(key, data, RawQgroupInfo::LEN),
        KeyType::QGROUP_LIMIT => size(key, data, RawQgroupLimit::LEN),
        KeyType::TEMPORARY_ITEM if key.objectid == ObjectId::BALANCE => size(key, data, RawBalanceItem::LEN),
        KeyType::DEV_REPLACE => size_range(key, data, RawDevReplace::LEN, usize::MAX),
        KeyType::UUID_SUBVOL | KeyType::UUID_RECEIVED_SUBVOL => array(key, data, 8),
        KeyType::RAID_STRIPE => array(key, data, 8),
        _ => Ok(()),
    }
}

/// Checks that the data has exactly this length.
fn size(key: &Key, data: &[u8], want: usize) -> Result<(), CorruptKind> {
    match data.len() {
        found if found == want => Ok(()),
        found => Err(CorruptKind::ItemSize { kind: key.kind, found, want }),
    }
}

/// Checks that the data's length lies in `[min, max]`.
fn size_range(key: &Key, data: &[u8], min: usize, max: usize) -> Result<(), CorruptKind> {
    match data.len() {
        found if (min..=max).contains(&found) => Ok(()),
        found => Err(CorruptKind::ItemSizeRange { kind: key.kind, found, min, max }),
    }
}

/// Checks that the data is an array of at least one element of `unit` bytes.
fn array(key: &Key, data: &[u8], unit: usize) -> Result<(), CorruptKind> {
    match data.len() {
        found if found > 0 && found.is_multiple_of(unit) => Ok(()),
        found => Err(CorruptKind::ItemArray { kind: key.kind, found, unit }),
    }
}

fn aligned(what: &'static str, found: u64) -> Result<(), CorruptKind> {
    match found.is_multiple_of(SECTOR_MIN) {
        true => Ok(()),
        false => Err(CorruptKind::Alignment { what, found, unit: SECTOR_MIN }),
    }
}

/// Checks that the key is a range of whole sectors: objectid is its start, offset its length.
fn range(key: &Key) -> Result<(), CorruptKind> {
    let (start, len) = (key.objectid.get(), key.offset);
    aligned("start", start)?;
    aligned("length", len)?;
    if len == 0 || start.checked_add(len).is_none() {
        return Err(CorruptKind::Range {
            what: "length",
            found: len,
            min: SECTOR_MIN,
            max: u64::MAX - start,
        });
    }
    Ok(())
}

fn csum(key: &Key, data: &[u8]) -> Result<(), CorruptKind> {
    aligned("address", key.offset)?;
    array(key, data, 4)?;
    // Each checksum covers at least one sector.
    let sectors = (data.len() / 32) as u64;
    match sectors.checked_mul(SECTOR_MIN).and_then(|len| key.offset.checked_add(len)) {
        Some(_) => Ok(()),
        None => Err(CorruptKind::Range {
            what: "address",
            found: key.offset,
            min: 0,
            max: u64::MAX - sectors * SECTOR_MIN,
        }),
    }
}

fn root(data: &[u8]) -> Result<(), CorruptKind> {
    let root = RawRootItem::from_item(data)?;
    aligned("root address", root.bytenr.get())?;
    let unknown = root.flags.get() & !(RootFlags::RDONLY | RootFlags::DEAD).bits();
    if unknown != 0 {
        return Err(CorruptKind::Unknown { what: "flags of a root", found: unknown });
    }
    for (what, level) in [("root level", root.level), ("drop level", root.drop_level)] {
        if level > LEVEL_MAX {
            return Err(CorruptKind::Range { what, found: level.into(), min: 0, max: LEVEL_MAX.into() });
        }
    }
    // A subvolume that is being deleted: its progress is a key in a node.
    if root.drop_progress.objectid.get() != 0 && root.drop_level == 0 {
        return Err(CorruptKind::Range { what: "drop level", found: 0, min: 1, max: LEVEL_MAX.into() });
    }
    Ok(())
}

fn block_group(key: &Key, data: &[u8]) -> Result<(), CorruptKind> {
    size(key, data, RawBlockGroupItem::LEN)?;
    range(key)?;
    let group = RawBlockGroupItem::read_from_bytes(data).expect("the size was checked");
    group.flags().check()?;
    let (found, want) = (group.chunk_objectid.get(), ObjectId::FIRST_CHUNK_TREE.get());
    if found != want {
        return Err(CorruptKind::Mismatch { what: "owner of a block group's chunk", found, want });
    }
    let found = group.used.get();
    if found > key.offset {
        return Err(CorruptKind::Range { what: "used bytes", found, min: 0, max: key.offset });
    }
    Ok(())
}

fn dev_item(key: &Key, data: &[u8]) -> Result<(), CorruptKind> {
    size(key, data, RawDevItem::LEN)?;
    let dev = RawDevItem::read_from_bytes(data).expect("the size was checked");
    if dev.devid.get() != key.offset {
        let (found, want) = (dev.devid.get(), key.offset);
        return Err(CorruptKind::Mismatch { what: "devid differs from its key", found, want });
    }
    let (found, max) = (dev.bytes_used.get(), dev.total_bytes.get());
    if found > max {
        return Err(CorruptKind::Range { what: "used bytes of a device", found, min: 0, max });
    }
    Ok(())
}

fn dev_extent(key: &Key, data: &[u8]) -> Result<(), CorruptKind> {
    size(key, data, RawDevExtent::LEN)?;
    let extent = RawDevExtent::read_from_bytes(data).expect("the size was checked");
    for (what, found, want) in [
        ("tree of a device extent's chunk", extent.chunk_tree.get(), TreeId::CHUNK.get()),
        ("owner of a device extent's chunk", extent.chunk_objectid.get(), ObjectId::FIRST_CHUNK_TREE.get()),
    ] {
        if found != want {
            return Err(CorruptKind::Mismatch { what, found, want });
        }
    }
    aligned("device offset", key.offset)?;
    aligned("chunk address", extent.chunk_offset.get())?;
    let len = extent.length.get();
    aligned("length", len)?;
    if len == 0 || key.offset.checked_add(len).is_none() {
        return Err(CorruptKind::Range {
            what: "length",
            found: len,
            min: SECTOR_MIN,
            max: u64::MAX - key.offset,
        });
    }
    Ok(())
}

/// Checks the logical range of a chunk: its key's offset and its length.
pub(crate) fn chunk_range(key: &Key, chunk: &Chunk<'_>) -> Result<(), CorruptKind> {
    aligned("chunk address", key.offset)?;
    let found = chunk.head.length.get();
    match key.offset.checked_add(found) {
        Some(_) => Ok(()),
        None => Err(CorruptKind::Range { what: "chunk length", found, min: 0, max: u64::MAX - key.offset }),
    }
}

#[cfg(test)]
mod tests;
