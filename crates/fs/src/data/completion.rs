//! Completion: new data, which is on a device, becomes part of a file, handle by handle.
//!
//! A writer of new data makes a [`Completion`] and hands it from one extent to the next. It knows the file, the party on whose
//! behalf the file gets data, and how far it has got. It completes an extent of its own (`ordered_extent`), or an existing one
//! (`in_place`). Each defines the change of a handle to the items of extents ([`Completion::step`]); all else is the same for both.

use creamery_base::Result;
use creamery_txn::{Handle, ReserveItems};

use super::holes::HolePlan;
use super::reserve_source::{For, ReserveSource};
use super::update_for;
use crate::inode::file_state::ExtentsSeen;
use crate::inode::{FileInode, InodeItem};
use crate::operation::finish;

/// A file that gets new data, extent by extent.
pub(crate) struct Completion<'c, 'b> {
    behalf: &'c mut ReserveSource<'b>,
    inode: &'c FileInode<'c>,
    /// The inode's item as the operation knows it.
    item: &'c mut InodeItem,
    /// Filled in the first handle.
    holes: HolePlan,
    /// The file has the new data up to here, also after an error.
    reached: &'c mut u64,
}

/// The part that one handle completes.
pub(super) struct CompletionStep {
    /// Metadata units that it takes, but for holes.
    pub(super) units: u32,
    /// The file has the new data up to here afterwards.
    pub(super) stop: u64,
    /// The range in which extents change.
    pub(super) changed: (u64, u64),
    /// The state of the extents when the step was planned, if that matters.
    pub(super) seen: Option<ExtentsSeen>,
}

impl<'c, 'b> Completion<'c, 'b> {
    /// Makes the completion of a file whose item is `item`, for `behalf`. The file has the new data up to `reached`, also after an
    /// error.
    pub(crate) fn new(
        behalf: &'c mut ReserveSource<'b>,
        inode: &'c FileInode<'c>,
        item: &'c mut InodeItem,
        reached: &'c mut u64,
    ) -> Self {
        Self { behalf, inode, item, holes: HolePlan::nothing(), reached }
    }

    /// A completion that fills `holes` in its first handle.
    pub(crate) fn filling(self, holes: HolePlan) -> Self {
        Self { holes, ..self }
    }

    /// The party on whose behalf it is, for other work of that party.
    pub(crate) const fn behalf(&mut self) -> &mut ReserveSource<'b> {
        self.behalf
    }

    /// The file that the data is for.
    pub(crate) fn file(&self) -> For<'c> {
        For::of(self.inode, self.item.flags)
    }

    /// The offset up to which the file has the new data.
    pub(crate) const fn reached(&self) -> u64 {
        *self.reached
    }

    /// Leaves the file before `stop` as it is.
    pub(crate) const fn skip_to(&mut self, stop: u64) {
        *self.reached = stop;
    }

    /// The file.
    pub(super) const fn inode(&self) -> &'c FileInode<'c> {
        self.inode
    }

    /// Runs one handle: fills the holes, calls `exchange` to change the items of extents, and changes the inode's by `edit`. Returns
    /// false, and does nothing, when another thread that shares the inode changed an extent since the step was planned; its room is
    /// kept again.
    /// Errors: no space: then nothing changed; aborted.
    pub(super) fn step(
        &mut self,
        step: CompletionStep,
        exchange: impl FnOnce(&Handle<'_>) -> Result<()>,
        edit: impl FnOnce(&mut InodeItem),
    ) -> Result<bool> {
        let Self { behalf, inode, item, holes, reached } = self;
        let handle = behalf.start(inode, ReserveItems::items(step.units + holes.len()))?;
        let done = inode.change_extents(&handle, |locked| {
            if step.seen.is_some_and(|seen| !locked.are_as(seen)) {
                return Ok(false);
            }
            holes.insert(&handle, inode.tree(), inode.id.ino)?;
            exchange(&handle)?;
            update_for(behalf, locked, step.changed, item, edit)?;
            behalf.completed(inode, step.stop);
            Ok(true)
        });
        if matches!(done, Ok(false)) {
            behalf.end_unused(inode, handle);
            return Ok(false);
        }
        finish(handle, done)?;
        *holes = HolePlan::nothing();
        **reached = step.stop;
        Ok(true)
    }
}
