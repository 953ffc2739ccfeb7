//! Tree blocks, for changing: the edits that trees are made of.
//!
//! # Invariants
//! - EDIT-1: item data stays contiguous and in the order of the slots (see [`block`](crate::block)).
//! - EDIT-2: bytes between the entries and the data are zero after every edit if they were before, so that equal
//!   histories make equal images and no deleted data is left in a block.
//!
//! Every precondition is asserted: a violation is a bug of the caller, never damage from disk.

use creamery_base::{Generation, Logical, TreeId, Uuid};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::block::{
    BACKREF_REV_SHIFT, BlockRef, HEADER_FLAG_WRITTEN, HEADER_LEN, ITEM_LEN, KEY_PTR_LEN, LEVEL_MAX,
    MIXED_BACKREF_REV, RawHeader, RawItem, RawKeyPtr, leaf_data_max, node_ptr_max,
};
use crate::key::{Key, RawKey};

/// What the header of a new block says.
///
/// ```
/// use creamery_base::*;
/// use creamery_format::*;
/// let new = NewBlock {
///     logical: Logical::new(1 << 20), generation: Generation::new(7), owner: TreeId::FS, level: 1,
///     fsid: Uuid::nil(), chunk_tree_uuid: Uuid::nil(),
/// };
/// assert_eq!(BlockMut::init(&mut [0; 4096], &new).as_ref().level(), 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NewBlock {
    /// Its address.
    pub logical: Logical,
    /// The running transaction.
    pub generation: Generation,
    /// The tree it is made for.
    pub owner: TreeId,
    /// 0 for a leaf.
    pub level: u8,
    /// The filesystem's metadata UUID.
    pub fsid: Uuid,
    /// The chunk tree's UUID.
    pub chunk_tree_uuid: Uuid,
}

/// Which end of an item's data survives when it shrinks.
///
/// ```
/// use creamery_format::Keep;
/// assert_ne!(Keep::Front, Keep::Back);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// The first bytes stay, the tail goes.
    Front,
    /// The last bytes stay, the front goes.
    Back,
}

/// A tree block, for changing.
///
/// ```
/// use creamery_base::*;
/// use creamery_format::*;
/// let mut bytes = vec![0; 4096];
/// let mut node = BlockMut::init(&mut bytes, &NewBlock {
///     logical: Logical::new(1 << 20), generation: Generation::new(7), owner: TreeId::FS, level: 1,
///     fsid: Uuid::nil(), chunk_tree_uuid: Uuid::nil(),
/// });
/// node.insert_ptr(0, &Key::MIN, Logical::new(2 << 20), Generation::new(7));
/// assert_eq!(node.as_ref().child(0).0, Logical::new(2 << 20));
/// node.remove_ptrs(0, 1);
/// assert_eq!(node.as_ref().count(), 0);
/// ```
pub struct BlockMut<'a>(&'a mut [u8]);

