//! Completion: new data, which is on a device, becomes part of a file, handle by handle.
//!
//! Whoever gives a file new data makes a [`Completion`] and hands it from one extent to the next: it knows the file, on whose behalf
//! that gets data, and how far it has got. What is completed is an extent of its own (`ordered_extent`), or one that was there
//! (`in_place`): each says what a handle does to the items of extents ([`Completion::step`]), and all else is the same for both.

use creamery_base::Result;
use creamery_txn::{Handle, Units};

use super::behalf::{Behalf, For};
use super::holes::HolePlan;
use super::update_for;
use crate::inode::file_state::ExtentsSeen;
use crate::inode::{FileInode, InodeItem};
use crate::operation::finish;

/// A file that is given new data, extent by extent.
pub(crate) struct Completion<'c, 'b> {
    behalf: &'c mut Behalf<'b>,
    inode: &'c FileInode<'c>,
    /// What the operation knows of the file.
    item: &'c mut InodeItem,
    /// Filled in the handle that completes the first of it.
    holes: HolePlan,
    /// The file has the new data up to here, also after an error.
    reached: &'c mut u64,
}

/// What one handle completes.
pub(super) struct Step {
    /// Metadata that it takes, but for holes.
    pub(super) units: u32,
    /// The file has the new data up to here then.
    pub(super) stop: u64,
    /// Where extents change.
    pub(super) changed: (u64, u64),
    /// What they were when it was planned, if that matters.
    pub(super) seen: Option<ExtentsSeen>,
}

impl<'c, 'b> Completion<'c, 'b> {
    /// Of a file whose item is `item`, on behalf of somebody. `reached` follows: the file has the new data up to there, also after an
    /// error.
    pub(crate) fn new(
        behalf: &'c mut Behalf<'b>,
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

    /// On whose behalf it is, for what there is to do besides.
    pub(crate) const fn behalf(&mut self) -> &mut Behalf<'b> {
        self.behalf
    }

    /// The file that the data is for.
    pub(crate) fn file(&self) -> For<'c> {
        For::of(self.inode, self.item.flags)
    }

    /// Up to where the file has the new data.
    pub(crate) const fn reached(&self) -> u64 {
        *self.reached
    }

    /// What lies before `stop` stays as it is.
    pub(crate) const fn skip_to(&mut self, stop: u64) {
        *self.reached = stop;
    }

    /// The file.
    pub(super) const fn inode(&self) -> &'c FileInode<'c> {
        self.inode
    }

    /// One handle: fills the holes, has `exchange` change the items of extents, and changes the inode's by `edit`. False, and nothing
    /// is done, when somebody who shares the inode changed an extent since the step was planned;
    /// what was kept for it is kept again.
    /// Errors: no space: then nothing changed; aborted.
    pub(super) fn step(
        &mut self,
        step: Step,
        exchange: impl FnOnce(&Handle<'_>) -> Result<()>,
        edit: impl FnOnce(&mut InodeItem),
    ) -> Result<bool> {
        let Self { behalf, inode, item, holes, reached } = self;
        let handle = behalf.start(inode, Units::items(step.units + holes.len()))?;
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
