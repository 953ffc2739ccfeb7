//! Items of the extent tree: extents and their references.

use super::{SECTOR_MIN, aligned, range, size};
use crate::block::LEVEL_MAX;
use crate::corrupt::CorruptKind;
use crate::items::extent::{ExtentFlags, ExtentItem, ExtentRef, RawExtentDataRef, RawSharedDataRef};
use crate::key::{Key, KeyType};

pub(super) fn extent_item(key: &Key, data: &[u8]) -> Result<(), CorruptKind> {
    let item = ExtentItem::parse(key.kind, data)?;
    let flags = item.head.flags();
    let is_tree = flags.contains(ExtentFlags::TREE_BLOCK);
    if is_tree == flags.contains(ExtentFlags::DATA) {
        return Err(CorruptKind::Unknown { what: "kind of extent", found: flags.bits() });
    }
    if !is_tree && flags.contains(ExtentFlags::FULL_BACKREF) {
        return Err(CorruptKind::Unknown { what: "references of data", found: flags.bits() });
    }
    if key.kind == KeyType::METADATA_ITEM {
        aligned("address", key.objectid.get())?;
        level(key.offset)?;
        if !is_tree {
            return Err(CorruptKind::Unknown { what: "kind of extent", found: flags.bits() });
        }
    } else {
        range(key)?;
    }
    if let Some(info) = item.tree_block {
        level(info.level.into())?;
    }
    let mut inline: u64 = 0;
    for found in item.refs() {
        let found = found?;
        one_ref(&found, is_tree)?;
        inline = inline.saturating_add(found.count().into());
    }
    let refs = item.head.refs.get();
    if inline > refs {
        return Err(CorruptKind::Range { what: "inline references", found: inline, min: 0, max: refs });
    }
    Ok(())
}

fn level(found: u64) -> Result<(), CorruptKind> {
    match found <= u64::from(LEVEL_MAX) {
        true => Ok(()),
        false => Err(CorruptKind::Range { what: "level", found, min: 0, max: LEVEL_MAX.into() }),
    }
}

/// Checks that trees and nodes reference tree blocks, files and leaves reference data, and no reference has a count of zero.
fn one_ref(found: &ExtentRef, is_tree: bool) -> Result<(), CorruptKind> {
    let of_tree = match found {
        ExtentRef::TreeBlock { .. } | ExtentRef::SharedBlock { .. } => true,
        ExtentRef::ExtentData { .. } | ExtentRef::SharedData { .. } | ExtentRef::Owner { .. } => false,
    };
    if of_tree != is_tree {
        return Err(CorruptKind::Unknown {
            what: "reference for this kind of extent",
            found: found.kind().get().into(),
        });
    }
    counts(found)
}

fn counts(found: &ExtentRef) -> Result<(), CorruptKind> {
    if let ExtentRef::SharedBlock { parent } | ExtentRef::SharedData { parent, .. } = found
        && (parent.get() == 0 || !parent.is_aligned(SECTOR_MIN))
    {
        return Err(CorruptKind::Alignment { what: "parent block", found: parent.get(), unit: SECTOR_MIN });
    }
    if found.count() == 0 && !matches!(found, ExtentRef::Owner { .. }) {
        return Err(CorruptKind::Range {
            what: "count of references",
            found: 0,
            min: 1,
            max: u32::MAX.into(),
        });
    }
    Ok(())
}

/// Checks a reference with an item of its own.
pub(super) fn keyed_ref(key: &Key, data: &[u8]) -> Result<(), CorruptKind> {
    aligned("address", key.objectid.get())?;
    let len = match key.kind {
        KeyType::EXTENT_DATA_REF => RawExtentDataRef::LEN,
        KeyType::SHARED_DATA_REF => RawSharedDataRef::LEN,
        _ => 0,
    };
    size(key, data, len)?;
    match ExtentRef::parse_keyed(key.kind, key.offset, data)? {
        Some(found) => counts(&found),
        None => Ok(()),
    }
}
