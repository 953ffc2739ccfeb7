//! A path: the blocks that a search for modification holds, from the leaf up, with the slot chosen in each.
//!
//! # Invariants
//! - PATH-1: a path holds a block at the block's own level.
//! - PATH-2: below a block that is locked for writing, a path holds blocks that are locked for writing: a change climbs from the leaf as far as it has locks for.

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
    /// The key by which the leaf after the path's leaf is found, or a smaller one behind the leaf's range; `None` if the leaf is the tree's last.
    pub(crate) behind: Option<Key>,
}

impl Path {
    /// Takes a block at `level`.
    ///
    /// # Panics
    /// When it is of another level (PATH-1), or locked for reading below one that is locked for writing (PATH-2).
    pub(crate) fn set(&mut self, level: usize, guard: NodeGuard) {
        assert!(usize::from(guard.buffer().level()) == level, "PATH-1: a block is at its own level");
        assert!(
            guard.is_write() || !self.holds_write(level + 1),
            "PATH-2: a block is locked for reading below one that is locked for writing"
        );
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

    /// Returns the write guard of a level. Panics, as a bug of the caller, if the level has none.
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

    /// Notes that the slot at `level` is chosen: the key of the next slot, if there is one, ends the path's range.
    pub(crate) fn note_behind(&mut self, level: usize) {
        let behind = self.slots[level] + 1;
        if behind < self.block(level).count() {
            self.behind = Some(self.block(level).key(behind));
        }
    }

    pub(crate) fn take(&mut self, level: usize) -> NodeGuard {
        self.nodes[level].take().expect("the path holds this level")
    }

    /// Unlocks `level` and everything above.
    pub(crate) fn release_from(&mut self, level: usize) {
        for node in self.nodes.iter_mut().skip(level).rev() {
            *node = None;
        }
    }

    /// Unlocks the levels that no change at `level` or below can need any more. If a first key may become smaller (`lowers`), a change at slot 0
    /// of a node changes the parent, too, so such a node keeps its parent locked. Levels below `lowest` stay.
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

#[cfg(test)]
mod tests {
    use creamery_base::lock::{HeldNote, LockPosition, rank};
    use creamery_base::{Logical, Wait};
    use creamery_device::AlignedBuffer;

    use super::*;
    use crate::watch::Watch;

    fn block(level: u8) -> Arc<ExtentBuffer> {
        let (at, bytes) = (Logical::new(1 << 20), AlignedBuffer::zeroed(4096));
        Arc::new(ExtentBuffer::dirty(at, level, bytes, Arc::new(Watch::default())))
    }

    fn read(level: u8) -> NodeGuard {
        let held = HeldNote::tried(LockPosition::of(rank::NODE));
        NodeGuard::Read(block(level).lock_shared(held, Wait::No).expect("it is free"))
    }

    fn write(level: u8) -> NodeGuard {
        let held = HeldNote::tried(LockPosition::of(rank::NODE));
        NodeGuard::Write(block(level).try_write(held).expect("it is free"))
    }

    #[test]
    fn a_path_takes_blocks_from_the_root_down() {
        let mut path = Path::default();
        path.set(2, read(2));
        path.set(1, write(1));
        path.set(0, write(0));
        assert!(path.holds_write(0) && path.holds_write(1) && !path.holds_write(2));
    }

    #[test]
    #[should_panic(expected = "PATH-1")]
    fn a_block_at_another_level_is_a_bug() {
        Path::default().set(1, write(0));
    }

    #[test]
    #[should_panic(expected = "PATH-2")]
    fn a_block_locked_for_reading_below_one_locked_for_writing_is_a_bug() {
        let mut path = Path::default();
        path.set(1, write(1));
        path.set(0, read(0));
    }
}
