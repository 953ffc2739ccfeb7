//! The lock of an inode's operations, and the short one of its item.
//!
//! A thread that only looks at an inode must not wait for a long operation on it, so there are two locks.
//!
//! The lock of operations is held over requests to devices, commits and waits for space:
//! - Lookups in a directory share it. A change of the directory takes it alone.
//! - Writes over existing bytes of a file share it, each with a range of its own. A change of the size or of attributes takes it alone.
//!
//! A request that outlives its call keeps a count beside this lock (`carried`, `carried_locks`), and a thread that gets the lock waits
//! for that count.
//!
//! The item has a lock of its own. A change takes it inside a transaction handle, while the item and its parts of the tree change. So
//! `stat` shows the last finished change and waits for no operation under way. A read takes its range of bytes and no lock of
//! operations. It holds the item while it looks at the items of extents ([`Inode::hold_extents`]), not while it waits for data. A
//! truncation takes many handles, each of which leaves a shorter file. `stat` shows the final size from the start
//! ([`FileInode::show_size`](super::FileInode::show_size)). The last access time stays beside the item until it is written
//! (`access_time`), and `stat` shows it as a part of the item.
//!
//! # Invariants
//! - INODE-5: the item changes only with its lock held for writing, from the value that it has then. So of two operations that
//!   share an inode neither takes back the change of the other.
//!   Shown by `writes_to_parts_of_one_extent_at_once_are_all_there`.
//! - INODE-6: a change of the item that fails, or whose thread panics, aborts with the item still locked. The next holder of the
//!   item finds the abort and trusts no half-made change. Shown by
//!   `who_has_the_item_behind_a_change_that_failed_finds_the_abort`.

use std::ops::Deref;

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedRead, RankedWrite, rank};
use creamery_base::{Error, ErrorKind, Result, Timespec, Wait};
use creamery_txn::Handle;

use super::carried_locks::Lock;
use super::{Inode, InodeItem, state};
use crate::delayed;
use crate::fault::Fault;

/// How often a thread that must not wait checks whether the item is free, and how often it pauses between two checks: tens of
/// microseconds in all.
const LOOKS: usize = if cfg!(feature = "shuttle") { 1 } else { 64 };
const PAUSES: usize = 16;

/// An inode locked by one of several operations that share it.
///
/// ```
/// fn kind(_shared: &creamery_fs::SharedInode<'_>, inode: &creamery_fs::Inode) -> creamery_fs::FileType {
///     inode.kind()
/// }
/// ```
#[must_use]
pub struct SharedInode<'a> {
    _operations: RankedRead<'a, (), { rank::INODE }>,
}

/// An inode locked by one operation, with its item as the operation has changed it so far.
///
/// ```
/// fn is_large(inode: &creamery_fs::ExclusiveInode<'_>) -> bool {
///     inode.size > 1 << 30
/// }
/// ```
#[must_use]
pub struct ExclusiveInode<'a> {
    pub(super) item: InodeItem,
    /// Errors of writeback before the item was read.
    pub(super) errors_before: u64,
    _operations: RankedWrite<'a, (), { rank::INODE }>,
}

impl Deref for ExclusiveInode<'_> {
    type Target = InodeItem;

    fn deref(&self) -> &InodeItem {
        &self.item
    }
}

impl ExclusiveInode<'_> {
    /// The item as the operation knows it, for an operation that [updates](Inode::update) the inode in several steps.
    pub(crate) const fn item_mut(&mut self) -> &mut InodeItem {
        &mut self.item
    }
}

/// The item, locked for a change together with its parts of the tree; only [`Inode::change_item`] gives it out.
pub(crate) struct LockedItem<'a> {
    pub(super) inode: &'a Inode,
    pub(super) item: RankedWrite<'a, InodeItem, { rank::INODE_ITEM }>,
    pub(super) handle: &'a Handle<'a>,
}

impl Drop for LockedItem<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self
                .handle
                .abort(Error::new(ErrorKind::Aborted, "a thread panicked while changing an inode"));
        }
    }
}

