//! Walking over the items of a tree as a commit left it.
//!
//! Blocks of a commit do not change. So this cursor keeps the blocks that it came through, from the commit root to its leaf, takes
//! no lock, and never comes down a second time: what it shows is one moment, however long it walks and whatever is changed
//! beside it. A guard keeps its blocks from being handed out again ([`Readers`](crate::Readers)), and with them all space that is
//! freed meanwhile. So who walks for long goes over to the last commit now and then ([`CommitCursor::renew`]), and goes on there
//! where it was.
//!
//! Who looks for what is new passes over the rest: a pointer names the transaction that wrote what it leads to, and nothing
//! below that is newer.
//!
//! # Invariants
//! - COMMIT-CURSOR-1: from one renewal to the next the items are those of one commit.
//!   Shown by `what_is_shown_is_one_commit_until_it_is_renewed`.
//! - COMMIT-CURSOR-2: items come in ascending order, whatever is on disk, so every walk ends.
//!   Shown by `a_node_that_leads_back_is_damage`.
//! - COMMIT-CURSOR-3: who asks for what is new reads no block that is older, but its parent.
//!   Shown by `blocks_that_are_old_are_not_read`.

use creamery_base::{Error, ErrorKind, Generation, Result};
use creamery_format::{BlockRef, Expected, Key};
use smallvec::SmallVec;

use crate::committed::CommittedBlock;
use crate::read_ahead::Walk;
use crate::readers::CommitRootGuard;
use crate::tree::{RootPointer, Tree, check_root};

/// A place in a tree as a commit left it.
///
/// ```no_run
/// # fn show(tree: &creamery_tree::Tree) -> creamery_base::Result<()> {
/// use creamery_base::{Generation, Wait};
/// use creamery_format::Key;
/// let mut cursor = tree.commit_cursor(&Key::MIN, Generation::new(0), Wait::Yes)?;
/// while let Some((key, _)) = cursor.item() {
///     println!("{key}, as of {}", cursor.generation());
///     cursor.advance()?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct CommitCursor<'t> {
    tree: &'t Tree,
    walk: Walk,
    /// Older blocks are passed over.
    since: Generation,
    root: RootPointer,
    guard: CommitRootGuard,
    /// From the root to the leaf, each with its slot; nothing when it is past the end.
    path: SmallVec<[(CommittedBlock, usize); 4]>,
    /// The item that was reached last.
    last: Option<Key>,
}

impl Tree {
    /// A cursor at the first item of the last commit whose key is `start` or greater, among those in leaves that transaction `since`
    /// or a later one wrote. In a tree that no commit has there are none.
    /// Errors: device errors, damage.
    pub fn commit_cursor(
        &self,
        start: &Key,
        since: Generation,
        walk: impl Into<Walk>,
    ) -> Result<CommitCursor<'_>> {
        // The guard comes first: what it keeps is at least what the root that is read after it needs.
        let guard = self.store.readers().guard();
        self.commit_cursor_under(guard, start, since, walk)
    }

    /// As [`commit_cursor`](Self::commit_cursor), of a tree that was opened as a commit left it: `guard` keeps that commit.
    /// Errors: device errors, damage.
    pub fn commit_cursor_under(
        &self,
        guard: CommitRootGuard,
        start: &Key,
        since: Generation,
        walk: impl Into<Walk>,
    ) -> Result<CommitCursor<'_>> {
        let (root, path) = (self.commit_root(), SmallVec::new());
        let mut cursor = CommitCursor { tree: self, walk: walk.into(), since, root, guard, path, last: None };
        cursor.seek(start)?;
        Ok(cursor)
    }
}

