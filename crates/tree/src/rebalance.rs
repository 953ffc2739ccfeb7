//! Making a tree shrink: merging thin inner nodes on the way down, and removing blocks that became empty.
//!
//! A search for deletion never leaves a thin node behind itself that is the only child of its parent: on the way
//! down a root with one child gives way to it, and any other node with less than a quarter of its pointers is
//! merged with a sibling or filled up from one. So removing one pointer at the bottom never empties a node.

use std::sync::Arc;

use creamery_base::{Result, Wait};
use creamery_format::Key;

use crate::buffer::WriteGuard;
use crate::host::CowHost;
use crate::path::{NodeGuard, Path};
use crate::tree::Tree;

/// Pointers left free when two nodes are merged, so that the next insertion does not split them again.
const MERGE_SLACK: usize = 8;

impl Tree {
    /// Whether the inner node at `level` should be merged before something below it is removed.
    pub(crate) fn is_thin(&self, path: &Path, level: usize) -> bool {
        let pointers = path.block(level).count();
        if path.holds(level + 1) { pointers < self.pointers_max() / 4 } else { pointers == 1 }
    }

    /// Merges the thin, write-locked node at `level`. True when it was the root and is gone: the path then holds
    /// its only child one level below.
    pub(crate) fn merge_node(&self, host: &dyn CowHost, path: &mut Path, level: usize) -> Result<bool> {
        if !path.holds(level + 1) {
            self.shrink_root(host, path, level)?;
            return Ok(true);
        }
        let parent_slot = path.slots[level + 1];
        if parent_slot > 0 {
            self.merge_with_left(host, path, level, parent_slot)?;
        } else if parent_slot + 1 < path.block(level + 1).count() {
            self.merge_with_right(host, path, level, parent_slot)?;
        }
        Ok(false)
    }

    fn shrink_root(&self, host: &dyn CowHost, path: &mut Path, level: usize) -> Result<()> {
        let child = self.locked_child(host, path, level - 1, 0)?;
        self.set_root(Arc::clone(child.buffer()));
        let NodeGuard::Write(old) = path.take(level) else { panic!("the root is not write-locked") };
        path.set(level - 1, NodeGuard::Write(child));
        self.give_up(host, &old, true)
    }

    /// The child at `slot` of the path's node above `level`, write-locked and ours.
    fn locked_child(
        &self,
        host: &dyn CowHost,
        path: &mut Path,
        level: usize,
        slot: usize,
    ) -> Result<WriteGuard> {
        let child = self.sibling(path, level, slot, Wait::Yes)?;
        self.own_child(host, path, level, slot, child)
    }

    fn merge_with_left(
        &self,
        host: &dyn CowHost,
        path: &mut Path,
        level: usize,
        parent_slot: usize,
    ) -> Result<()> {
        let mut left = self.locked_child(host, path, level, parent_slot - 1)?;
        let (here, there) = (path.block(level).count(), left.block().count());
        if here + there + MERGE_SLACK <= self.pointers_max() {
            left.block_mut().copy_ptrs_from(there, path.block(level), 0, here);
            let NodeGuard::Write(old) = path.take(level) else { panic!("a thin node is not write-locked") };
            path.block_mut(level + 1).remove_ptrs(parent_slot, 1);
            path.slots[level + 1] = parent_slot - 1;
            path.set(level, NodeGuard::Write(left));
            return self.give_up(host, &old, true);
        }
        let moved = there.saturating_sub(here) / 2;
        path.block_mut(level).copy_ptrs_from(0, left.block(), there - moved, moved);
        left.block_mut().remove_ptrs(there - moved, moved);
        let first = path.block(level).key(0);
        path.block_mut(level + 1).set_key(parent_slot, &first);
        Ok(())
    }

    fn merge_with_right(
        &self,
        host: &dyn CowHost,
        path: &mut Path,
        level: usize,
        parent_slot: usize,
    ) -> Result<()> {
        let mut right = self.locked_child(host, path, level, parent_slot + 1)?;
        let (here, there) = (path.block(level).count(), right.block().count());
        if here + there + MERGE_SLACK <= self.pointers_max() {
            path.block_mut(level).copy_ptrs_from(here, right.block(), 0, there);
            path.block_mut(level + 1).remove_ptrs(parent_slot + 1, 1);
            return self.give_up(host, &right, true);
        }
        let moved = there.saturating_sub(here) / 2;
        path.block_mut(level).copy_ptrs_from(here, right.block(), 0, moved);
        right.block_mut().remove_ptrs(0, moved);
        let first = right.block().key(0);
        path.block_mut(level + 1).set_key(parent_slot + 1, &first);
        Ok(())
    }

    /// Removes the path's leaf, which became empty or was merged away, from its parent.
    pub(crate) fn remove_leaf(&self, host: &dyn CowHost, path: &mut Path) -> Result<()> {
        let NodeGuard::Write(leaf) = path.take(0) else { panic!("the leaf is not write-locked") };
        let slot = path.slots[1];
        path.block_mut(1).remove_ptrs(slot, 1);
        assert!(
            path.block(1).count() > 0,
            "the search left a node with one child above a leaf to be removed"
        );
        if slot == 0 {
            let first = path.block(1).key(0);
            self.fix_low_keys(path, 2, &first);
        }
        self.give_up(host, &leaf, true)
    }

    /// Writes a block's new first key into its parents, from `level` up, as far as it is their first key too.
    pub(crate) fn fix_low_keys(&self, path: &mut Path, level: usize, key: &Key) {
        for level in level..crate::LEVELS {
            if !path.holds(level) {
                // Nothing above: the block just changed is the root, or its slot in here was not 0.
                debug_assert!(level > usize::from(self.root_buffer().level()));
                break;
            }
            let slot = path.slots[level];
            path.block_mut(level).set_key(slot, key);
            if slot != 0 {
                break;
            }
        }
    }
}