/// The witness that no thread changes the extents of an inode. Its holder reads no data from a device.
pub(crate) type HeldExtents<'a> = RankedRead<'a, InodeItem, { rank::INODE_ITEM }>;

impl LockedItem<'_> {
    /// The time of the change.
    pub(crate) fn now(&self) -> Timespec {
        self.handle.now()
    }

    /// Changes the item, also in the tree, and returns the item that the tree has then. One leaf change.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut InodeItem)) -> Result<InodeItem> {
        let mut next = self.item.clone();
        self.inode.take_along(&mut next);
        if let Some(file) = self.inode.body.file() {
            file.delalloc().take_times(&mut next);
        }
        change(&mut next);
        next.touch(self.handle.generation());
        self.replace(&next)?;
        Ok(next)
    }

    /// Makes `next`, which has the access time, the item.
    pub(super) fn replace(&mut self, next: &InodeItem) -> Result<()> {
        let (inode, handle) = (self.inode, self.handle);
        if let Some(file) = inode.body.file() {
            file.log_changes().begin(handle.generation(), &self.item);
        }
        inode.supersede_delayed(|| delayed::write_inode(handle, inode.tree(), inode.id, next))?;
        assert!(
            !inode.has(state::OVERWRITTEN) || next.transid == handle.generation(),
            "OVERWRITE-1: an item that shows writes shows that they are to be made durable"
        );
        self.item.clone_from(next);
        self.times_written();
        Ok(())
    }
}

