//! File data: the bytes of a file, on disk and in the tree.
//!
//! # How it is divided
//! [`creamery_format::file_extent`] turns item bytes into checked values; `extent_map` turns items into extent maps without gaps,
//! and `read` stands on it. Changes are made of four parts:
//! - `ordered_extent` owns new data from the allocation of its space to the handle that makes it part of a file (`completion`).
//! - `drop_extents` makes room in the tree.
//! - `holes` fills gaps where the filesystem wants an item for every hole.
//! - `inline` keeps small files in the tree itself.
//!
//! The other modules stand on these:
//! - `tail` and `grow`, and on them `write` and `truncate`.
//! - `write_direct` does the work of `write` for whole sectors of a buffer that was given away. `prepared` does it in steps between
//!   which no thread waits. `content` does it for a file that is only just being made.
//! - `prealloc` sets space aside for later data. `nocow` decides whether data goes over existing extents, and `in_place` writes it
//!   there.
//! - `punch_hole` gives space back. `zero_range` gives back the space of data, and sets new space aside. `clone_range` gives a file
//!   the extents of another. `rewrite` gives data new space. `edges` are the sectors that a range has only a part of.
//!
//! # Invariants
//! - DATA-1: items of one file never overlap, and without NO_HOLES they leave no gap below the file's size.
//!   Shown by `random_changes_without_no_holes_read_back_as_a_vector_of_bytes`.
//! - DATA-2: every handle ends with a consistent file: items, nbytes, size and references agree, so a crash between
//!   two handles of a long operation leaves a file that is shorter, or older in part, but whole.
//!   Shown by `what_was_committed_survives_every_power_cut`.
//! - DATA-3: data is on its way to the device before the handle that refers to it begins, and the commit flushes the
//!   devices before it publishes that handle.
//! - DATA-4: all data written here is zero past the end of the file in its last sector. The last sector of another writer is
//!   checked before the file grows over it.
//!   Shown by `random_changes_read_back_as_a_vector_of_bytes`,
//!   `files_that_the_kernel_made_are_read_and_changed_and_their_snapshot_stays`.
//! - DATA-5: a plan is carried out on the items that it was made of.
//!   Shown by `writes_to_parts_of_one_extent_at_once_are_all_there`.
//! - DATA-6: a thread that reads items while others share the inode holds the items as they are meanwhile. Cutting an item in two
//!   takes two changes of the tree, and between them the part past the cut is in no item.
//!   Shown by `who_reads_beside_a_write_never_sees_it_half_done`, `writes_into_one_preallocated_extent_at_once_succeed`.
//!
//! # Locking
//! A reader has locked its range, in whole sectors. A writer has locked the inode besides: alone where the size changes or the file
//! is stored inline, shared where it overwrites existing data. `item` is the inode's item as the operation knows it: its size, its
//! flags and whether it has extents are those of the file until the operation changes them. Other threads that share the inode
//! change other items of extents, and the outer parts of items that cross its range. So a plan that was made of items is carried
//! out only if no thread changed any since (DATA-5). Before it starts a handle this module takes no other lock. While it has a
//! handle it reads no data, allocates nothing and does not wait.

mod clone_range;
mod compare;
mod completion;
mod compressed;
mod content;
mod data_source;
pub(crate) mod drop_extents;
mod edges;
pub(crate) mod extent_map;
mod grow;
mod holes;
mod in_place;
mod inline;
mod new_extent;
mod nocow;
mod one_extent;
mod ordered_extent;
mod packed;
mod packing;
mod prealloc;
mod prepared;
mod processors;
mod punch_hole;
mod read;
pub(crate) mod reserve;
mod reserve_source;
mod rewrite;
mod tail;
mod truncate;
mod write;
mod write_back;
mod write_direct;
mod zero_range;

#[cfg(test)]
pub(crate) mod tests;

use creamery_base::Result;
use creamery_txn::Handle;

use crate::inode::file::LockedExtents;
use crate::inode::file_state::ExtentsSeen;
use crate::inode::{FileInode, InodeItem};

pub(crate) use clone_range::{CloneRange, clone_range, is_shared};
pub(crate) use compare::first_unshared;
pub use content::{FileContent, Stretch};
pub(crate) use content::{NewContent, pack_ahead};
pub(crate) use extent_map::{extents_of, has_prealloc, holes_of};
pub(crate) use one_extent::{in_one_extent, is_inline};
pub use packing::PackedAhead;
pub(crate) use packing::{Packing, inline_max};
pub(crate) use prealloc::prealloc;
pub(crate) use prepared::PreparedWrite;
pub(crate) use punch_hole::punch_hole;
pub(crate) use read::{PlainExtent, csums_of, find, read};
use reserve_source::ReserveSource;
pub use rewrite::Recompress;
pub(crate) use rewrite::rewrite;
pub(crate) use tail::is_tail_unsettled;
pub(crate) use truncate::{drop_behind, drop_last, truncate};
pub(crate) use write::{is_overwrite, write};
pub(crate) use write_back::write_back;
pub(crate) use write_direct::{DirectlyWritten, write_direct};
pub(crate) use zero_range::zero_range;

/// Changes the extents of an inode that no other thread has, after a plan was made when they were `seen`. Its errors abort.
#[track_caller]
fn change_alone<T>(
    inode: &FileInode<'_>,
    handle: &Handle<'_>,
    seen: ExtentsSeen,
    change: impl FnOnce(&mut LockedExtents<'_, '_>) -> Result<T>,
) -> Result<T> {
    inode.change_extents(handle, |locked| {
        assert!(locked.are_as(seen), "DATA-5: who has an inode alone changes its extents alone");
        change(locked)
    })
}

/// The range of a change of the item only: its size, or its times.
const NO_EXTENTS: (u64, u64) = (0, 0);

/// Changes the inode's item at the end of a change of its extents in `changed`, and the operation's copy of it, `item`.
fn update(
    locked: &mut LockedExtents<'_, '_>,
    changed: (u64, u64),
    item: &mut InodeItem,
    change: impl FnOnce(&mut InodeItem),
) -> Result<()> {
    update_for(&ReserveSource::Operation, locked, changed, item, change)
}

/// Changes the inode's item at the end of a change of its extents. Sets its times to now if `behalf` is an operation that changes
/// the file's content, in flight or not.
fn update_for(
    behalf: &ReserveSource<'_>,
    locked: &mut LockedExtents<'_, '_>,
    changed: (u64, u64),
    item: &mut InodeItem,
    change: impl FnOnce(&mut InodeItem),
) -> Result<()> {
    let now = locked.now();
    *item = locked.update(changed, |item| {
        change(item);
        if let ReserveSource::Operation | ReserveSource::Flight(_) = behalf {
            item.mtime = now;
            item.ctime = now;
        }
    })?;
    Ok(())
}

/// Computes nbytes after `dropped` bytes went and `added` came. A damaged count that is too small does not wrap.
const fn recount(nbytes: u64, dropped: u64, added: u64) -> u64 {
    nbytes.saturating_sub(dropped).saturating_add(added)
}
