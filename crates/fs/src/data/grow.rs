//! Growing a file: no data is made, holes appear, as items where the filesystem wants them.
//!
//! A file with very many gaps behind its end gets their items in several handles, and its size with the last of them.
//!
//! # Invariants
//! - GROW-1: a growth that fails for lack of space leaves the file as long as it was.
//!   Shown by `what_finds_no_space_leaves_the_file_as_long_as_it_was`.

use creamery_base::{Result, Wait};
use creamery_txn::ReserveItems;

use super::holes::HolePlan;
use super::tail::settle_tail;
use super::{ReserveSource, change_alone, inline, read, update_for};
use crate::inode::{FileInode, InodeItem};
use crate::operation::finish;

/// Makes `size`, which is more than it was, the file's size.
/// Errors: no space; those of reading, where a sector is written anew; aborted.
pub(crate) fn grow(inode: &FileInode<'_>, item: &mut InodeItem, size: u64) -> Result<()> {
    let sector = u64::from(inode.engine().sector_size());
    if item.size > 0
        && item.nbytes > 0
        && size <= inline::len_max(inode.context(), inode.tree())
        && inline::possible(inode.tree(), inode.id.ino, sector)?
    {
        let mut content = vec![0; usize::try_from(size).expect("an inline extent fits in memory")];
        read(inode, item, 0, &mut content, Wait::Yes)?;
        return inline::rewrite(inode, item, &content);
    }
    settle_tail(inode, item)?;
    let (mut at, end) = (item.size.next_multiple_of(sector), size.next_multiple_of(sector));
    loop {
        at = fill_step(&mut ReserveSource::Operation, inode, item, (at, end), size)?;
        if at == end {
            return Ok(());
        }
    }
}

/// Fills the gap between the end of the file, whose last sector is settled for it, and `end`, a multiple of the sector size. The
/// file keeps its size: the data that follows gives it a new one, if there is space for it.
/// Errors: no space; aborted.
pub(crate) fn fill_gap(
    behalf: &mut ReserveSource<'_>,
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    end: u64,
) -> Result<()> {
    let size = item.size;
    let mut at = size.next_multiple_of(inode.engine().sector_size().into());
    while at < end {
        at = fill_step(behalf, inode, item, (at, end), size)?;
    }
    Ok(())
}

/// Fills the part of a gap that one handle can fill, from its front on, and makes `size` the file's when that is all. Returns where
/// it stopped.
fn fill_step(
    behalf: &mut ReserveSource<'_>,
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    (start, end): (u64, u64),
    size: u64,
) -> Result<u64> {
    let seen = inode.extents_seen();
    let holes = HolePlan::new(inode, start, end)?;
    let size = if holes.stop == end { size } else { item.size };
    if holes.len() == 0 && size == item.size {
        return Ok(holes.stop);
    }
    let handle = behalf.start(inode, ReserveItems::items(holes.len() + 1))?;
    let done = change_alone(inode, &handle, seen, |locked| {
        holes.insert(&handle, inode.tree(), inode.id.ino)?;
        update_for(behalf, locked, (start, holes.stop), item, |item| item.size = size)
    });
    finish(handle, done)?;
    Ok(holes.stop)
}
