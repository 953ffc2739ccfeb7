//! Tree blocks, for changing: the basic edits of trees.
//!
//! # Invariants
//! - EDIT-1: item data stays contiguous, and in the order of the slots once the block is written (see
//!   `leaf_mut`, which has the edits of leaves).
//!   Shown by `any_sequence_of_leaf_edits_equals_the_model_and_leaves_no_trace`, `items_come_in_any_order_and_are_written_in_theirs`.
//! - EDIT-2: bytes between the entries and the data are zero after every edit if they were before, so that equal
//!   histories make equal images and no deleted data is left in a block.
//!   Shown by `any_sequence_of_leaf_edits_equals_the_model_and_leaves_no_trace`, `node_edits_keep_order_and_zero_the_rest`.
//!
//! Every precondition is asserted: a violation is a bug of the caller, never damage from disk.

use creamery_base::{Generation, Logical, TreeId, Uuid};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use crate::block::{
    BACKREF_REV_SHIFT, BlockRef, HEADER_FLAG_WRITTEN, HEADER_LEN, KEY_PTR_LEN, LEVEL_MAX, MIXED_BACKREF_REV,
    RawHeader, RawKeyPtr, node_ptr_max,
};
use crate::key::{Key, RawKey};

/// The header fields of a new block.
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
pub struct BlockMut<'a>(pub(crate) &'a mut [u8]);

impl<'a> BlockMut<'a> {
    /// Creates a view of the verified block in `bytes`.
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

    pub(crate) fn header_mut(&mut self) -> &mut RawHeader {
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

    /// Sets the whole flags field, backref revision included. Puts a leaf in order first, and clears the field of the checksum,
    /// which describes the data of a leaf that is not marked as written.
    pub fn set_flags(&mut self, flags: u64) {
        if self.as_ref().is_leaf() {
            self.put_in_order();
        }
        let header = self.header_mut();
        header.flags = U64::new(flags);
        header.csum.fill(0);
    }

    /// Marks the block as written; readers accept no other block. Puts its data in order.
    pub fn mark_written(&mut self) {
        self.set_flags(self.as_ref().flags() | HEADER_FLAG_WRITTEN);
    }

    /// Clears the marks of a written block, in a block that is a copy of another, or is about to be filled.
    pub fn begin_again(&mut self) {
        self.set_flags(MIXED_BACKREF_REV << BACKREF_REV_SHIFT);
    }

    /// Sets the filesystem's UUID.
    pub fn set_fsid(&mut self, fsid: Uuid) {
        self.header_mut().fsid = fsid.into_bytes();
    }

    /// Sets the chunk tree's UUID.
    pub fn set_chunk_tree_uuid(&mut self, uuid: Uuid) {
        self.header_mut().chunk_tree_uuid = uuid.into_bytes();
    }

    pub(crate) fn write_key(&mut self, at: usize, key: &Key) {
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

    /// Shifts the pointers from `slot` on by `n` to the right, and adds `n` to the count.
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

#[cfg(test)]
#[path = "block_tests.rs"]
mod tests;
