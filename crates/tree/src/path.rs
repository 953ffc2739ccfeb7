//! A path: the blocks that a search for modification holds, from the leaf up, with the slot chosen in each.

use std::sync::Arc;

use creamery_format::{BlockMut, BlockRef, Key};

use crate::LEVELS;
use crate::buffer::{ExtentBuffer, ReadGuard, WriteGuard};

pub(crate) enum NodeGuard {
    Read(ReadGuard),
    Write(WriteGuard),
}

impl NodeGuard {
    pub(crate) fn block(&self) -> BlockRef<'_> {
        match self {
            Self::Read(guard) => guard.block(),
            Self::Write(guard) => guard.block(),
        }
    }

    pub(crate) fn buffer(&self) -> &Arc<ExtentBuffer> {
        match self {
            Self::Read(guard) => guard.buffer(),
            Self::Write(guard) => guard.buffer(),
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Write(_))
    }
}

/// Levels held by a search for modification. Dropping it unlocks them.
#[derive(Default)]
pub(crate) struct Path {
    nodes: [Option<NodeGuard>; LEVELS],
    pub(crate) slots: [usize; LEVELS],
    /// The key by which what follows the path's leaf is found, or a smaller one behind the leaf's range; none when that is the tree's last.
    pub(crate) behind: Option<Key>,
}

impl Path {
    pub(crate) fn set(&mut self, level: usize, guard: NodeGuard) {
        self.nodes[level] = Some(guard);
    }

    pub(crate) fn holds(&self, level: usize) -> bool {
        level < LEVELS && self.nodes[level].is_some()
    }

    pub(crate) fn holds_write(&self, level: usize) -> bool {
        level < LEVELS && self.nodes[level].as_ref().is_some_and(NodeGuard::is_write)
    }

    pub(crate) fn node(&self, level: usize) -> &NodeGuard {
        self.nodes[level].as_ref().expect("the path holds this level")
    }

    pub(crate) fn block(&self, level: usize) -> BlockRef<'_> {
        self.node(level).block()
    }

    /// The write guard of a level; our own bug if it is not one.
    pub(crate) fn write(&mut self, level: usize) -> &mut WriteGuard {
        match self.nodes[level].as_mut() {
            Some(NodeGuard::Write(guard)) => guard,
            Some(NodeGuard::Read(_)) => panic!("level {level} of the path is locked for reading only"),
            None => panic!("level {level} of the path is not locked"),
        }
    }

    pub(crate) fn block_mut(&mut self, level: usize) -> BlockMut<'_> {
        self.write(level).block_mut()
    }

    /// What the path leads to at `level` was chosen: the key of the slot behind, if there is one, ends it.
    pub(crate) fn note_behind(&mut self, level: usize) {
        let behind = self.slots[level] + 1;
        if behind < self.block(level).count() {
            self.behind = Some(self.block(level).key(behind));
        }
    }

    pub(crate) fn take(&mut self, level: usize) -> NodeGuard {
        self.nodes[level].take().expect("the path holds this level")
    }

    /// Lets go of `level` and everything above.
    pub(crate) fn release_from(&mut self, level: usize) {
        for node in self.nodes.iter_mut().skip(level).rev() {
            *node = None;
        }
    }

    /// Lets go of the levels that nothing at `level` or below can need any more. Where a first key becomes smaller (`lowers`), a change at slot 0
    /// of a node changes the parent, too, so such a node keeps it. Levels below `lowest` stay.
    pub(crate) fn unlock_up(&mut self, level: usize, lowest: usize, lowers: bool) {
        let mut keep = level;
        while lowers && self.holds(keep) && self.slots[keep] == 0 {
            keep += 1;
        }
        self.release_from(lowest.max(keep + 1));
    }

    /// Whether `key` is smaller than the key by which the parent finds the leaf.
    pub(crate) fn is_below_low_key(&self, key: &Key) -> bool {
        self.holds(1) && *key < self.block(1).key(self.slots[1])
    }
}
