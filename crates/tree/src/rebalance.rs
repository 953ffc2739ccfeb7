//! Making a tree shrink: merging thin inner nodes on the way down, and removing empty blocks.
//!
//! A search for deletion never leaves a thin node behind that is the only child of its parent. On the way
//! down, a root with one child gives way to it, and any other node with less than a quarter of its pointers is
//! merged with a sibling or filled up from one. So removing one pointer at the bottom never empties a node.

use std::sync::Arc;

use creamery_base::{ErrorKind, Result, Wait};

use crate::block_read::Missing;
use crate::buffer::WriteGuard;
use crate::division::Division;
use crate::host::CowHost;
use crate::path::{NodeGuard, Path};
use crate::tree::Tree;

/// Pointers left free when two nodes are merged, so that the next insertion does not split them again.
const MERGE_SLACK: usize = 8;

/// The outcome of merging a thin node.
pub(crate) enum Merged {
    /// The node was merged with its sibling, or filled up from it, or has none.
    Node,
    /// The node was the root and is gone: the path holds its only child, one level below.
    Root,
    /// Nothing changed: this is not in memory.
    Missing(Missing),
}

impl Tree {
    /// Whether the inner node at `level` should be merged before a removal below it.
    pub(crate) fn is_thin(&self, path: &Path, level: usize) -> bool {
        let pointers = path.block(level).count();
        if path.holds(level + 1) { pointers < self.pointers_max() / 4 } else { pointers == 1 }
    }

    /// Merges the thin, write-locked node at `level`.
    pub(crate) fn merge_node(&self, host: &dyn CowHost, path: &mut Path, level: usize) -> Result<Merged> {
        let is_root = !path.holds(level + 1);
        // The parent's level, and the slot there of the other block that the merge needs.
        let (above, slot) = if is_root {
            (level, 0)
        } else {
            match path.slots[level + 1] {
                0 if path.block(level + 1).count() == 1 => return Ok(Merged::Node),
                0 => (level + 1, 1),
                slot => (level + 1, slot - 1),
            }
        };
        let Some(other) = self.sibling(path, above - 1, slot, Wait::Yes)? else {
            return Ok(Merged::Missing(Missing::Block(self.expected_child(path.block(above), slot))));
        };
        let (at, its_level) = (other.block().logical(), other.block().level());
        let other = match self.own_child(host, path, above - 1, slot, other) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Ok(Merged::Missing(Missing::References(at, its_level)));
            }
            other => other?,
        };
        if is_root {
            self.shrink_root(host, path, level, other)?;
            return Ok(Merged::Root);
        }
        if slot < path.slots[above] {
            self.merge_with_left(host, path, level, other)?;
        } else {
            self.merge_with_right(host, path, level, other)?;
        }
        Ok(Merged::Node)
    }

    /// Replaces a root with one child by that child.
    fn shrink_root(
        &self,
        host: &dyn CowHost,
        path: &mut Path,
        level: usize,
        child: WriteGuard,
    ) -> Result<()> {
        self.set_root(Arc::clone(child.buffer()));
        let NodeGuard::Write(old) = path.take(level) else { panic!("the root is not write-locked") };
        path.set(level - 1, NodeGuard::Write(child));
        self.give_up(host, &old, true)
    }

    fn merge_with_left(
        &self,
        host: &dyn CowHost,
        path: &mut Path,
        level: usize,
        mut left: WriteGuard,
    ) -> Result<()> {
        let parent_slot = path.slots[level + 1];
        let (here, there) = (path.block(level).count(), left.block().count());
        let before = Division::of(left.block(), path.block(level));
        if here + there + MERGE_SLACK <= self.pointers_max() {
            left.block_mut().copy_ptrs_from(there, path.block(level), 0, here);
            before.check(Division::of_one(left.block()));
            let NodeGuard::Write(old) = path.take(level) else { panic!("a thin node is not write-locked") };
            path.block_mut(level + 1).remove_ptrs(parent_slot, 1);
            path.slots[level + 1] = parent_slot - 1;
            path.set(level, NodeGuard::Write(left));
            return self.give_up(host, &old, true);
        }
        let moved = there.saturating_sub(here) / 2;
        path.block_mut(level).copy_ptrs_from(0, left.block(), there - moved, moved);
        left.block_mut().remove_ptrs(there - moved, moved);
        before.check(Division::of(left.block(), path.block(level)));
        let first = path.block(level).key(0);
        path.block_mut(level + 1).set_key(parent_slot, &first);
        Ok(())
    }

    fn merge_with_right(
        &self,
        host: &dyn CowHost,
        path: &mut Path,
        level: usize,
        mut right: WriteGuard,
    ) -> Result<()> {
        let parent_slot = path.slots[level + 1];
        let (here, there) = (path.block(level).count(), right.block().count());
        let before = Division::of(path.block(level), right.block());
        if here + there + MERGE_SLACK <= self.pointers_max() {
            path.block_mut(level).copy_ptrs_from(here, right.block(), 0, there);
            before.check(Division::of_one(path.block(level)));
            path.block_mut(level + 1).remove_ptrs(parent_slot + 1, 1);
            return self.give_up(host, &right, true);
        }
        let moved = there.saturating_sub(here) / 2;
        path.block_mut(level).copy_ptrs_from(here, right.block(), 0, moved);
        right.block_mut().remove_ptrs(0, moved);
        before.check(Division::of(path.block(level), right.block()));
        let first = right.block().key(0);
        path.block_mut(level + 1).set_key(parent_slot + 1, &first);
        Ok(())
    }

    /// Removes the path's leaf, which is empty or was merged away, from its parent.
    pub(crate) fn remove_leaf(&self, host: &dyn CowHost, path: &mut Path) -> Result<()> {
        let NodeGuard::Write(leaf) = path.take(0) else { panic!("the leaf is not write-locked") };
        let slot = path.slots[1];
        path.block_mut(1).remove_ptrs(slot, 1);
        assert!(
            path.block(1).count() > 0,
            "the search left a node with one child above a leaf to be removed"
        );
        self.give_up(host, &leaf, true)
    }
}
