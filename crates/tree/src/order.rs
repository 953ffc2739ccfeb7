//! The order in which a thread locks tree blocks: class of the tree, then from the root down, then the block on the way before
//! the one beside it.
//!
//! Two trees meet in one thread when a block that may be shared is copied: its references are looked up in the extent tree, with
//! blocks of the file tree locked. So the extent tree has a rank of its own, behind what is said of extents that are not in
//! it yet (`REF_HEAD`), and nothing is looked up in another tree from there. So has the checksum tree.
//!
//! Siblings lie to either side, and both orders occur. They cannot meet: who locks a sibling has their parent locked for
//! writing, and everybody else comes by that parent, or by a finger, which locks one leaf and waits for no second one.
//!
//! # Invariants
//! - ORDER-1: blocks are waited for in this order (LOCK-1). A block that was just made is exempt: nobody else knows it.

use creamery_base::lock::{Held, Place, rank};
use creamery_base::{TreeId, Wait};
use creamery_format::LEVEL_MAX;

use crate::tree::Tree;

/// Which block of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The one on the way down.
    OnTheWay,
    /// Its neighbour below the same parent.
    Beside,
}

fn place(tree: TreeId, level: u8, side: Side) -> Place {
    let rank = match tree {
        TreeId::EXTENT => rank::EXTENT_NODE,
        TreeId::CSUM => rank::CSUM_NODE,
        _ => rank::NODE,
    };
    let depth = u128::from(LEVEL_MAX.saturating_sub(level));
    Place::within(rank, depth << 8 | u128::from(side == Side::Beside))
}

impl Tree {
    /// Before locking a block of this tree at `level`.
    pub(crate) fn hold(&self, level: u8, side: Side, wait: Wait) -> Held {
        Held::before(place(self.id(), level, side), wait)
    }

    /// The place of a block on the way down.
    pub(crate) fn place_on_the_way(&self, level: u8) -> Place {
        place(self.id(), level, Side::OnTheWay)
    }

    /// For a block that was just made.
    pub(crate) fn hold_new(&self, level: u8) -> Held {
        Held::tried(place(self.id(), level, Side::OnTheWay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_then_levels_then_sides() {
        let order = [
            place(TreeId::FS, 1, Side::OnTheWay),
            place(TreeId::FS, 1, Side::Beside),
            place(TreeId::FS, 0, Side::OnTheWay),
            place(TreeId::FS, 0, Side::Beside),
            place(TreeId::EXTENT, LEVEL_MAX, Side::OnTheWay),
            place(TreeId::EXTENT, 0, Side::OnTheWay),
        ];
        assert!(order.is_sorted_by(|earlier, later| earlier < later));
    }
}