impl<'a> BlockMut<'a> {
    /// A view of the verified block in `bytes`.
    #[must_use]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        assert!(bytes.len() > HEADER_LEN, "a block is longer than its header");
        Self(bytes)
    }

    /// Makes `bytes` an empty block: all zero but the header.
    #[must_use]
    pub fn init(bytes: &'a mut [u8], new: &NewBlock) -> Self {
        assert!(new.level <= LEVEL_MAX, "level {}", new.level);
        bytes.fill(0);
        let mut block = Self::new(bytes);
        let header = block.header_mut();
        header.fsid = new.fsid.into_bytes();
        header.bytenr = U64::new(new.logical.get());
        header.flags = U64::new(MIXED_BACKREF_REV << BACKREF_REV_SHIFT);
        header.chunk_tree_uuid = new.chunk_tree_uuid.into_bytes();
        header.generation = U64::new(new.generation.get());
        header.owner = U64::new(new.owner.get());
        header.level = new.level;
        block
    }

    /// The block, for reading.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // a `BlockRef` is no reference, so `AsRef` cannot give it
    pub fn as_ref(&self) -> BlockRef<'_> {
        BlockRef::new(self.0)
    }

    /// The whole block.
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        self.0
    }

    fn header_mut(&mut self) -> &mut RawHeader {
        RawHeader::mut_from_prefix(self.0).expect("a block is longer than its header").0
    }

    /// Sets the block's own address.
    pub fn set_logical(&mut self, logical: Logical) {
        self.header_mut().bytenr = U64::new(logical.get());
    }

    /// Sets the transaction that writes it.
    pub fn set_generation(&mut self, generation: Generation) {
        self.header_mut().generation = U64::new(generation.get());
    }

    /// Sets the tree it is made for.
    pub fn set_owner(&mut self, owner: TreeId) {
        self.header_mut().owner = U64::new(owner.get());
    }

    /// Sets its level.
    pub fn set_level(&mut self, level: u8) {
        assert!(level <= LEVEL_MAX, "level {level}");
        self.header_mut().level = level;
    }

    /// Sets the number of entries, without touching them.
    pub fn set_count(&mut self, count: usize) {
        self.header_mut().nritems =
            U32::new(u32::try_from(count).expect("entries of a block fit in 32 bits"));
    }

    /// Sets the whole flags field, backref revision included.
    pub fn set_flags(&mut self, flags: u64) {
        self.header_mut().flags = U64::new(flags);
    }

    /// Marks the block as written, without which no reader takes it.
    pub fn mark_written(&mut self) {
        let header = self.header_mut();
        header.flags = U64::new(header.flags.get() | HEADER_FLAG_WRITTEN);
    }

    /// Sets the filesystem's UUID.
    pub fn set_fsid(&mut self, fsid: Uuid) {
        self.header_mut().fsid = fsid.into_bytes();
    }

    /// Sets the chunk tree's UUID.
    pub fn set_chunk_tree_uuid(&mut self, uuid: Uuid) {
        self.header_mut().chunk_tree_uuid = uuid.into_bytes();
    }

    fn write_key(&mut self, at: usize, key: &Key) {
        self.0[at..at + RawKey::LEN].copy_from_slice(RawKey::from(*key).as_bytes());
    }
}

/// Edits of nodes.
impl BlockMut<'_> {
    fn assert_node(&self) {
        assert!(!self.as_ref().is_leaf(), "only nodes have key pointers");
    }

    /// Replaces the key in `slot` of a node.
    pub fn set_key(&mut self, slot: usize, key: &Key) {
        self.assert_node();
        assert!(slot < self.as_ref().count(), "slot {slot} of {}", self.as_ref().count());
        self.write_key(HEADER_LEN + slot * KEY_PTR_LEN, key);
    }

    /// Replaces address and generation of the child in `slot`.
    pub fn set_child(&mut self, slot: usize, child: Logical, generation: Generation) {
        let key = self.as_ref().key(slot);
        self.assert_node();
        self.write_ptr(slot, &key, child, generation);
    }

    fn write_ptr(&mut self, slot: usize, key: &Key, child: Logical, generation: Generation) {
        let ptr = RawKeyPtr {
            key: (*key).into(),
            blockptr: U64::new(child.get()),
            generation: U64::new(generation.get()),
        };
        let at = HEADER_LEN + slot * KEY_PTR_LEN;
        self.0[at..at + KEY_PTR_LEN].copy_from_slice(ptr.as_bytes());
    }

    /// Shifts the pointers from `slot` on by `n` to the right and counts them in.
    fn open_ptrs(&mut self, slot: usize, n: usize) {
        self.assert_node();
        let count = self.as_ref().count();
        assert!(slot <= count, "slot {slot} of {count}");
        assert!(count + n <= node_ptr_max(self.0.len()), "{n} more pointers in a node that has {count}");
        let at = HEADER_LEN + slot * KEY_PTR_LEN;
        self.0.copy_within(at..HEADER_LEN + count * KEY_PTR_LEN, at + n * KEY_PTR_LEN);
        self.set_count(count + n);
    }

    /// Inserts a pointer at `slot`.
    pub fn insert_ptr(&mut self, slot: usize, key: &Key, child: Logical, generation: Generation) {
        self.open_ptrs(slot, 1);
        self.write_ptr(slot, key, child, generation);
    }

    /// Removes `n` pointers from `slot` on.
    pub fn remove_ptrs(&mut self, slot: usize, n: usize) {
        self.assert_node();
        let count = self.as_ref().count();
        assert!(n <= count && slot <= count - n, "{n} pointers at slot {slot} of {count}");
        let end = HEADER_LEN + count * KEY_PTR_LEN;
        let at = HEADER_LEN + slot * KEY_PTR_LEN;
        self.0.copy_within(at + n * KEY_PTR_LEN..end, at);
        self.0[end - n * KEY_PTR_LEN..end].fill(0);
        self.set_count(count - n);
    }

    /// Inserts copies of `n` pointers of `src`, from its slot `src_slot` on, at `dst_slot`.
    pub fn copy_ptrs_from(&mut self, dst_slot: usize, src: BlockRef<'_>, src_slot: usize, n: usize) {
        assert!(!src.is_leaf(), "only nodes have key pointers");
        assert!(
            n <= src.count() && src_slot <= src.count() - n,
            "{n} pointers at slot {src_slot} of {}",
            src.count()
        );
        self.open_ptrs(dst_slot, n);
        let from = HEADER_LEN + src_slot * KEY_PTR_LEN;
        let to = HEADER_LEN + dst_slot * KEY_PTR_LEN;
        let len = n * KEY_PTR_LEN;
        self.0[to..to + len].copy_from_slice(&src.bytes()[from..from + len]);
    }
}

