//! Bookmarks: the leaf in which a cursor stood, so that the next one that begins near there needs no way down.
//!
//! A bookmark is for who knows that the items that he is about to look for are as they were when it was made, as one does who
//! holds what changes them. Then a leaf that was frozen says of them what it said, whatever became of it since, and what
//! follows it begins where it did. One that may still change is looked at with its lock. It does as well as long as no key
//! that belonged there went elsewhere (`narrow`, which fingers go by, too), and none that belonged behind it came in: where what is
//! behind it begins by now it does not say.
//!
//! It keeps nothing in memory: a leaf that leaves the cache is none that a cursor could begin in.
//!
//! # Invariants
//! - BOOKMARK-1: a cursor that begins at a bookmark comes to the same items as one that comes from the root.
//!   Shown by `who_begins_at_a_bookmark_comes_to_the_same` and `what_moves_into_the_leaf_of_a_bookmark_is_seen_once`.

use std::sync::{Arc, Weak};

use creamery_base::Result;
use creamery_format::Key;

use crate::buffer::ExtentBuffer;
use crate::read::{FoundLeaf, There};
use crate::read_ahead::Walk;
use crate::tree::Tree;

/// Where a cursor stood.
///
/// ```no_run
/// # fn show(tree: &creamery_tree::Tree, first: &creamery_format::Key, second: &creamery_format::Key) -> creamery_base::Result<()> {
/// use creamery_base::Wait;
/// let bookmark = tree.cursor_at_or_before(first, Wait::Yes)?.bookmark();
/// // Nobody has changed the items around there since.
/// if let Some(bookmark) = &bookmark
///     && let Some(cursor) = tree.cursor_at_bookmark(bookmark, second, Wait::Yes)?
/// {
///     println!("{:?} without a search", cursor.item());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Bookmark {
    leaf: Weak<ExtentBuffer>,
    slot: usize,
    next_leaf: Option<Key>,
    /// How often keys had gone elsewhere from a leaf that could still change; none of one that was frozen.
    narrowed: Option<u32>,
}

impl Bookmark {
    pub(crate) fn of(leaf: &FoundLeaf) -> Self {
        let buffer = leaf.guard.buffer();
        Self {
            leaf: Arc::downgrade(buffer),
            slot: leaf.slot,
            next_leaf: leaf.next_leaf,
            narrowed: leaf.guard.is_locked().then(|| buffer.narrowed()),
        }
    }

    /// Brings it to a place in the leaf where it is already; false, and nothing done, when that is another leaf.
    pub(crate) fn move_within(&mut self, leaf: &FoundLeaf) -> bool {
        let buffer = leaf.guard.buffer();
        if !std::ptr::eq(self.leaf.as_ptr(), Arc::as_ptr(buffer)) {
            return false;
        }
        self.slot = leaf.slot;
        self.next_leaf = leaf.next_leaf;
        self.narrowed = leaf.guard.is_locked().then(|| buffer.narrowed());
        true
    }

    /// The place of the last item at or before `key`, if it is in the leaf.
    /// Errors: would block.
    pub(crate) fn find(&self, tree: &Tree, key: &Key, walk: Walk) -> Result<Option<FoundLeaf>> {
        if self.next_leaf.is_some_and(|next| *key >= next) {
            return Ok(None);
        }
        let Some(leaf) = self.leaf.upgrade() else { return Ok(None) };
        let guard = leaf.read_at(tree.place_on_the_way(0), walk.wait)?;
        let block = guard.block();
        let is_same = self.narrowed.is_none_or(|narrowed| narrowed == guard.buffer().narrowed());
        if !is_same || block.first_key().is_none_or(|first| *key < first) {
            return Ok(None);
        }
        let last = block.key(block.count() - 1);
        if self.next_leaf.is_some_and(|next| last >= next) {
            return Ok(None);
        }
        // Mostly it is the same item, the one before, which is looked at again for what follows it, or one of the next few.
        let is_before = |slot: &usize| *slot < block.count() && block.key(*slot) <= *key;
        let from = [self.slot, self.slot.saturating_sub(1)].into_iter().find(is_before).unwrap_or(0);
        let is_next = |slot: usize| slot + 1 >= block.count() || block.key(slot + 1) > *key;
        let (slot, exact) = if is_next(from) {
            (from, block.key(from) == *key)
        } else if is_next(from + 1) {
            (from + 1, block.key(from + 1) == *key)
        } else {
            match block.search(key, from) {
                Ok(slot) => (slot, true),
                Err(slot) => (slot - 1, false),
            }
        };
        Ok(Some(FoundLeaf { guard, slot, there: There::of(exact), begins: None, next_leaf: self.next_leaf }))
    }
}
