//! Punching a hole: whole sectors give their space back, the rest of the range becomes zeros.
//!
//! The sectors that the range covers in part are written anew first: a full filesystem may have no room for them, and then the file
//! is as it was. The items of whole sectors are dropped from the front on, a bounded number in each handle. Where the filesystem
//! wants an item for every hole, one takes their place below the end of the file. Prealloc past the end goes as well. The size
//! stays.
//!
//! # Invariants
//! - PUNCH-1: the range reads as zeros, the file as before everywhere else.
//!   Shown by `random_changes_read_back_as_a_vector_of_bytes`.

use creamery_base::{ErrorKind, Result};
use creamery_format::Incompat;
use creamery_format::file_extent::encode_hole;
use creamery_txn::ReserveItems;

use super::drop_extents::DropPlan;
use super::edges::zero_edges;
use super::{change_alone, recount, reserve, update};
use crate::inode::file_state::ExtentsSeen;
use crate::inode::{FileInode, InodeItem};
use crate::keys::extent_data;
use crate::operation::in_handle;

/// Makes `[offset, end)`, which is not empty, a hole. Nothing changes where it is one already, or past the end.
/// Errors: no space; those of reading, where a sector is written in part; aborted. Zeros may be at its ends then, or instead of its
/// front.
pub(crate) fn punch_hole(inode: &FileInode<'_>, item: &mut InodeItem, range: (u64, u64)) -> Result<()> {
    zero_edges(inode, item, range)?;
    let sector = u64::from(inode.engine().sector_size());
    let (mut at, end) = (range.0.next_multiple_of(sector), range.1 - range.1 % sector);
    let mut most = reserve::DROP_EDITS_MAX;
    while at < end {
        let seen = inode.extents_seen();
        let plan = DropPlan::from_front(inode.tree(), inode.id.ino, (at, end), most, sector)?;
        // Otherwise there is nothing but holes.
        if plan.bytes > 0 {
            match drop_step(inode, item, (&plan, seen)) {
                Err(error) if error.kind() == ErrorKind::NoSpace && most > reserve::DROP_EDITS_WHEN_FULL => {
                    most = reserve::DROP_EDITS_WHEN_FULL;
                    continue;
                }
                other => other?,
            }
        }
        at = plan.stop;
    }
    Ok(())
}

/// Drops the items of `plan`, in one handle.
fn drop_step(
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    (plan, seen): (&DropPlan, ExtentsSeen),
) -> Result<()> {
    let engine = inode.engine();
    let explicit = !engine.incompat().contains(Incompat::NO_HOLES);
    let below = plan.stop.min(item.size.next_multiple_of(engine.sector_size().into()));
    let hole = (explicit && plan.start < below).then(|| below - plan.start);
    let units = ReserveItems::freeing(reserve::drop_units(plan) + 1 + u32::from(hole.is_some()));
    in_handle(engine, units.of(inode.id.subvolume), |handle| {
        change_alone(inode, handle, seen, |locked| {
            plan.apply(handle, inode.tree(), inode.id, hole.map(|_| plan.start))?;
            if let Some(len) = hole {
                let bytes = encode_hole(handle.generation(), len);
                inode.tree().upsert(handle, &extent_data(inode.id.ino, plan.start), &bytes)?;
            }
            update(locked, (plan.start, plan.stop), item, |item| {
                item.nbytes = recount(item.nbytes, plan.bytes, 0)
            })
        })
    })
}
