//! Growing a file: no data is made, holes appear, as items where the filesystem wants them.

use creamery_base::{Result, Wait};
use creamery_txn::Units;

use super::holes::HolePlan;
use super::tail::settle_tail;
use super::{Behalf, change_alone, inline, read, update_for};
use crate::inode::{Inode, InodeItem};
use crate::operation::finish;

/// Makes `size`, which is more than it was, the file's size. One handle for each few holes.
/// Errors: no space; what reading can fail with, where a sector is written anew; aborted. A file with very many holes may have
/// grown part of the way.
pub(crate) fn grow(inode: &Inode, item: &mut InodeItem, size: u64) -> Result<()> {
    let sector = u64::from(inode.engine().sector_size());
    if item.size > 0
        && item.nbytes > 0
        && size <= inline::len_max(inode.engine(), inode.tree())
        && inline::possible(inode.tree(), inode.id.ino, sector)?
    {
        let mut content = vec![0; usize::try_from(size).expect("an inline extent fits in memory")];
        read(inode, item, 0, &mut content, Wait::Yes)?;
        return inline::rewrite(inode, item, &content);
    }
    settle_tail(inode, item)?;
    grow_for(&mut Behalf::Operation, inode, item, size)
}

/// The same on behalf of somebody, of a file whose last sector is fit for it.
pub(crate) fn grow_for(
    behalf: &mut Behalf<'_>,
    inode: &Inode,
    item: &mut InodeItem,
    size: u64,
) -> Result<()> {
    let engine = inode.engine();
    let sector = u64::from(engine.sector_size());
    let end = size.next_multiple_of(sector);
    while item.size < size {
        let from = item.size.next_multiple_of(sector);
        let seen = inode.extents_seen();
        let holes = HolePlan::new(inode, from, end)?;
        let handle = behalf.start(inode, Units::items(holes.len() + 1))?;
        let done = change_alone(inode, &handle, seen, |locked| {
            holes.insert(&handle, inode.tree(), inode.id.ino)?;
            update_for(behalf, locked, (from, holes.stop), item, |item| item.size = size.min(holes.stop))
        });
        finish(handle, done)?;
    }
    Ok(())
}
