//! Preallocation: space for later data.
//!
//! The holes of a range become prealloc: file extent items that have space and read as zeros. Existing data and prealloc stay. All
//! the space is allocated before anything changes, so that a filesystem without enough space leaves the file as it was. Items are
//! made from the front on. Items past the file's end are legal, and the file grows over them in the end, unless it has to keep its
//! size.
//!
//! A file whose data is inline gets an extent first when the range goes past its end: inline data is alone in its file.
//!
//! # Invariants
//! - PREALLOC-1: the range reads as before, and as zeros where the file grew.
//!   Shown by `random_changes_read_back_as_a_vector_of_bytes`.
//! - PREALLOC-2: a range for which there is not enough space changes nothing and loses nothing.
//!   Shown by `a_range_that_does_not_fit_changes_nothing_and_gives_all_space_back`.

use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_txn::ReserveItems;

use super::completion::Completion;
use super::extent_map::{ExtentKind, ExtentMap, ExtentMaps};
use super::grow::fill_gap;
use super::ordered_extent::{OrderedExtent, SizeAfter};
use super::tail::settle_tail;
use super::{NO_EXTENTS, ReserveSource, update};
use crate::inode::{FileInode, InodeItem};
use crate::operation::in_handle;

/// Gives `[offset, end)`, which is not empty, space; `size` is the least size of the file after that.
/// Errors: no space; those of reading, where a sector is written anew; aborted.
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

/// The stretches that `choose` returns for the extent maps of `range`; adjacent ones are joined.
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
    // An impossible request fails at once: a search would take all space for a while.
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

/// Makes `space` part of the file, which has no gap from `start` on then, and `size` its least size, in the end (GROW-1).
pub(crate) fn complete(
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    space: Vec<OrderedExtent>,
    start: u64,
    size: u64,
) -> Result<()> {
    if size > item.size {
        fill_gap(&mut ReserveSource::Operation, inode, item, start)?;
    }
    let nothing_new = space.is_empty();
    for ordered in space {
        let behalf = &mut ReserveSource::Operation;
        ordered.complete(&mut Completion::new(behalf, inode, item, &mut 0), SizeAfter::AtLeast(0))?;
    }
    if nothing_new || size > item.size {
        in_handle(inode.engine(), ReserveItems::items(1).of(inode.id.subvolume), |handle| {
            inode.change_extents(handle, |locked| {
                update(locked, NO_EXTENTS, item, |item| item.size = item.size.max(size))
            })
        })?;
    }
    Ok(())
}
