//! Walking over items in key order.

use creamery_base::{Error, ErrorKind, Generation, Result, Wait};
use creamery_format::Key;

use crate::bookmark::Bookmark;
use crate::read::{FoundLeaf, There};
use crate::read_ahead::Walk;
use crate::tree::Tree;

/// How often a cursor that steps back looks again. Two looks are enough where nobody changes what is there.
const LOOKS_MAX: u32 = 128;

/// A place in a tree that can move. It holds one leaf, as it is or was a moment ago, and crosses to another by letting go and
/// searching by key, so items inserted or removed meanwhile beyond that leaf are seen as they are then.
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
    /// None only while the lock is let go between two leaves, or after an error there.
    leaf: Option<FoundLeaf>,
    leaves: u64,
}

impl Tree {
    /// A cursor at the first item whose key is `start` or greater.
    /// Errors: would block, device errors, damage.
    pub fn cursor(&self, start: &Key, walk: impl Into<Walk>) -> Result<Cursor<'_>> {
        let walk = walk.into();
        let leaf = self.find_leaf(start, walk)?;
        let mut cursor = Cursor { tree: self, walk, leaf: Some(leaf), leaves: 1 };
        cursor.settle()?;
        Ok(cursor)
    }

    /// As [`Tree::cursor`], and nobody changes the first leaf as long as the cursor is on it.
    /// Errors: would block, device errors, damage.
    pub fn cursor_locked(&self, start: &Key, wait: Wait) -> Result<Cursor<'_>> {
        let leaf = self.find_leaf_locked(start, wait)?;
        let mut cursor = Cursor { tree: self, walk: wait.into(), leaf: Some(leaf), leaves: 1 };
        cursor.settle()?;
        Ok(cursor)
    }

    /// A cursor at the last item whose key is `key` or smaller; at the tree's first item when there is none.
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

    /// The same, if that place is in the leaf of a bookmark. Nobody has changed the items that the caller looks for since that was
    /// made.
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
    /// Where the cursor is; none past the last item.
    #[must_use]
    pub fn bookmark(&self) -> Option<Bookmark> {
        self.leaf.as_ref().filter(|leaf| leaf.slot < leaf.guard.block().count()).map(Bookmark::of)
    }

    /// Brings a bookmark here, for less than a new one costs; false, and nothing done, when it is none of this leaf, or the cursor is
    /// past the last item.
    #[must_use]
    pub fn move_bookmark(&self, bookmark: &mut Bookmark) -> bool {
        let leaf = self.leaf.as_ref().filter(|leaf| leaf.slot < leaf.guard.block().count());
        leaf.is_some_and(|leaf| bookmark.move_within(leaf))
    }

    /// The item here; none past the last one.
    #[must_use]
    pub fn item(&self) -> Option<(Key, &[u8])> {
        let leaf = self.leaf.as_ref()?;
        let block = leaf.guard.block();
        if leaf.slot >= block.count() {
            return None;
        }
        Some((block.key(leaf.slot), block.data(leaf.slot)))
    }

    /// The transaction that wrote the leaf here; zero past the end.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.leaf.as_ref().map_or(Generation::default(), |leaf| leaf.guard.block().generation())
    }

    /// How many leaves it came to.
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

    /// Moves one item back; false, and no move, when this is the first one.
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

    /// Moves to the last item at or before `key`; false, and to the tree's first item, when there is none.
    /// Errors: would block, device errors, damage; the cursor is past the end then.
    fn step_back(&mut self, key: &Key) -> Result<bool> {
        // Where a leaf begins that has nothing at or before the key (`low_keys`).
        let mut begins: Option<Key> = None;
        for _ in 0..LOOKS_MAX {
            let before = match begins {
                None => *key,
                Some(begins) => match begins.prev() {
                    Some(before) => before,
                    None => return Ok(false),
                },
            };
            self.leaf = None; // let go before waiting for another lock
            let mut found = self.tree.find_leaf_and_begin(&before, self.walk)?;
            self.leaves += 1;
            if begins.is_some() && found.next_leaf != begins {
                // Between the two looks an item came to where neither saw it, or the two leaves became one.
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

    /// Past the end of a leaf: goes on to the next one that has items.
    fn settle(&mut self) -> Result<()> {
        while let Some(leaf) = &self.leaf {
            if leaf.slot < leaf.guard.block().count() {
                break;
            }
            let Some(next) = leaf.next_leaf else { break };
            self.leaf = None; // let go before waiting for another lock
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
