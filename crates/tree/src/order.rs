//! The order in which a thread locks tree blocks: first the class of the tree, then from the root down, then the block on the
//! way before the block beside it.
//!
//! A thread locks blocks of two trees when it copies a block that may be shared: it looks up the block's references in the extent
//! tree, with blocks of the file tree locked. So the extent tree has a rank of its own, behind that of the references not yet in
//! the tree (`REF_HEAD`), and a thread with that rank looks up nothing in another tree. The same holds for the checksum tree.
//!
//! Siblings lie to either side, and both orders occur. They cannot deadlock: a thread that locks a sibling has the parent locked for
//! writing. All other threads come through that parent, or by a finger, which locks one leaf and waits for no second one.
//!
//! # Invariants
//! - ORDER-1: a thread waits for blocks in this order (LOCK-1). A new block is exempt: no other thread knows it.
//!   Shown by `classes_then_levels_then_sides`, `waiting_for_an_earlier_place_is_a_bug`.

use creamery_base::lock::{HeldNote, LockPosition, rank};
use creamery_base::{TreeId, Wait};
use creamery_format::LEVEL_MAX;

use crate::tree::Tree;

/// The position of a block among those of its level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LevelPosition {
    /// The block on the way down.
    OnTheWay,
    /// Its neighbour below the same parent.
    Beside,
}

fn place(tree: TreeId, level: u8, side: LevelPosition) -> LockPosition {
    let rank = match tree {
        TreeId::EXTENT => rank::EXTENT_NODE,
        TreeId::CSUM => rank::CSUM_NODE,
        _ => rank::NODE,
    };
    let depth = u128::from(LEVEL_MAX.saturating_sub(level));
    LockPosition::within(rank, depth << 8 | u128::from(side == LevelPosition::Beside))
}

impl Tree {
    /// Notes a lock that this thread is about to take on a block of this tree at `level`.
    pub(crate) fn hold(&self, level: u8, side: LevelPosition, wait: Wait) -> HeldNote {
        HeldNote::before(place(self.id(), level, side), wait)
    }

    /// Returns the place of a block on the way down.
    pub(crate) fn place_on_the_way(&self, level: u8) -> LockPosition {
        place(self.id(), level, LevelPosition::OnTheWay)
    }

    /// Notes a lock on a new block.
    pub(crate) fn hold_new(&self, level: u8) -> HeldNote {
        HeldNote::tried(place(self.id(), level, LevelPosition::OnTheWay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_then_levels_then_sides() {
        let order = [
            place(TreeId::FS, 1, LevelPosition::OnTheWay),
            place(TreeId::FS, 1, LevelPosition::Beside),
            place(TreeId::FS, 0, LevelPosition::OnTheWay),
            place(TreeId::FS, 0, LevelPosition::Beside),
            place(TreeId::EXTENT, LEVEL_MAX, LevelPosition::OnTheWay),
            place(TreeId::EXTENT, 0, LevelPosition::OnTheWay),
        ];
        assert!(order.is_sorted_by(|earlier, later| earlier < later));
    }
}