/// Edits of leaves.
impl BlockMut<'_> {
    fn assert_leaf(&self) {
        assert!(self.as_ref().is_leaf(), "only leaves have items");
    }

    /// Where the data of items before `slot` begins, from the end of the header.
    fn boundary(&self, slot: usize) -> usize {
        match slot {
            0 => leaf_data_max(self.0.len()),
            _ => self.as_ref().item_offset(slot - 1),
        }
    }

    fn item_mut(&mut self, slot: usize) -> &mut RawItem {
        let at = HEADER_LEN + slot * ITEM_LEN;
        RawItem::mut_from_bytes(&mut self.0[at..at + ITEM_LEN]).expect("the slice has an item's length")
    }

    /// Moves data in `[from, to)` (from the end of the header) so that it begins at `at`.
    fn move_data(&mut self, from: usize, to: usize, at: usize) {
        self.0.copy_within(HEADER_LEN + from..HEADER_LEN + to, HEADER_LEN + at);
    }

    fn zero_data(&mut self, from: usize, to: usize) {
        self.0[HEADER_LEN + from..HEADER_LEN + to].fill(0);
    }

    /// Lowers (or raises, for negative `by`) the data offset of all items from `slot` on.
    fn lower_offsets(&mut self, slot: usize, by: isize) {
        let count = self.as_ref().count();
        let heads = &mut self.0[HEADER_LEN + slot * ITEM_LEN..HEADER_LEN + count * ITEM_LEN];
        for item in <[RawItem]>::mut_from_bytes(heads).expect("the slice holds whole items") {
            let offset =
                (item.offset.get() as usize).checked_add_signed(-by).expect("data stays inside the leaf");
            item.offset = U32::new(offset as u32);
        }
    }

    /// Makes room for `n` heads and `bytes` of data before `slot`; the heads are left as they were, the data too.
    /// Returns where the data room ends.
    fn open_items(&mut self, slot: usize, n: usize, bytes: usize) -> usize {
        self.assert_leaf();
        let count = self.as_ref().count();
        assert!(slot <= count, "slot {slot} of {count}");
        assert!(
            self.as_ref().free_space() >= n * ITEM_LEN + bytes,
            "{n} items with {bytes} bytes in a leaf with {} free",
            self.as_ref().free_space()
        );
        let boundary = self.boundary(slot);
        let start = self.as_ref().data_start();
        self.move_data(start, boundary, start - bytes);
        let heads = &mut self.0[HEADER_LEN..HEADER_LEN + (count + n) * ITEM_LEN];
        let heads = <[RawItem]>::mut_from_bytes(heads).expect("the slice holds whole items");
        for from in (slot..count).rev() {
            let offset =
                heads[from].offset.get().checked_sub(bytes as u32).expect("data stays inside the leaf");
            heads[from + n] = RawItem { offset: U32::new(offset), ..heads[from] };
        }
        self.set_count(count + n);
        boundary
    }

    /// Inserts items with these keys and lengths at `slot`; their data is zero.
    pub fn insert_items(&mut self, slot: usize, items: &[(Key, usize)]) {
        let bytes = items.iter().map(|(_, len)| len).sum();
        let mut end = self.open_items(slot, items.len(), bytes);
        self.zero_data(end - bytes, end);
        for (i, (key, len)) in items.iter().enumerate() {
            end -= len;
            *self.item_mut(slot + i) =
                RawItem { key: (*key).into(), offset: U32::new(end as u32), size: U32::new(*len as u32) };
        }
    }

    /// Removes `n` items from `slot` on.
    pub fn remove_items(&mut self, slot: usize, n: usize) {
        self.assert_leaf();
        let count = self.as_ref().count();
        assert!(n <= count && slot <= count - n, "{n} items at slot {slot} of {count}");
        if n == 0 {
            return;
        }
        let start = self.as_ref().data_start();
        let first = self.as_ref().item_offset(slot + n - 1);
        let bytes = self.boundary(slot) - first;
        self.move_data(start, first, start + bytes);
        self.zero_data(start, start + bytes);
        self.lower_offsets(slot + n, -(bytes as isize));
        let end = HEADER_LEN + count * ITEM_LEN;
        let at = HEADER_LEN + slot * ITEM_LEN;
        self.0.copy_within(at + n * ITEM_LEN..end, at);
        self.0[end - n * ITEM_LEN..end].fill(0);
        self.set_count(count - n);
    }

    /// The data of the item in `slot`, for changing in place.
    pub fn data_mut(&mut self, slot: usize) -> &mut [u8] {
        let (offset, size) = (self.as_ref().item_offset(slot), self.as_ref().item_size(slot));
        &mut self.0[HEADER_LEN + offset..HEADER_LEN + offset + size]
    }

    /// Appends `bytes` of zeros to the data of the item in `slot`.
    pub fn grow_item(&mut self, slot: usize, bytes: usize) {
        self.assert_leaf();
        assert!(
            self.as_ref().free_space() >= bytes,
            "{bytes} more bytes in a leaf with {} free",
            self.as_ref().free_space()
        );
        let start = self.as_ref().data_start();
        let end = self.boundary(slot);
        self.move_data(start, end, start - bytes);
        self.zero_data(end - bytes, end);
        self.lower_offsets(slot, bytes as isize);
        let item = self.item_mut(slot);
        item.size = U32::new(item.size.get() + bytes as u32);
    }

    /// Shortens the data of the item in `slot` to `new_len` bytes.
    pub fn shrink_item(&mut self, slot: usize, new_len: usize, keep: Keep) {
        self.assert_leaf();
        let (offset, size) = (self.as_ref().item_offset(slot), self.as_ref().item_size(slot));
        assert!(new_len <= size, "shrink {size} bytes to {new_len}");
        let cut = size - new_len;
        let start = self.as_ref().data_start();
        let kept_end = match keep {
            Keep::Front => offset + new_len,
            Keep::Back => offset,
        };
        self.move_data(start, kept_end, start + cut);
        self.zero_data(start, start + cut);
        self.lower_offsets(slot, -(cut as isize));
        self.item_mut(slot).size = U32::new(new_len as u32);
    }

    /// Replaces the key of the item in `slot`.
    pub fn set_item_key(&mut self, slot: usize, key: &Key) {
        self.assert_leaf();
        assert!(slot < self.as_ref().count(), "slot {slot} of {}", self.as_ref().count());
        self.write_key(HEADER_LEN + slot * ITEM_LEN, key);
    }

    /// Inserts copies of `n` items of `src`, from its slot `src_slot` on, at `dst_slot`.
    pub fn copy_items_from(&mut self, dst_slot: usize, src: BlockRef<'_>, src_slot: usize, n: usize) {
        assert!(
            n <= src.count() && src_slot <= src.count() - n,
            "{n} items at slot {src_slot} of {}",
            src.count()
        );
        if n == 0 {
            return;
        }
        let src_start = src.item_offset(src_slot + n - 1);
        let src_end = src.item_offset(src_slot) + src.item_size(src_slot);
        let bytes = src_end - src_start;
        let end = self.open_items(dst_slot, n, bytes);
        self.0[HEADER_LEN + end - bytes..HEADER_LEN + end]
            .copy_from_slice(&src.bytes()[HEADER_LEN + src_start..HEADER_LEN + src_end]);
        for i in 0..n {
            let mut head = src.items()[src_slot + i];
            head.offset = U32::new((head.offset.get() as usize - src_start + end - bytes) as u32);
            *self.item_mut(dst_slot + i) = head;
        }
    }
}

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
