//! Low keys: the key by which a node finds a child.
//!
//! On disk it is the child's first key. If that held at every moment, each removal of a leaf's first item would change the parent, and, where the leaf is its
//! parent's first child, all levels up to the root: many threads that delete files in the order of their numbers would meet at the root for each one. So in blocks
//! that the running transaction has made, the key in the parent may be smaller than the child's first key. It still divides the keys of a child from those of the
//! child before, so a search goes the right way. A removal leaves it as it is, and an insertion that becomes a leaf's first item finds room below it.
//!
//! One change asks for more: an item that gets a greater key, and stays the last of its leaf, may come to keys that belong to the next leaf, though that has no
//! items there. It raises the key of the next leaf first ([`Tree::find_for`]).
//!
//! Before blocks are sealed each key gets its child's first key, from the leaves up ([`BufferStore::settle_low_keys`]). Nobody changes these blocks then.
//!
//! # Invariants
//! - LOW-KEY-1: the key of a child in its parent is not greater than the child's first key, and greater than all keys before that child. In a block that
//!   is sealed, it is the child's first key.

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

impl Path {
    /// The leaf's first key became `key`, by which its parents have to find it: writes the key into them, as far up as theirs is greater.
    pub(crate) fn lower_keys(&mut self, key: &Key) {
        for level in 1..LEVELS {
            if !self.holds(level) || *key >= self.block(level).key(self.slots[level]) {
                break;
            }
            let slot = self.slots[level];
            self.block_mut(level).set_key(slot, key);
        }
    }

    /// The opposite: gives the parents the leaf's first key, as far up as it is theirs. Returns it.
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

    /// Whether `key` belongs to the path's leaf or to one before.
    pub(crate) fn ends_behind(&self, key: &Key) -> bool {
        self.behind.is_none_or(|behind| *key < behind)
    }
}

impl Tree {
    /// A path that `find` finds to an item that gets the key `new`, which is smaller than the key of the next item: to a leaf where `new` belongs, too. None where
    /// `find` finds none.
    /// Errors: those of `find`, no space, device errors; damage (the next leaf begins before `new`).
    pub(crate) fn find_for(
        &self,
        host: &dyn CowHost,
        new: &Key,
        find: &dyn Fn() -> Result<Option<Path>>,
    ) -> Result<Option<Path>> {
        loop {
            let Some(path) = find()? else { return Ok(None) };
            let Some(behind) = path.behind.filter(|behind| *behind <= *new) else { return Ok(Some(path)) };
            drop(path);
            let (mut next, _) = self.find(host, &behind, Intent::Rekey)?;
            let first = next.raise_keys();
            if first.is_some_and(|first| behind <= first && first <= *new) {
                let message = format!("tree {}: an item would become {new}, past the next one", self.id());
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        }
    }
}

impl BufferStore {
    /// Gives each child of the dirty nodes its first key in its parent (LOW-KEY-1). Nobody changes a dirty block meanwhile.
    pub fn settle_low_keys(&self) {
        self.settle_low_keys_of(&self.dirty_blocks());
    }

    /// The same in these `blocks`, which are all that are dirty.
    pub(crate) fn settle_low_keys_of(&self, blocks: &[Arc<ExtentBuffer>]) {
        let mut nodes: Vec<_> = blocks.iter().filter(|block| block.level() > 0 && block.is_dirty()).collect();
        nodes.sort_unstable_by_key(|node| node.level());
        for node in nodes {
            let changes = self.low_keys_of(node);
            if !changes.is_empty() {
                let mut guard = Arc::clone(node).write();
                changes.iter().for_each(|(slot, key)| guard.block_mut().set_key(*slot, key));
            }
        }
    }

    /// The slots of a node whose keys are not their children's first keys, with those.
    fn low_keys_of(&self, node: &Arc<ExtentBuffer>) -> Vec<(usize, Key)> {
        let children: Vec<(usize, Key, Logical)> = {
            let guard = Arc::clone(node).read(Wait::Yes).expect("waiting is allowed");
            let block = guard.block();
            let changed = (0..block.count()).filter(|&slot| block.child(slot).1 == block.generation());
            changed.map(|slot| (slot, block.key(slot), block.child(slot).0)).collect()
        };
        let low_key = |(slot, key, child): (usize, Key, Logical)| {
            let child = self.cached_dirty(child)?.read(Wait::Yes).expect("waiting is allowed");
            let first = child.block().first_key().filter(|first| *first != key)?;
            assert!(first > key, "LOW-KEY-1: {first} is in front of its parent's key {key}");
            Some((slot, first))
        };
        children.into_iter().filter_map(low_key).collect()
    }
}
