//! Changing a file's size.
//!
//! Shrinking drops items from the end of the file backwards. Each handle drops a bounded number and lowers the size to where it
//! got, so that after a crash the file is one that was truncated less far: no item is left past the end, and no orphan item is
//! needed to find it again. The last handle writes the sector that contains the new end with zeros past it. When a full filesystem
//! has no sector for that, the size changes all the same: growing checks the tail before it trusts it (DATA-4).
//!
//! Growing is in `grow`.

use creamery_base::{ErrorKind, Generation, Result, Wait};
use creamery_txn::{Handle, ReserveItems};

use super::drop_extents::DropPlan;
use super::grow::grow;
use super::tail::{Tail, rewrite_last_sector, tail_of};
use super::{NO_EXTENTS, ReserveSource, change_alone, inline, read, recount, reserve, update};
use crate::inode::FILE_SIZE_MAX;
use crate::inode::file_state::ExtentsSeen;
use crate::inode::{FileInode, InodeFlags, InodeItem};
use crate::operation::in_handle;

/// Makes `size` the file's size. When it is that already, preallocated space past the end goes.
/// Errors: file too large; no space; those of reading, where a sector is cut; aborted. A long change
/// that makes the file shorter and fails on the way leaves a size between the old and the new one.
pub(crate) fn truncate(inode: &FileInode<'_>, item: &mut InodeItem, size: u64) -> Result<()> {
    if size > FILE_SIZE_MAX {
        return Err(ErrorKind::FileTooLarge.into());
    }
    match size.cmp(&item.size) {
        std::cmp::Ordering::Equal if !item.flags.contains(InodeFlags::PREALLOC) => Ok(()),
        std::cmp::Ordering::Greater => grow(inode, item, size),
        std::cmp::Ordering::Equal | std::cmp::Ordering::Less => shrink(inode, item, size),
    }
}

fn shrink(inode: &FileInode<'_>, item: &mut InodeItem, size: u64) -> Result<()> {
    let engine = inode.engine();
    let sector = u64::from(engine.sector_size());
    let keep = size.next_multiple_of(sector);
    let tail = tail_of(inode, size, sector)?;
    drop_from_back(inode, item, keep, (tail == Tail::Nothing).then_some(size))?;
    if tail == Tail::Nothing {
        return Ok(());
    }
    if tail == Tail::Inline && size <= inline::len_max(inode.context(), inode.tree()) {
        let mut content = vec![0; usize::try_from(size).expect("an inline extent fits in memory")];
        read(inode, item, 0, &mut content, Wait::Yes)?;
        return inline::rewrite(inode, item, &content);
    }
    match rewrite_last_sector(&mut ReserveSource::Operation, inode, item, size) {
        Err(error) if error.kind().is_no_room() => {
            in_handle(engine, ReserveItems::freeing(1).of(inode.id.subvolume), |handle| {
                inode.change_extents(handle, |locked| {
                    update(locked, NO_EXTENTS, item, |item| item.size = size)
                })
            })
        }
        result => result,
    }
}

/// Gives up the space set aside past `size`. The file was larger in memory alone, is cut to `size`, and is smaller in the tree.
/// Errors: those of [`truncate`].
pub(crate) fn drop_behind(inode: &FileInode<'_>, item: &mut InodeItem, size: u64) -> Result<()> {
    if !item.flags.contains(InodeFlags::PREALLOC) {
        return Ok(());
    }
    let sector = u64::from(inode.engine().sector_size());
    drop_from_back(inode, item, size.next_multiple_of(sector), None)
}

/// Drops everything from `keep` on, from the end of the file backwards; the last handle makes `finish` its size, if that is given.
fn drop_from_back(inode: &FileInode<'_>, item: &mut InodeItem, keep: u64, finish: Option<u64>) -> Result<()> {
    let mut most = reserve::DROP_EDITS_MAX;
    loop {
        let seen = inode.extents_seen();
        let plan = back_plan(inode, keep, most)?;
        let done = plan.start == keep;
        let finish = finish.filter(|_| done);
        if !plan.is_empty() || finish.is_some() {
            let units = ReserveItems::freeing(reserve::drop_units(&plan) + 1).of(inode.id.subvolume);
            let applied = in_handle(inode.engine(), units, |handle| {
                let size = finish.unwrap_or_else(|| item.size.min(plan.start));
                apply(handle, inode, item, (&plan, seen), size)
            });
            match applied {
                Err(error) if error.kind() == ErrorKind::NoSpace && most > reserve::DROP_EDITS_WHEN_FULL => {
                    most = reserve::DROP_EDITS_WHEN_FULL;
                    continue;
                }
                other => other?,
            }
        }
        if done {
            return Ok(());
        }
    }
}

fn back_plan(inode: &FileInode<'_>, start: u64, most: usize) -> Result<DropPlan> {
    let sector = u64::from(inode.engine().sector_size());
    DropPlan::from_back(inode.tree(), inode.id.ino, start, most, sector)
}

fn apply(
    handle: &Handle<'_>,
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    (plan, seen): (&DropPlan, ExtentsSeen),
    size: u64,
) -> Result<()> {
    change_alone(inode, handle, seen, |locked| {
        plan.apply(handle, inode.tree(), inode.id, None)?;
        update(locked, (plan.start, u64::MAX), item, |item| {
            item.nbytes = recount(item.nbytes, plan.bytes, 0);
            item.size = size;
        })
    })
}

/// Drops the last `most` extents of an inode that is going away, in one handle. Returns the transaction that did; `None` when there
/// was no data left. The next step of the deletion, after a crash too, begins with this again (ORPHAN-2).
pub(crate) fn drop_last(
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    most: usize,
) -> Result<Option<Generation>> {
    let seen = inode.extents_seen();
    let plan = back_plan(inode, 0, most)?;
    if plan.is_empty() {
        return Ok(None);
    }
    let units = ReserveItems::reclaiming(reserve::drop_units(&plan) + 1).of(inode.id.subvolume);
    in_handle(inode.engine(), units, |handle| {
        let size = item.size.min(plan.start);
        apply(handle, inode, item, (&plan, seen), size).map(|()| Some(handle.generation()))
    })
}
