//! The parts of a row: the item, and the edit.

use anyhow::{Context, Result};
use creamery_base::{Logical, ObjectId, TreeId};
use creamery_format::{BlockMut, BlockRef, Key, KeyType, RawKey};
use zerocopy::IntoBytes;

use super::Edit;
use crate::image::{Image, Item};

pub(super) fn any(_: &Item) -> bool {
    true
}

/// Adds to the eight bytes at `at` of the item's data.
pub(super) fn add(bytes: &mut [u8], slot: usize, at: usize, more: u64) {
    let mut block = BlockMut::new(bytes);
    let field = &mut block.data_mut(slot)[at..at + 8];
    let old = u64::from_le_bytes(field.try_into().expect("eight bytes"));
    field.copy_from_slice(&old.wrapping_add(more).to_le_bytes());
}

pub(super) fn set(bytes: &mut [u8], slot: usize, at: usize, new: &[u8]) {
    BlockMut::new(bytes).data_mut(slot)[at..at + new.len()].copy_from_slice(new);
}

pub(super) fn remove(bytes: &mut [u8], slot: usize) {
    BlockMut::new(bytes).remove_items(slot, 1);
}

pub(super) fn rekey(bytes: &mut [u8], slot: usize, edit: impl Fn(Key) -> Key) {
    let key = BlockRef::new(bytes).key(slot);
    BlockMut::new(bytes).set_item_key(slot, &edit(key));
}

pub(super) fn u64_at(item: &Item, at: usize) -> u64 {
    u64::from_le_bytes(item.data[at..at + 8].try_into().expect("eight bytes"))
}

pub(super) fn mode(item: &Item) -> u32 {
    u32::from_le_bytes(item.data[52..56].try_into().expect("four bytes"))
}

pub(super) fn is_file(item: &Item) -> bool {
    mode(item) & 0o170_000 == 0o100_000 && item.key.objectid.get() > 256
}

pub(super) fn is_directory(item: &Item) -> bool {
    mode(item) & 0o170_000 == 0o040_000
}

pub(super) fn big_file(item: &Item) -> bool {
    is_file(item) && u64_at(item, 16) == 3_000_000
}

/// A regular extent that is on disk.
pub(super) fn on_disk(item: &Item) -> bool {
    item.data.len() == 53 && item.data[20] == 1 && u64_at(item, 21) != 0
}

pub(super) fn is_data(item: &Item) -> bool {
    u64_at(item, 16) & 1 == 1
}

pub(super) fn has_data_ref(item: &Item) -> bool {
    is_data(item) && item.data.len() > 24 && item.data[24] == 178
}

pub(super) fn subvolume(item: &Item) -> bool {
    item.key.objectid.get() >= 256 && item.key.objectid <= ObjectId::LAST_FREE
}

pub(super) fn not_root_directory(item: &Item) -> bool {
    item.key.objectid.get() > 256
}

pub(super) fn entry_of_file(item: &Item) -> bool {
    item.data[29] == 1
}

/// Edits the extent item of a tree block.
pub(super) fn edit_extent(image: &Image, of: Logical, edit: Edit) -> Result<()> {
    let items = image.items(TreeId::EXTENT)?;
    let item = items
        .iter()
        .find(|it| it.key.kind == KeyType::METADATA_ITEM && it.key.objectid.get() == of.get())
        .context("no extent item")?;
    image.change(item.block, |bytes| edit(bytes, item.slot))
}

/// Gives an item another key, and a leaf's first one to the nodes above it, too.
pub(super) fn rekey_with_parents(image: &Image, tree: TreeId, item: &Item, key: Key) -> Result<()> {
    const POINTERS: usize = 101;
    const POINTER: usize = 33;
    let blocks = image.blocks(tree)?;
    image.change(item.block, |bytes| rekey(bytes, item.slot, |_| key))?;
    for logical in blocks.into_iter().filter(|logical| item.slot == 0 && *logical != item.block) {
        let bytes = image.block(logical)?;
        let block = BlockRef::new(&bytes);
        let slot = (0..block.count()).find(|slot| block.key(*slot) == item.key);
        let Some(slot) = slot.filter(|_| !block.is_leaf()) else { continue };
        let offset = POINTERS + POINTER * slot;
        image.change(logical, |bytes| {
            bytes[offset..offset + 17].copy_from_slice(RawKey::from(key).as_bytes())
        })?;
    }
    Ok(())
}
