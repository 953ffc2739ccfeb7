//! Walking over items in key order.

use creamery_base::{Error, ErrorKind, Generation, Result, Wait};
use creamery_format::Key;

use crate::bookmark::Bookmark;
use crate::read::{FoundLeaf, There};
use crate::read_ahead::Walk;
use crate::tree::Tree;

/// The largest number of searches of a cursor that steps back. Two are enough unless other threads change that place.
const LOOKS_MAX: u32 = 128;

/// A movable place in a tree. A cursor holds one leaf, in its state now or a moment ago. To cross to another leaf, it unlocks and
/// searches by key, so beyond its leaf it sees items that other threads insert or remove meanwhile.
///
/// ```no_run
/// # fn last(tree: &creamery_tree::Tree) -> creamery_base::Result<()> {
/// use creamery_base::Wait;
/// use creamery_format::Key;
/// let cursor = tree.cursor_at_or_before(&Key::MAX, Wait::Yes)?;
/// if let Some((key, _)) = cursor.item() {
///     println!("the last key is {key}");
/// }
/// # Ok(())
/// # }
/// ```
pub struct Cursor<'t> {
    tree: &'t Tree,
    walk: Walk,
    /// `None` only while the cursor is between two leaves, without a lock, or after an error there.
    leaf: Option<FoundLeaf>,
    leaves: u64,
}

impl Tree {
    /// Returns a cursor at the first item whose key is `start` or greater.
    /// Errors: would block, device errors, damage.
    pub fn cursor(&self, start: &Key, walk: impl Into<Walk>) -> Result<Cursor<'_>> {
        let walk = walk.into();
        let leaf = self.find_leaf(start, walk)?;
        let mut cursor = Cursor { tree: self, walk, leaf: Some(leaf), leaves: 1 };
        cursor.settle()?;
        Ok(cursor)
    }

    /// Returns a cursor like [`Tree::cursor`], with its first leaf locked: no thread changes this leaf while the cursor is on it.
    /// Errors: would block, device errors, damage.
    pub fn cursor_locked(&self, start: &Key, wait: Wait) -> Result<Cursor<'_>> {
        let leaf = self.find_leaf_locked(start, wait)?;
        let mut cursor = Cursor { tree: self, walk: wait.into(), leaf: Some(leaf), leaves: 1 };
        cursor.settle()?;
        Ok(cursor)
    }

    /// Returns a cursor at the last item whose key is `key` or smaller; if there is none, at the tree's first item.
    /// Errors: would block, device errors, damage.
    pub fn cursor_at_or_before(&self, key: &Key, walk: impl Into<Walk>) -> Result<Cursor<'_>> {
        let walk = walk.into();
        let mut leaf = self.find_leaf(key, walk)?;
        let is_gap = leaf.there == There::No && leaf.slot == 0;
        if leaf.there == There::No && !is_gap {
            leaf.slot -= 1;
        }
        let mut cursor = Cursor { tree: self, walk, leaf: Some(leaf), leaves: 1 };
        if is_gap {
            cursor.step_back(key)?;
        }
        cursor.settle()?;
        Ok(cursor)
    }

    /// Returns a cursor at the last item at or before `key` if it is in the bookmark's leaf, else `None`. The items around `key` must
    /// not have changed since the bookmark was made.
    /// Errors: would block.
    #[inline]
    pub fn cursor_at_bookmark(
        &self,
        bookmark: &Bookmark,
        key: &Key,
        walk: impl Into<Walk>,
    ) -> Result<Option<Cursor<'_>>> {
        let walk = walk.into();
        let leaf = bookmark.find(self, key, walk)?;
        Ok(leaf.map(|leaf| Cursor { tree: self, walk, leaf: Some(leaf), leaves: 1 }))
    }
}

