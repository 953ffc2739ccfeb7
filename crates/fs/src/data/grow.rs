//! Growing a file: no data is made, holes appear, as items where the filesystem wants them.

use creamery_base::{Result, Wait};
use creamery_txn::{Engine, Units};

use super::holes::HolePlan;
use super::tail::settle_tail;
use super::{inline, read, store};
use crate::inode::{Inode, InodeItem};
use crate::operation::in_handle;

/// Makes `size`, which is more than it was, the file's size. One handle for each few holes.
/// Errors: no space; what reading can fail with, where a sector is written anew; aborted. A file with very many holes may have
/// grown part of the way.
pub(crate) fn grow(engine: &Engine, inode: &Inode, item: &mut InodeItem, size: u64) -> Result<()> {
    let sector = u64::from(engine.sector_size());
    if item.size > 0
        && item.nbytes > 0
        && size <= inline::len_max(engine, inode.tree())
        && inline::possible(inode.tree(), inode.id.ino, sector)?
    {
        let mut content = vec![0; usize::try_from(size).expect("an inline extent fits in memory")];
        read(engine, inode, item, 0, &mut content, Wait::Yes)?;
        return inline::rewrite(engine, inode, item, &content);
    }
    settle_tail(engine, inode, item)?;
    let end = size.next_multiple_of(sector);
    while item.size < size {
        let from = item.size.next_multiple_of(sector);
        let holes = HolePlan::new(engine, inode.tree(), inode.id.ino, from, end)?;
        in_handle(engine, Units::items(holes.len() + 1), |handle| {
            holes.insert(handle, inode.tree(), inode.id.ino)?;
            let next = InodeItem { size: size.min(holes.stop), ..item.clone() };
            store(handle, inode, item, next)
        })?;
    }
    Ok(())
}