impl Inode {
    /// Locks the inode together with other sharers. Errors: [`ErrorKind::Stale`] when it was deleted meanwhile; would block.
    pub fn lock_shared(&self, wait: Wait) -> Result<SharedInode<'_>> {
        let operations = match wait {
            Wait::Yes => self.operations.read_for(Reason::InodeLock, self.place()),
            Wait::No => self.operations.try_read_within(self.place()).ok_or(ErrorKind::WouldBlock)?,
        };
        self.pass(Lock::Shared, wait)?;
        self.check_alive().map(|()| SharedInode { _operations: operations })
    }

    /// Locks the inode alone. A change waits anyway, so there is no `Wait` to pass. Errors: [`ErrorKind::Stale`] when it was
    /// deleted meanwhile.
    pub fn lock_exclusive(&self) -> Result<ExclusiveInode<'_>> {
        let operations = self.operations.write_for(Reason::InodeLock, self.place());
        self.pass(Lock::Alone, Wait::Yes)?;
        self.locked_by(operations, Wait::Yes)
    }

    /// Locks the inode alone, if no thread has it or its item.
    pub(crate) fn try_lock_exclusive(&self) -> Result<Option<ExclusiveInode<'_>>> {
        let Some(operations) = self.operations.try_write_within(self.place()) else { return Ok(None) };
        let locked = self.pass(Lock::Alone, Wait::No).and_then(|()| self.locked_by(operations, Wait::No));
        match locked {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            locked => locked.map(Some),
        }
    }

    /// Waits until no request carries a lock that conflicts with `lock`, which the caller has just got.
    /// Errors: would block.
    fn pass(&self, lock: Lock, wait: Wait) -> Result<()> {
        if self.context().has(Fault::CarriedNotWaitedFor) {
            return Ok(());
        }
        self.as_file().map_or(Ok(()), |file| file.carried().pass(lock, wait, file.awaited()))
    }

    fn locked_by<'a>(
        &self,
        operations: RankedWrite<'a, (), { rank::INODE }>,
        wait: Wait,
    ) -> Result<ExclusiveInode<'a>> {
        if let Some(file) = self.as_file()
            && !self.context().has(Fault::CarriedNotWaitedFor)
        {
            file.carried().assert_alone();
        }
        let errors_before = self.body.file().map_or(0, |file| file.write_errors().so_far());
        Ok(ExclusiveInode { item: self.item(wait)?, errors_before, _operations: operations })
    }

    /// The inode item as the last finished operation left it. Errors: [`ErrorKind::Stale`] when the inode was deleted; would
    /// block.
    pub fn item(&self, wait: Wait) -> Result<InodeItem> {
        let locked = self.hold_extents(wait)?;
        self.check_alive()?;
        Ok(self.as_it_is(&locked))
    }

    /// Returns the inode item as it is now, and the file's size in the tree. Delayed data may make the file longer.
    pub(crate) fn item_and_stored_size(&self, wait: Wait) -> Result<(InodeItem, u64)> {
        let locked = self.hold_extents(wait)?;
        self.check_alive()?;
        Ok((self.as_it_is(&locked), locked.size))
    }

    /// The item with everything that is not written yet. `item` is the item of the tree, and locked.
    pub(super) fn as_it_is(&self, item: &InodeItem) -> InodeItem {
        let mut item = item.clone();
        self.take_along(&mut item);
        if let Some(file) = self.body.file() {
            file.show(&mut item);
        }
        item
    }

    /// The item in the tree: without delayed data.
    pub(crate) fn tree_item(&self) -> InodeItem {
        self.item.read().clone()
    }

    /// Keeps the extents as they are while the caller looks at their items: a change of extents takes several steps (DATA-6).
    pub(crate) fn hold_extents(&self, wait: Wait) -> Result<HeldExtents<'_>> {
        match wait {
            Wait::Yes => Ok(self.item.read_for(Reason::InodeLock, 0)),
            Wait::No => self.item_soon().ok_or_else(|| ErrorKind::WouldBlock.into()),
        }
    }

    /// Tries once to [hold the extents](Self::hold_extents), for a thread that can do without them while another one changes the
    /// item.
    pub(crate) fn try_hold_extents(&self) -> Option<HeldExtents<'_>> {
        self.item.try_read_within(0)
    }

    /// Tries to lock the item [`LOOKS`] times. A change of one leaf usually ends before the last try. With a single try, 1 in 25
    /// requests that must not wait failed beside writes into preallocated space.
    fn item_soon(&self) -> Option<HeldExtents<'_>> {
        (0..LOOKS).find_map(|_| {
            let item = self.try_hold_extents();
            if item.is_none() {
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
            item
        })
    }

    /// Runs `change` with the item locked; its errors abort (INODE-6).
    #[track_caller]
    pub(crate) fn change_item<'a, T>(
        &'a self,
        handle: &'a Handle<'_>,
        change: impl FnOnce(&mut LockedItem<'a>) -> Result<T>,
    ) -> Result<T> {
        let mut locked = LockedItem { inode: self, item: self.item.write_for(Reason::InodeLock, 0), handle };
        match change(&mut locked) {
            Ok(value) => Ok(value),
            Err(error) => Err(handle.abort(error)),
        }
    }

    /// Changes the item, also in the tree, and returns the item with its delayed data. One leaf change. Its errors abort.
    #[track_caller]
    pub(crate) fn update(
        &self,
        handle: &Handle<'_>,
        change: impl FnOnce(&mut InodeItem),
    ) -> Result<InodeItem> {
        self.change_item(handle, |locked| {
            locked.update(change)?;
            Ok(self.as_it_is(&locked.item))
        })
    }

    /// Deletes the items of the inode by `purge`, and forgets its delayed items. The inode has no entries. Its errors abort.
    #[track_caller]
    pub(crate) fn delete_items(&self, handle: &Handle<'_>, purge: impl FnOnce() -> Result<()>) -> Result<()> {
        self.change_item(handle, |locked| {
            if let Some(directory) = self.as_directory() {
                let entries = directory.delayed_entries(0, Wait::Yes)?;
                assert!(entries.is_empty(), "directory {} is deleted with entries to be written", self.id);
            }
            self.supersede_delayed(purge)?;
            locked.item.nlink = 0;
            locked.times_written();
            Ok(())
        })
    }

    /// Changes the item in memory only, for a test.
    #[cfg(test)]
    pub(crate) fn forge(&self, change: impl FnOnce(&mut InodeItem)) {
        change(&mut self.item.write());
    }
}
