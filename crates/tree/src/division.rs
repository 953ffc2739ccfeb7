//! Checks of two blocks of one level that have divided their content anew: after a split, a push, a merge, or when a node is filled up from
//! its sibling.
//!
//! These are the edits that move items from block to block. A mistake here loses items, or puts them where no search looks for them, and nothing notices until a reader misses one.
//! So each such edit is checked when it is done, from the headers of the two blocks: it takes no look at the items themselves.
//!
//! The checks judge our own edits, never a disk: whatever the blocks had before, they have it afterwards.
//!
//! # Invariants
//! - DIVISION-1: an edit that moves items or pointers between two blocks keeps their number and the bytes that they take.
//! - DIVISION-2: a split leaves the smaller keys on the left. (The items of one block are in order, for a block is checked when it is read. Those of two blocks of a damaged
//!   tree need not be.)

use creamery_format::BlockRef;

/// The items and bytes that two blocks have together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    items: usize,
    /// Bytes of the items, for leaves.
    bytes: usize,
}

impl Division {
    /// Counts one block: the one to be split, or the result of a merge.
    pub(crate) fn of_one(block: BlockRef<'_>) -> Self {
        let bytes = if block.is_leaf() { block.used_space() } else { 0 };
        Self { items: block.count(), bytes }
    }

    /// Counts two blocks together.
    pub(crate) fn of(left: BlockRef<'_>, right: BlockRef<'_>) -> Self {
        let (left, right) = (Self::of_one(left), Self::of_one(right));
        Self { items: left.items + right.items, bytes: left.bytes + right.bytes }
    }

    /// Checks the blocks after the edit: `now` is their division then.
    ///
    /// # Panics
    /// If it differs from the division before the edit (DIVISION-1).
    pub(crate) fn check(self, now: Self) {
        assert!(self == now, "DIVISION-1: two blocks divide all their items between them");
    }

    /// Checks the two blocks into which a block was split.
    ///
    /// # Panics
    /// If they do not have the items and bytes of that block (DIVISION-1), or the first key on the right is not greater than the last on the
    /// left (DIVISION-2).
    pub(crate) fn check_split(self, left: BlockRef<'_>, right: BlockRef<'_>) {
        self.check(Self::of(left, right));
        let last = left.count().checked_sub(1).map(|slot| left.key(slot));
        assert!(
            right.first_key().is_none_or(|first| last < Some(first)),
            "DIVISION-2: a split leaves the smaller keys on the left"
        );
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::ObjectId;
    use creamery_format::{BlockMut, Key, KeyType};

    use super::*;

    /// A leaf with these items, 100 bytes each.
    fn leaf(objects: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let mut block = BlockMut::new(&mut bytes);
        for (slot, object) in objects.iter().enumerate() {
            block.insert_items(slot, &[(Key::new(ObjectId::new(*object), KeyType::new(100), 0), 100)]);
        }
        bytes
    }

    fn split(whole: &[u64], left: &[u64], right: &[u64]) {
        let (whole, left, right) = (leaf(whole), leaf(left), leaf(right));
        Division::of_one(BlockRef::new(&whole)).check_split(BlockRef::new(&left), BlockRef::new(&right));
    }

    #[test]
    fn a_split_keeps_all_and_its_order() {
        split(&[1, 2, 3], &[1], &[2, 3]);
        split(&[1, 2, 3], &[1, 2, 3], &[]);
        split(&[1, 2, 3], &[], &[1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "DIVISION-1")]
    fn a_split_that_loses_an_item_is_a_bug() {
        split(&[1, 2, 3], &[1], &[3]);
    }

    #[test]
    #[should_panic(expected = "DIVISION-2")]
    fn a_split_that_puts_smaller_keys_on_the_right_is_a_bug() {
        split(&[1, 2, 3], &[2, 3], &[1]);
    }
}
