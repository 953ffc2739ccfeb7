//! Zeroing a range: whole sectors become prealloc, so that they read as zeros and keep space of their own.
//!
//! Holes become prealloc as by preallocation, to whole sectors; prealloc stays; data in whole sectors is replaced by new prealloc;
//! data in the sectors that the range covers in part is written anew with zeros there.
//!
//! # Invariants
//! - ZERO-1: the range reads as zeros, the file as before everywhere else.
//!   Shown by `random_changes_read_back_as_a_vector_of_bytes`.

use creamery_base::Result;

use super::edges::zero_edges;
use super::extent_map::ExtentKind;
use super::prealloc::{allocate, complete, stretches};
use super::tail::settle_tail;
use crate::inode::{FileInode, InodeItem};

/// Makes `[offset, end)`, which is not empty, zeros; `size` is the least size of the file after that.
/// Errors: no space; those of reading, where a sector is written in part; aborted.
pub(crate) fn zero_range(
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
    let whole = (range.0.next_multiple_of(sector), range.1 - range.1 % sector);
    let stretches = stretches(inode, wide, |map| match map.kind {
        ExtentKind::Hole => Some((map.start, map.end)),
        ExtentKind::Prealloc => None,
        ExtentKind::Inline | ExtentKind::Data(_) | ExtentKind::Compressed(_) => {
            Some((map.start.max(whole.0), map.end.min(whole.1)))
        }
    })?;
    let space = allocate(inode, &stretches)?;
    zero_edges(inode, item, range)?;
    complete(inode, item, space, wide.0, size)
}
