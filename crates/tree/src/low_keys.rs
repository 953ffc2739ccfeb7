//! Low keys: the key by which a node finds a child.
//!
//! On disk it is the child's first key. If that held at every moment, each removal of a leaf's first item would change the parent, and, if the leaf is its
//! parent's first child, all levels up to the root: many threads that delete files in the order of their numbers would contend for the root. So in blocks
//! of the running transaction, the key in the parent may be smaller than the child's first key. It still divides the keys of a child from those of the
//! child before, so a search goes the right way. A removal leaves it unchanged, and an insertion that becomes a leaf's first item finds room below it.
//!
//! A re-key needs one more step. The new key of a leaf's last item may lie in the next leaf's range, below that leaf's first item. [`Tree::find_for`] raises the
//! next leaf's key first.
//!
//! Before blocks are sealed, and before a commit root leads to them, each key becomes its child's first key, from the leaves up
//! ([`BufferStore::settle_low_keys`]). No thread changes these blocks then, and none of them is part of a tree that is being dropped.
//!
//! # Invariants
//! - LOW-KEY-1: the key of a child in its parent is not greater than the child's first key, and greater than all keys before that child. In a block that
//!   is sealed, it is the child's first key. Leaves that overlap on disk break it, so it is an error that ends the transaction, not an assert.
//!   Shown by `leaves_that_overlap_are_no_commit`.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Logical, Result, Wait};
use creamery_format::Key;

use crate::LEVELS;
use crate::buffer::ExtentBuffer;
use crate::host::CowHost;
use crate::path::Path;
use crate::search::Intent;
use crate::store::BufferStore;
use crate::tree::Tree;

/// How often at most a search raises the next leaf's key for one item, while other threads change that place. Without them one time is
/// enough.
const RAISES_MAX: u32 = 64;

impl Path {
    /// Writes `key`, the leaf's new first key, into its parents, as far up as their key is greater.
    pub(crate) fn lower_keys(&mut self, key: &Key) {
        for level in 1..LEVELS {
            if !self.holds(level) || *key >= self.block(level).key(self.slots[level]) {
                break;
            }
            let slot = self.slots[level];
            self.block_mut(level).set_key(slot, key);
        }
    }

    /// Raises the keys in the parents to the leaf's first key, up to the first parent where the slot is not 0. Returns that key.
    fn raise_keys(&mut self) -> Option<Key> {
        let first = self.block(0).first_key()?;
        for level in 1..LEVELS {
            if !self.holds(level) {
                break;
            }
            let slot = self.slots[level];
            if self.block(level).key(slot) < first {
                self.block_mut(level).set_key(slot, &first);
            }
            if slot > 0 {
                break;
            }
        }
        Some(first)
    }

    /// Whether `key` belongs to the path's leaf or to an earlier one.
    pub(crate) fn ends_behind(&self, key: &Key) -> bool {
        self.behind.is_none_or(|behind| *key < behind)
    }
}

impl Tree {
    /// Finds an item that is about to get the key `new`, which is smaller than the key of the next item, in a leaf whose range contains `new`. `None` if
    /// `find` finds no such item.
    /// Errors: those of `find`, no space, device errors; damage (the next leaf begins before `new`, or nowhere).
    pub(crate) fn find_for(
        &self,
        host: &dyn CowHost,
        new: &Key,
        find: &dyn Fn() -> Result<Option<Path>>,
    ) -> Result<Option<Path>> {
        for _ in 0..RAISES_MAX {
            let Some(path) = find()? else { return Ok(None) };
            let Some(behind) = path.behind.filter(|behind| *behind <= *new) else { return Ok(Some(path)) };
            drop(path);
            let (mut next, _) = self.find(host, &behind, Intent::Rekey)?;
            if next.raise_keys().is_some_and(|first| behind <= first && first <= *new) {
                break;
            }
        }
        let message = format!("tree {}: an item would become {new}, past the next one", self.id());
        Err(Error::new(ErrorKind::Corrupt, message))
    }
}

impl BufferStore {
    /// Gives each child of the dirty nodes its first key in its parent (LOW-KEY-1). No thread may change a dirty block meanwhile.
    ///
    /// # Errors
    /// Damage: leaves overlap.
    pub fn settle_low_keys(&self) -> Result<()> {
        let mut nodes = self.dirty_blocks();
        nodes.retain(|block| block.level() > 0 && block.is_dirty());
        nodes.sort_unstable_by_key(|node| node.level());
        for node in nodes {
            let changes = self.low_keys_of(&node)?;
            if !changes.is_empty() {
                let mut guard = node.write();
                changes.iter().for_each(|(slot, key)| guard.block_mut().set_key(*slot, key));
            }
        }
        Ok(())
    }

    /// Pairs each slot of a node whose key differs from its child's first key with that first key.
    fn low_keys_of(&self, node: &Arc<ExtentBuffer>) -> Result<Vec<(usize, Key)>> {
        let children: Vec<Child> = {
            let guard = Arc::clone(node).read(Wait::Yes)?;
            let block = guard.block();
            let changed = (0..block.count()).filter(|&slot| block.child(slot).1 == block.generation());
            let child = |slot: usize| Child {
                slot,
                logical: block.child(slot).0,
                key: block.key(slot),
                next: (slot + 1 < block.count()).then(|| block.key(slot + 1)),
            };
            changed.map(child).collect()
        };
        let mut changes = Vec::new();
        for Child { slot, logical, key, next } in children {
            let Some(child) = self.cached_dirty(logical) else { continue };
            let Some(first) = child.read(Wait::Yes)?.block().first_key().filter(|first| *first != key) else {
                continue;
            };
            if first < key || next.is_some_and(|next| next <= first) {
                let (at, next) =
                    (node.logical(), next.map_or_else(String::new, |next| format!(" and before {next}")));
                let message = format!(
                    "LOW-KEY-1: block {at} slot {slot}: expected a child that begins at {key} or later{next}, \
                     found {first} in block {logical}"
                );
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            changes.push((slot, first));
        }
        Ok(changes)
    }
}

/// A node's pointer to a child.
struct Child {
    slot: usize,
    logical: Logical,
    key: Key,
    /// The key of the next child, if there is one.
    next: Option<Key>,
}