impl Cursor<'_> {
    /// Returns a bookmark of this place; `None` past the last item.
    #[must_use]
    pub fn bookmark(&self) -> Option<Bookmark> {
        self.leaf.as_ref().filter(|leaf| leaf.slot < leaf.guard.block().count()).map(Bookmark::of)
    }

    /// Moves a bookmark here, which is cheaper than a new one. Returns false, and does nothing, if it is in another leaf or the
    /// cursor is past the last item.
    #[must_use]
    pub fn move_bookmark(&self, bookmark: &mut Bookmark) -> bool {
        let leaf = self.leaf.as_ref().filter(|leaf| leaf.slot < leaf.guard.block().count());
        leaf.is_some_and(|leaf| bookmark.move_within(leaf))
    }

    /// Returns the item here; `None` past the last one.
    #[must_use]
    pub fn item(&self) -> Option<(Key, &[u8])> {
        let leaf = self.leaf.as_ref()?;
        let block = leaf.guard.block();
        if leaf.slot >= block.count() {
            return None;
        }
        Some((block.key(leaf.slot), block.data(leaf.slot)))
    }

    /// Returns the transaction that wrote the leaf here; zero past the end.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.leaf.as_ref().map_or(Generation::default(), |leaf| leaf.guard.block().generation())
    }

    /// Returns how many leaves the cursor has visited.
    #[must_use]
    pub const fn leaves(&self) -> u64 {
        self.leaves
    }

    /// Moves to the next item.
    /// Errors: would block, device errors, damage; the cursor is past the end then.
    pub fn advance(&mut self) -> Result<()> {
        if let Some(leaf) = &mut self.leaf {
            leaf.slot += 1;
        }
        self.settle()
    }

    /// Moves one item back. Returns false, and does not move, at the first item.
    /// Errors: would block, device errors, damage; the cursor is past the end then.
    pub fn retreat(&mut self) -> Result<bool> {
        let Some(leaf) = &mut self.leaf else { return Ok(false) };
        if leaf.slot > 0 {
            leaf.slot -= 1;
            return Ok(true);
        }
        match leaf.guard.block().first_key().and_then(|key| key.prev()) {
            Some(before) => self.step_back(&before),
            None => Ok(false),
        }
    }

    /// Moves to the last item at or before `key`. If there is none, moves to the tree's first item and returns false.
    /// Errors: would block, device errors, damage; the cursor is past the end then.
    fn step_back(&mut self, key: &Key) -> Result<bool> {
        // The key by which the parent finds a leaf that has no item at or before `key` (`low_keys`).
        let mut begins: Option<Key> = None;
        for _ in 0..LOOKS_MAX {
            let before = match begins {
                None => *key,
                Some(begins) => match begins.prev() {
                    Some(before) => before,
                    None => return Ok(false),
                },
            };
            self.leaf = None; // unlock before waiting for another lock
            let mut found = self.tree.find_leaf_and_begin(&before, self.walk)?;
            self.leaves += 1;
            if begins.is_some() && found.next_leaf != begins {
                // Between the two searches another thread inserted an item outside both views, or merged the two leaves.
                begins = None;
                continue;
            }
            let is_there = found.there == There::Yes || found.slot > 0;
            if found.there == There::No && is_there {
                found.slot -= 1;
            }
            begins = found.begins;
            self.leaf = Some(found);
            if is_there || begins.is_none() {
                return Ok(is_there);
            }
        }
        self.leaf = None;
        let message = format!("tree {}: no leaf ends before {key}", self.tree.id());
        Err(Error::new(ErrorKind::Corrupt, message))
    }

    /// Moves from the end of a leaf to the next leaf with items.
    fn settle(&mut self) -> Result<()> {
        while let Some(leaf) = &self.leaf {
            if leaf.slot < leaf.guard.block().count() {
                break;
            }
            let Some(next) = leaf.next_leaf else { break };
            self.leaf = None; // unlock before waiting for another lock
            let found = self.tree.find_leaf(&next, self.walk)?;
            self.leaves += 1;
            // In a damaged tree the way to the next leaf may lead back.
            if found.slot >= found.guard.block().count() && found.next_leaf.is_some_and(|key| key <= next) {
                let message = format!("tree {}: no leaf begins with {next}", self.tree.id());
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            self.leaf = Some(found);
        }
        Ok(())
    }
}
