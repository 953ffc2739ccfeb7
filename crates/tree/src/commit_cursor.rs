//! Walking over the items of a tree as a commit left it.
//!
//! Blocks of a commit do not change. So this cursor keeps the blocks on its path, from the commit root to its leaf, takes
//! no lock, and never searches twice. It shows one state of the tree, however long it walks and whatever other threads change
//! meanwhile. A guard keeps its blocks from being handed out again ([`Readers`](crate::Readers)), and with them all space that
//! transactions free meanwhile. So a long walk moves to the last commit now and then ([`CommitCursor::renew`]), and goes on from
//! its place.
//!
//! A walk for new items skips the rest: a pointer names the transaction that wrote its child, and nothing
//! below that child is newer.
//!
//! # Invariants
//! - COMMIT-CURSOR-1: from one renewal to the next the items are those of one commit.
//!   Shown by `what_is_shown_is_one_commit_until_it_is_renewed`.
//! - COMMIT-CURSOR-2: items come in ascending order, whatever is on disk, so every walk ends.
//!   Shown by `a_node_that_leads_back_is_damage`.
//! - COMMIT-CURSOR-3: a walk for new items reads no leaf and no node that is older, only pointers to them.
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
    /// The cursor skips older blocks.
    since: Generation,
    root: RootPointer,
    guard: CommitRootGuard,
    /// From the root to the leaf, each with its slot; empty past the end.
    path: SmallVec<[(CommittedBlock, usize); 4]>,
    /// The key of the last item shown.
    last: Option<Key>,
}

impl Tree {
    /// Returns a cursor at the first item of the last commit with a key of at least `start`, in a leaf that transaction `since`
    /// or a later one wrote. The cursor is past the end if the tree is in no commit yet.
    /// Errors: device errors, damage.
    pub fn commit_cursor(
        &self,
        start: &Key,
        since: Generation,
        walk: impl Into<Walk>,
    ) -> Result<CommitCursor<'_>> {
        // The guard comes before the root: it keeps at least the commit of a root that is read after it.
        let guard = self.store.readers().guard();
        self.commit_cursor_under(guard, start, since, walk)
    }

    /// Returns a cursor like [`commit_cursor`](Self::commit_cursor), in a tree opened as of a commit. `guard` keeps that commit.
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
    /// Returns the last transaction that changed the tree, as of the cursor's commit.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.root.generation
    }

    /// Returns the item here; `None` past the last one.
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

    /// Moves to the last commit: to the same item, or, if it is gone, to the next one. Returns false if the tree has not changed
    /// since.
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

    /// Moves from the end of a block, or from an old one, to the next leaf with items.
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

    /// Goes down one block: to the slot where `start` is or would be, or to the first slot.
    fn push(&mut self, block: CommittedBlock, start: Option<&Key>) -> Result<()> {
        let found = BlockRef::new(&block);
        // Nodes that lead back would make the walk run in circles.
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

    /// Returns the child at `slot` of a node, checked against the node's pointer.
    fn child(&self, node: BlockRef<'_>, slot: usize) -> Result<CommittedBlock> {
        let (tree, want) = (self.tree, self.tree.expected_child(node, slot));
        if tree.store.ahead.is_on() {
            let is_new = |want: &Expected| want.generation.is_none_or(|written| written >= self.since);
            let mut wants = tree.wants_ahead(node, slot, self.walk, !tree.store.is_cached(want.logical));
            wants.retain(is_new);
            if !wants.is_empty() {
                // The cursor's guard keeps the blocks of its commit. A copy of it keeps those in the queue.
                tree.store.ahead.push(wants, node.bytes().len() as u64, self.guard.clone());
            }
        }
        let child = tree.store.committed(&want)?;
        let found = BlockRef::new(&child);
        tree.check_level(node, slot, found.level())?;
        tree.check_child(node, slot, found)?;
        Ok(child)
    }

    /// Ends a move: remembers the item reached, or goes past the end after an error.
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
