//! How much metadata space the steps of a change need.
//!
//! A unit is one leaf that a handle may change. Every item edited in the subvolume's tree is one unit. A reference
//! of an extent queued is one unit: it becomes one change of the extent tree when refs run; the free space that
//! follows from a last reference, and the csum items that go with it, are counted by the transaction where it
//! runs refs. New csums are one unit per leaf they fill, and one for the leaf where they begin.

use creamery_txn::{Engine, Units};

use super::drop_extents::DropPlan;

/// Items dropped in one handle at most. A larger number makes fewer handles of a long deletion, a smaller one lets
/// a nearly full filesystem go on.
pub(crate) const DROP_EDITS_MAX: usize = 64;
/// Hole items inserted in one handle at most.
pub(crate) const HOLES_MAX: usize = 16;

fn count(number: usize) -> u32 {
    u32::try_from(number).expect("bounded by the constants of this file")
}

/// For carrying out `plan`.
pub(crate) fn drop_units(plan: &DropPlan) -> u32 {
    let (items, references) = plan.changes();
    count(items + references)
}

/// For completing an extent whose packed csums are `csums` bytes: its file extent item, its reference, its csums
/// and the inode item.
pub(crate) fn complete_units(engine: &Engine, csums: usize) -> u32 {
    // Half a leaf: insertions in order fill leaves at least that much.
    let leaf = engine.node_size() as usize / 2;
    3 + count(csums.div_ceil(leaf)) + u32::from(csums > 0)
}

/// For a change of one item and the inode item.
pub(crate) const ONE_ITEM: Units = Units::items(2);
