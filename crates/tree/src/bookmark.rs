//! Bookmarks: the leaf where a cursor stood, so that the next cursor that begins near there needs no search from the root.
//!
//! The user of a bookmark guarantees that the items that it looks for have not changed since the bookmark was made, for example
//! because it holds the lock of their owner. Then a leaf that was frozen still has these items, whatever became of the leaf, and
//! the next leaf begins at the same key. A leaf that may still change is read under its lock. It can be used as long as no key
//! that belonged there moved elsewhere (`narrow`, also used by fingers), and no key from behind the leaf came in: a bookmark does
//! not know where the next leaf begins by now.
//!
//! A bookmark keeps no block in memory: if the leaf leaves the cache, the bookmark finds nothing.
//!
//! # Invariants
//! - BOOKMARK-1: a cursor that begins at a bookmark shows the same items as a cursor that begins at the root.
//!   Shown by `who_begins_at_a_bookmark_comes_to_the_same` and `what_moves_into_the_leaf_of_a_bookmark_is_seen_once`.

use std::sync::{Arc, Weak};

use creamery_base::Result;
use creamery_format::Key;

use crate::buffer::ExtentBuffer;
use crate::read::{FoundLeaf, There};
use crate::read_ahead::Walk;
use crate::tree::Tree;

/// The place where a cursor stood.
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
    /// The leaf's `narrowed` count, for a leaf that could still change; `None` for a frozen leaf.
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

    /// Moves the bookmark within its leaf. Returns false, and does nothing, if `leaf` is another leaf.
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

    /// Returns the place of the last item at or before `key`, if the leaf has it.
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
        // Mostly it is the same item, the one before (read again for the item that follows it), or one of the next few.
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
