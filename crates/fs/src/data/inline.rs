//! Inline extents: a small file's bytes in the tree itself.
//!
//! A file is stored inline while all of it fits and it has nothing else: no extent, no hole past the first sector. It stays inline
//! as it is rewritten and grows, up to the limit; then its first sector becomes an extent like any other. A file that has an extent
//! once does not become inline again. A file with packed bytes may have a whole sector of them (`packing`).

use creamery_base::{ObjectId, Result, Wait};
use creamery_format::file_extent::{FileExtentItem, INLINE_HEADER, encode_inline, encode_packed_inline};
use creamery_tree::Tree;
use creamery_txn::ReserveItems;

use super::drop_extents::DropPlan;
use super::extent_map::ExtentItems;
use super::packed::Packed;
use super::{ReserveSource, change_alone, recount, reserve, update_for};
use crate::compression;
use crate::context::Context;
use crate::inode::{FileInode, InodeItem};
use crate::keys::extent_data;
use crate::operation::finish;

/// The largest file that is stored inline: within the mount option, shorter than a sector, and fitting in a leaf.
pub(crate) fn len_max(context: &Context, tree: &Tree) -> u64 {
    let leaf = tree.max_item_size().saturating_sub(INLINE_HEADER) as u64;
    context.policy().max_inline.min(u64::from(context.engine().sector_size()) - 1).min(leaf)
}

/// Whether the file has nothing that keeps it from being inline: no item at all, or one in the first sector that is
/// inline or a hole.
pub(crate) fn possible(tree: &Tree, ino: ObjectId, sector: u64) -> Result<bool> {
    let mut items = ExtentItems::new(tree, ino, (0, u64::MAX), sector, Wait::Yes)?;
    let Some(item) = items.next()? else { return Ok(true) };
    let small = matches!(item.extent, FileExtentItem::Inline { .. } | FileExtentItem::Hole { .. });
    Ok(small && item.end <= sector && items.next()?.is_none())
}

/// Makes `content` the whole of a file for which [`possible`] holds. One handle.
/// Errors: no space; aborted.
pub(crate) fn rewrite(inode: &FileInode<'_>, item: &mut InodeItem, content: &[u8]) -> Result<()> {
    rewrite_for(&mut ReserveSource::Operation, inode, item, content, None)
}

/// Makes `content` the whole of a file for which [`possible`] holds, for `behalf`; packed, if it was.
pub(crate) fn rewrite_for(
    behalf: &mut ReserveSource<'_>,
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    content: &[u8],
    packed: Option<&Packed>,
) -> Result<()> {
    let engine = inode.engine();
    assert!(!content.is_empty());
    let sector = u64::from(engine.sector_size());
    let seen = inode.extents_seen();
    let plan = DropPlan::from_front(inode.tree(), inode.id.ino, (0, sector), 2, sector)?;
    assert_eq!(plan.stop, sector, "at most one item is in the way");
    let count = reserve::drop_units(&plan) + 2;
    let shrinks = (content.len() as u64) < item.size;
    let units = if shrinks { ReserveItems::freeing(count) } else { ReserveItems::items(count) };
    let handle = behalf.start(inode, units)?;
    let done = change_alone(inode, &handle, seen, |locked| {
        plan.apply(&handle, inode.tree(), inode.id, Some(0))?;
        let bytes = match packed {
            Some(Packed { bytes, compression }) => {
                handle.add_incompat(compression::incompat(*compression));
                encode_packed_inline(handle.generation(), content.len() as u64, *compression, bytes)
            }
            None => encode_inline(handle.generation(), content),
        };
        inode.tree().upsert(&handle, &extent_data(inode.id.ino, 0), &bytes)?;
        update_for(behalf, locked, (0, sector), item, |item| {
            item.nbytes = recount(item.nbytes, plan.bytes, content.len() as u64);
            item.size = content.len() as u64;
        })?;
        behalf.completed(inode, sector);
        Ok(())
    });
    finish(handle, done)
}
