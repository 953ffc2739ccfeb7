//! The metadata space that the steps of a change need.
//!
//! A unit is one leaf that a handle may change, with all the blocks above it copied and split.
//! - An item edited in the subvolume's tree is one unit. Neighbours usually share a leaf; nothing guarantees it.
//! - A reference of an extent only joins a queue. The commit reserves the blocks of a unit for each queued reference, so a handle
//!   has to answer for it only until it ends: one unit.
//! - New csums are inserted at once: one unit for the leaf where they begin; the leaves they fill besides stand side
//!   by side, at least half full, under a path that is copied once, so the eight blocks of a unit are enough for
//!   four of them and the nodes above.
//!
//! A delayed or submitted write keeps room before it locks anything, when the extents that it will meet are unknown: [`keep`] keeps
//! enough for a usual case.

use creamery_base::{Result, TreeId};
use creamery_txn::{DelallocReservation, Engine};

use super::drop_extents::DropPlan;

/// Upper bound of the items dropped in one handle. More makes fewer handles of a long deletion; less lets a small filesystem, whose
/// metadata is a few megabytes, still reserve the space.
pub(crate) const DROP_EDITS_MAX: usize = 16;
/// Upper bound where a full filesystem has no room for [`DROP_EDITS_MAX`]: small enough for the room that only operations that free
/// space may take.
pub(crate) const DROP_EDITS_WHEN_FULL: usize = 4;
/// Changes of items that completing a run of new data takes, with the leaf of its first checksums.
pub(crate) const ITEMS_PER_RUN: u32 = 5;
/// Bytes of data whose checksums take one more item, at most; less where they are long or leaves small.
const BYTES_PER_CSUM_ITEM: u64 = 8 << 20;
/// Upper bound of the hole items inserted in one handle.
pub(crate) const HOLES_MAX: usize = 16;

fn count(number: usize) -> u32 {
    u32::try_from(number).expect("bounded by the constants of this file")
}

/// Units for carrying out `plan`.
pub(crate) fn drop_units(plan: &DropPlan) -> u32 {
    let (items, references) = plan.changes();
    count(items + references)
}

/// Units for completing an extent whose packed csums are `csums` bytes: its file extent item, its reference, its csums and the
/// inode item.
pub(crate) fn complete_units(engine: &Engine, csums: usize) -> u32 {
    3 + count(csums.div_ceil(csum_bytes_per_unit(engine))) + u32::from(csums > 0)
}

/// Bytes of data whose checksums take one more unit.
fn data_per_csum_unit(engine: &Engine) -> u64 {
    let csums = csum_bytes_per_unit(engine) / engine.checksum_type().size();
    csums as u64 * u64::from(engine.sector_size())
}

fn csum_bytes_per_unit(engine: &Engine) -> usize {
    let half_leaf = engine.node_size() as usize / 2;
    4 * half_leaf
}

/// Bytes of data for whose checksums a delayed write keeps room for one more item.
pub(crate) fn data_per_csum_item(engine: &Engine) -> u64 {
    data_per_csum_unit(engine).min(BYTES_PER_CSUM_ITEM)
}

/// Keeps the room that a write of `len` bytes may need: its sectors, the one that the end of the file is in, and the items of two
/// runs.
/// Errors: a limit of the subvolume's quota groups is in the way.
pub(crate) fn keep(engine: &Engine, subvolume: TreeId, len: u64) -> Result<Option<DelallocReservation>> {
    let bytes = bytes_kept(engine, len);
    engine.reserve_delalloc(subvolume, bytes, items_kept(engine, bytes))
}

/// Adds to the `room` of a [`keep`] for a write of `len` bytes until it covers `units` in all. False where there is not enough.
/// Errors: aborted.
pub(crate) fn keep_for_units(
    engine: &Engine,
    subvolume: TreeId,
    room: &mut DelallocReservation,
    len: u64,
    units: u32,
) -> Result<bool> {
    let more = units.saturating_sub(items_kept(engine, bytes_kept(engine, len)));
    if more == 0 {
        return Ok(true);
    }
    let more = engine.reserve_delalloc(subvolume, 0, more)?;
    Ok(more.map(|more| room.add(more)).is_some())
}

/// Bytes of data that a write of `len` keeps room for.
fn bytes_kept(engine: &Engine, len: u64) -> u64 {
    let sector = u64::from(engine.sector_size());
    len.next_multiple_of(sector) + 2 * sector
}

/// Changes of items that a write of so many bytes keeps room for.
pub(crate) fn items_kept(engine: &Engine, bytes: u64) -> u32 {
    let csums = u32::try_from(bytes / data_per_csum_item(engine) + 1).expect("a write fits in memory");
    2 * ITEMS_PER_RUN + csums
}
