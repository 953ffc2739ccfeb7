//! Extent items in memory: the count of references to an extent, and the references. They stand in the item itself while it is
//! small, else as items of their own. `creamery_format` defines the layout; this file has the changes.
//!
//! Inline references are sorted by type upwards and within a type by their key offset downwards. Linux' tree checker
//! demands that order.

use std::cmp::Reverse;

use creamery_base::{Error, ErrorKind, Generation, Result, TreeId};
use creamery_format::{ExtentFlags, ExtentItem as ItemView, ExtentRef, Key, RawExtentItem, RawTreeBlockInfo};
use zerocopy::{FromBytes, IntoBytes};

use super::backref::Backref;

/// Bytes of the shortest and of the longest inline reference: a type and a number, or a file's reference with its count.
const INLINE_MIN: usize = 9;
const INLINE_MAX: usize = 29;

/// An extent item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtentItem {
    pub(crate) refs: u64,
    pub(crate) generation: Generation,
    pub(crate) flags: ExtentFlags,
    /// Tree block info, where metadata is not skinny.
    block_info: Vec<u8>,
    /// The owner of simple quotas; comes first.
    pub(super) owner: Option<TreeId>,
    pub(crate) inline: Vec<(Backref, u32)>,
}

impl ExtentItem {
    pub(crate) fn new(generation: Generation, flags: ExtentFlags) -> Self {
        Self { refs: 0, generation, flags, block_info: Vec::new(), owner: None, inline: Vec::new() }
    }

    /// Sets the owner for simple quotas.
    pub(super) fn owned_by(self, owner: Option<TreeId>) -> Self {
        Self { owner, ..self }
    }

    /// The item of a tree block of this level, where metadata is not skinny. It has room for the first key of the block, too. That key
    /// changes with the block, and nothing reads it: Linux leaves zeros there where it does not know the key.
    pub(crate) fn of_old_block(generation: Generation, level: u8) -> Self {
        let info = RawTreeBlockInfo { key: Key::MIN.into(), level };
        Self { block_info: info.as_bytes().to_vec(), ..Self::new(generation, ExtentFlags::TREE_BLOCK) }
    }

    /// Reads an item. Errors: damage, naming the key.
    pub(crate) fn parse(key: &Key, data: &[u8]) -> Result<Self> {
        let damaged = |kind| Error::with_source(ErrorKind::Corrupt, format!("extent item {key}"), kind);
        let view = ItemView::parse(key.kind, data).map_err(damaged)?;
        let mut item = Self::new(Generation::new(view.head.generation.get()), view.head.flags());
        item.refs = view.head.refs.get();
        item.block_info = view.tree_block.map_or_else(Vec::new, |info| info.as_bytes().to_vec());
        item.inline.reserve(data.len() / INLINE_MIN);
        for found in view.refs() {
            match found.map_err(damaged)? {
                ExtentRef::Owner { root } => item.owner = Some(root),
                other => item.inline.extend(Backref::from_format(other)),
            }
        }
        Ok(item)
    }

    /// The item's bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let head = RawExtentItem {
            refs: self.refs.into(),
            generation: self.generation.get().into(),
            flags: self.flags.bits().into(),
        };
        let mut out = Vec::with_capacity(self.len_at_most());
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&self.block_info);
        if let Some(root) = self.owner {
            ExtentRef::Owner { root }.write_inline(&mut out);
        }
        for &(backref, count) in &self.inline {
            backref.counted(count).write_inline(&mut out);
        }
        out
    }

    /// An upper bound of its bytes.
    fn len_at_most(&self) -> usize {
        size_of::<RawExtentItem>() + self.block_info.len() + (self.inline.len() + 1) * INLINE_MAX
    }

    /// The level of a tree block, where the item has it.
    pub(crate) fn level(&self) -> Option<u8> {
        RawTreeBlockInfo::ref_from_bytes(&self.block_info).ok().map(|info| info.level)
    }

    /// References that stand in the item.
    pub(crate) fn inline_count(&self) -> u64 {
        self.inline.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// Inserts a new inline reference in order; false when the item would outgrow `most` bytes.
    pub(crate) fn insert_inline(&mut self, backref: Backref, count: u32, most: usize) -> bool {
        if !self.inline.is_empty() && self.to_bytes().len() + backref.inline_len() > most {
            return false;
        }
        let order = |backref: Backref| {
            let form = backref.counted(1);
            (form.kind(), Reverse(form.key_offset()))
        };
        let at = self.inline.partition_point(|(other, _)| order(*other) < order(backref));
        self.inline.insert(at, (backref, count));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use creamery_base::{Logical, ObjectId};
    use creamery_format::KeyType;

    fn data_ref(offset: u64) -> Backref {
        Backref::ExtentData { root: TreeId::FS, ino: ObjectId::new(257), offset }
    }

    #[test]
    fn an_item_survives_the_way_to_bytes_and_back() {
        let key = Key::new(ObjectId::new(1 << 20), KeyType::EXTENT_ITEM, 4096);
        let mut item = ExtentItem::new(Generation::new(9), ExtentFlags::DATA);
        assert!(item.insert_inline(Backref::SharedData { parent: Logical::new(1 << 25) }, 3, 1000));
        for offset in [0, 4096, 8192, 1 << 40] {
            assert!(item.insert_inline(data_ref(offset), 2, 1000));
        }
        item.refs = item.inline_count();
        assert_eq!(item.refs, 11);
        assert_eq!(ExtentItem::parse(&key, &item.to_bytes()).expect("valid"), item);
        let sequences: Vec<u64> =
            item.inline[..4].iter().map(|(backref, count)| backref.counted(*count).key_offset()).collect();
        assert!(sequences.is_sorted_by(|a, b| a >= b), "{sequences:?}");
        assert_eq!(item.inline[4].0, Backref::SharedData { parent: Logical::new(1 << 25) });
    }

    #[test]
    fn a_full_item_takes_no_more_inline_references() {
        let mut item = ExtentItem::new(Generation::new(9), ExtentFlags::DATA);
        let taken = (0..100).filter(|&offset| item.insert_inline(data_ref(offset), 1, 200)).count();
        assert_eq!(taken, (200 - 24) / 29);
    }

    #[test]
    fn cut_or_unknown_bytes_are_damage() {
        let key = Key::new(ObjectId::new(1 << 20), KeyType::METADATA_ITEM, 0);
        let mut item = ExtentItem::new(Generation::new(9), ExtentFlags::TREE_BLOCK);
        assert!(item.insert_inline(Backref::TreeBlock { root: TreeId::FS }, 1, 1000));
        let bytes = item.to_bytes();
        for len in (0..bytes.len()).filter(|&len| len != 24) {
            assert_eq!(ExtentItem::parse(&key, &bytes[..len]).expect_err("cut").kind(), ErrorKind::Corrupt);
        }
        let mut unknown = bytes;
        unknown[24] = 99;
        assert_eq!(ExtentItem::parse(&key, &unknown).expect_err("unknown").kind(), ErrorKind::Corrupt);
    }
}
