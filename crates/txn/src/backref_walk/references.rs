//! The references to an extent in the extent tree, a leaf of it at a time: a walk may need few of many.

use creamery_base::{Error, ErrorKind, Logical, ObjectId, Result};
use creamery_format::{ExtentRef, Key, KeyType};

use super::trees::{BlockSource, Trees};
use crate::extent_tree::{Backref, ExtentItem};

/// The references to one extent.
pub(super) struct References {
    extent: Logical,
    /// The key at which reading continues.
    next: Option<Key>,
}

impl References {
    pub(super) const fn to(extent: Logical) -> Self {
        let first = Key::new(ObjectId::new(extent.get()), KeyType::EXTENT_ITEM, 0);
        Self { extent, next: Some(first) }
    }

    /// The references in the next leaf, which may have none; `None` after the last leaf.
    /// Errors: device errors; damage.
    pub(super) fn next(&mut self, trees: &mut Trees<impl BlockSource>) -> Result<Option<Vec<Backref>>> {
        let Some(from) = self.next.take() else { return Ok(None) };
        let leaf = trees.leaf(trees.extent_root(), &from)?;
        let mut found = Vec::new();
        for (key, data) in leaf.from(&from) {
            if key.objectid.get() != self.extent.get() {
                return Ok(Some(found));
            }
            if key.kind == KeyType::EXTENT_ITEM || key.kind == KeyType::METADATA_ITEM {
                found.extend(ExtentItem::parse(&key, data)?.inline.iter().map(|(backref, _)| *backref));
            } else {
                let damaged =
                    |kind| Error::with_source(ErrorKind::Corrupt, format!("extent reference {key}"), kind);
                let keyed = ExtentRef::parse_keyed(key.kind, key.offset, data).map_err(damaged)?;
                found.extend(keyed.and_then(Backref::from_format).map(|(backref, _)| backref));
            }
        }
        self.next = leaf.next;
        Ok(Some(found))
    }
}

/// The data extent that contains `at`: its address and its bytes on disk; `None` when there is none.
/// Errors: device errors; damage.
pub(super) fn data_extent(
    trees: &mut Trees<impl BlockSource>,
    at: Logical,
) -> Result<Option<(Logical, u64)>> {
    use creamery_format::ExtentFlags;
    // After an extent's own item come its references, and items of the block group that begins there. Three looks find it.
    let mut from = Key::new(ObjectId::new(at.get()), KeyType::METADATA_ITEM, u64::MAX);
    for _ in 0..3 {
        let Some((key, data)) = trees.at_or_before(trees.extent_root(), &from)? else { return Ok(None) };
        match key.kind {
            KeyType::EXTENT_ITEM => {
                let start = Logical::new(key.objectid.get());
                let is_data = ExtentItem::parse(&key, &data)?.flags.contains(ExtentFlags::DATA);
                let is_within = at.get() - start.get() < key.offset;
                return Ok((is_data && is_within).then_some((start, key.offset)));
            }
            kind if kind > KeyType::METADATA_ITEM => {
                from = Key::new(key.objectid, KeyType::METADATA_ITEM, u64::MAX);
            }
            _ => return Ok(None),
        }
    }
    Ok(None)
}
