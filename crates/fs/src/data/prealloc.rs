//! Preallocation: space for data that is still to come.
//!
//! The holes of a range become prealloc: file extent items that have space and read as zeros. What is there already, data or
//! prealloc, stays. All the space is allocated before anything changes, so that a filesystem which has not enough leaves the
//! file as it was. Items are made from the front on; items behind the file's end are legal, and it grows over them in the end,
//! unless it is to keep its size.
//!
//! A file whose data is inline gets an extent first when the range goes beyond its end: inline data is alone.
//!
//! # Invariants
//! - PREALLOC-1: what the range read as before, it reads as after, and zeros where the file grew.
//!   Shown by `random_changes_read_back_as_a_vector_of_bytes`.
//! - PREALLOC-2: a range for which there is not enough space changes nothing and loses nothing.
//!   Shown by `a_range_that_does_not_fit_changes_nothing_and_gives_all_space_back`.

use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_txn::Units;

use super::completion::Completion;
use super::extent_map::{ExtentKind, ExtentMap, ExtentMaps};
use super::grow::fill_gap;
use super::ordered_extent::{NewSize, OrderedExtent};
use super::tail::settle_tail;
use super::{Behalf, NO_EXTENTS, update};
use crate::inode::{FileInode, InodeItem};
use crate::operation::in_handle;

/// Has space for `[offset, end)`, which is not empty; `size` is what the file has at least after that.
/// Errors: no space; what reading can fail with, where a sector is written anew; aborted.
pub(crate) fn prealloc(
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    range: (u64, u64),
    size: u64,
) -> Result<()> {
    let sector = u64::from(inode.engine().sector_size());
    if range.1 > item.size {
        settle_tail(inode, item)?;
    }
    let wide = (range.0 - range.0 % sector, range.1.next_multiple_of(sector));
    let gaps = stretches(inode, wide, |map| (map.kind == ExtentKind::Hole).then_some((map.start, map.end)))?;
    let space = allocate(inode, &gaps)?;
    complete(inode, item, space, wide.0, size)
}

/// The stretches of `range` that `choose` takes of its extent maps; those that touch are one.
pub(crate) fn stretches(
    inode: &FileInode<'_>,
    range: (u64, u64),
    choose: impl Fn(&ExtentMap) -> Option<(u64, u64)>,
) -> Result<Vec<(u64, u64)>> {
    let sector = u64::from(inode.engine().sector_size());
    let mut found: Vec<(u64, u64)> = Vec::new();
    let mut maps = ExtentMaps::new(inode.tree(), inode.id.ino, range, sector, Wait::Yes)?;
    while let Some(map) = maps.next()? {
        match (choose(&map).filter(|(start, end)| start < end), found.last_mut()) {
            (Some((start, end)), Some(last)) if last.1 == start => last.1 = end,
            (Some(stretch), _) => found.push(stretch),
            (None, _) => {}
        }
    }
    Ok(found)
}

/// Space for all of `stretches`. Errors: no space for all of them (PREALLOC-2).
pub(crate) fn allocate(inode: &FileInode<'_>, stretches: &[(u64, u64)]) -> Result<Vec<OrderedExtent>> {
    let engine = inode.engine();
    let wanted = stretches.iter().fold(0_u64, |sum, (start, end)| sum.saturating_add(end - start));
    // What can never be had is not looked for: that would take all there is, for a while.
    if wanted > engine.space().total {
        return Err(Error::new(ErrorKind::NoSpace, format!("preallocating {wanted} bytes")));
    }
    let mut space = Vec::new();
    for &(start, end) in stretches {
        let mut at = start;
        while at < end {
            let ordered = OrderedExtent::preallocate(inode, at, end - at)?;
            at = ordered.end();
            space.push(ordered);
        }
    }
    Ok(space)
}

/// Makes `space` part of the file, in which nothing is missing from `start` on then, and `size` what it has at least, in the end
/// (GROW-1).
pub(crate) fn complete(
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    space: Vec<OrderedExtent>,
    start: u64,
    size: u64,
) -> Result<()> {
    if size > item.size {
        fill_gap(&mut Behalf::Operation, inode, item, start)?;
    }
    let nothing_new = space.is_empty();
    for ordered in space {
        let behalf = &mut Behalf::Operation;
        ordered.complete(&mut Completion::new(behalf, inode, item, &mut 0), NewSize::AtLeast(0))?;
    }
    if nothing_new || size > item.size {
        in_handle(inode.engine(), Units::items(1).of(inode.id.subvolume), |handle| {
            inode.change_extents(handle, |locked| {
                update(locked, NO_EXTENTS, item, |item| item.size = item.size.max(size))
            })
        })?;
    }
    Ok(())
}