impl CommitCursor<'_> {
    /// The last transaction that changed the tree, as it is walked over.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.root.generation
    }

    /// The item here; none past the last one.
    #[must_use]
    pub fn item(&self) -> Option<(Key, &[u8])> {
        let (leaf, slot) = self.path.last()?;
        let leaf = BlockRef::new(leaf);
        Some((leaf.key(*slot), leaf.data(*slot)))
    }

    /// Moves to the next item.
    /// Errors: device errors, damage; the cursor is past the end then.
    pub fn advance(&mut self) -> Result<()> {
        if let Some((_, slot)) = self.path.last_mut() {
            *slot += 1;
        }
        let moved = self.settle();
        self.moved(moved)
    }

    /// Goes over to the last commit: to the item where it is, or, when that is gone, to the next one. False when the tree is the same
    /// there.
    /// Errors: device errors, damage; the cursor is past the end then.
    pub fn renew(&mut self) -> Result<bool> {
        let guard = self.tree.store.readers().guard();
        let root = self.tree.commit_root();
        self.guard = guard;
        if root == self.root {
            return Ok(false);
        }
        self.root = root;
        if let Some((key, _)) = self.item() {
            self.last = None;
            self.seek(&key)?;
        }
        Ok(true)
    }

    fn seek(&mut self, start: &Key) -> Result<()> {
        let moved = self.descend_to(start);
        self.moved(moved)
    }

    fn descend_to(&mut self, start: &Key) -> Result<()> {
        self.path.clear();
        if self.root.generation == Generation::default() || self.root.generation < self.since {
            return Ok(());
        }
        let want = self.tree.expected(self.root, None);
        let root = self.tree.store.committed(&want)?;
        check_root(self.tree.id(), self.root, BlockRef::new(&root))?;
        self.push(root, Some(start))?;
        while let Some((block, slot)) = self.path.last() {
            let node = BlockRef::new(block);
            if node.is_leaf() || *slot >= node.count() || node.child(*slot).1 < self.since {
                break;
            }
            let child = self.child(node, *slot)?;
            self.push(child, Some(start))?;
        }
        self.settle()
    }

    /// Past the end of a block, or at one that is too old: goes on to the next leaf that has items.
    fn settle(&mut self) -> Result<()> {
        while let Some((block, slot)) = self.path.last_mut() {
            let node = BlockRef::new(block);
            if *slot >= node.count() {
                self.path.pop();
                if let Some((_, slot)) = self.path.last_mut() {
                    *slot += 1;
                }
            } else if node.is_leaf() {
                break;
            } else if node.child(*slot).1 < self.since {
                *slot += 1;
            } else {
                let slot = *slot;
                let child = self.child(BlockRef::new(&self.path[self.path.len() - 1].0), slot)?;
                self.push(child, None)?;
            }
        }
        Ok(())
    }

    /// One block down: to where `start` is or would be, or to its beginning.
    fn push(&mut self, block: CommittedBlock, start: Option<&Key>) -> Result<()> {
        let found = BlockRef::new(&block);
        // Nodes that lead back would have the walk go round.
        if let (Some(first), Some(last)) = (found.first_key(), self.last)
            && found.is_leaf()
            && first <= last
        {
            let (id, at) = (self.tree.id(), found.logical());
            let message = format!("corrupt leaf: tree={id} logical={at}, {first} comes behind {last}");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let slot = match start {
            None => 0,
            Some(start) if found.is_leaf() => found.search(start, 0).unwrap_or_else(|slot| slot),
            Some(start) => found.child_slot(start),
        };
        self.path.push((block, slot));
        Ok(())
    }

    /// The child at `slot` of a node, as that says.
    fn child(&self, node: BlockRef<'_>, slot: usize) -> Result<CommittedBlock> {
        let (tree, want) = (self.tree, self.tree.expected_child(node, slot));
        if tree.store.ahead.is_on() {
            let is_new = |want: &Expected| want.generation.is_none_or(|written| written >= self.since);
            let mut wants = tree.wants_ahead(node, slot, self.walk, !tree.store.is_cached(want.logical));
            wants.retain(is_new);
            if !wants.is_empty() {
                // What the tree leads to by now is kept by this guard, and what it led to by the cursor's as well.
                tree.store.ahead.push(wants, node.bytes().len() as u64, self.guard.clone());
            }
        }
        let child = tree.store.committed(&want)?;
        let found = BlockRef::new(&child);
        tree.check_level(node, slot, found.level())?;
        tree.check_child(node, slot, found)?;
        Ok(child)
    }

    /// It came somewhere, or nowhere.
    fn moved(&mut self, moved: Result<()>) -> Result<()> {
        if moved.is_err() {
            self.path.clear();
        }
        let here = self.item().map(|(key, _)| key);
        assert!(here.is_none() || self.last < here, "COMMIT-CURSOR-2: {here:?} comes behind {:?}", self.last);
        self.last = here.or(self.last);
        moved
    }
}
