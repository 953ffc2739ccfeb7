//! The lock of an inode's operations, and the short one of its item.
//!
//! Who looks a name up shares a directory with others who look; who changes it has it alone. Of a file, those who write over
//! what it has share it, each with a range of its own, and those have it alone who change its size or attributes. These locks
//! are held over requests to devices, commits and waits for space. What a request holds of them that outlives its call is beside
//! them (`carried`, `carried_locks`), and waited for by who gets the lock.
//!
//! Nobody who only wants to know waits for that. The item has a lock of its own, inside transaction handles, held while
//! the item and what goes with it change in the tree: so `stat` tells what was done last, whoever is on the way. A read takes
//! its range of bytes and no lock of operations; it holds the item for as long as it looks at the items of extents
//! ([`Inode::hold_extents`]), not while it waits for data. Cutting a file takes many handles, each of which leaves a shorter
//! one; who asks is told the size that it will have ([`FileInode::show_size`](super::FileInode::show_size)). The time of the last access is kept beside the item
//! until that is written (`access_time`); who asks is told it as a part of the item.
//!
//! # Invariants
//! - INODE-5: the item changes only with its lock held for writing, from the value that it has then. So of two operations that
//!   share an inode neither takes back what the other one did.
//!   Shown by `writes_to_parts_of_one_extent_at_once_are_all_there`.
//! - INODE-6: a change of the item that fails, or dies, aborts with the item still locked: who has it next finds that, and takes
//!   nothing half made for the truth. Shown by `who_has_the_item_behind_a_change_that_failed_finds_the_abort`.

use std::ops::Deref;

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedRead, RankedWrite, rank};
use creamery_base::{Error, ErrorKind, Result, Timespec, Wait};
use creamery_txn::Handle;

use super::carried_locks::Lock;
use super::{Inode, InodeItem, state};
use crate::delayed;
use crate::fault::Fault;

/// How often a thread that must not wait looks whether the item is free, and how often it pauses between two looks: tens of microseconds in all.
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

/// An inode locked by one operation, with its item as that has changed it so far.
///
/// ```
/// fn is_large(inode: &creamery_fs::ExclusiveInode<'_>) -> bool {
///     inode.size > 1 << 30
/// }
/// ```
#[must_use]
pub struct ExclusiveInode<'a> {
    pub(super) item: InodeItem,
    /// Errors of writing back before the item was looked at.
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
    /// The item as the operation knows it, for those who [update](Inode::update) the inode in several steps.
    pub(crate) const fn item_mut(&mut self) -> &mut InodeItem {
        &mut self.item
    }
}

/// The item, locked for changing it together with what belongs to it in the tree; [`Inode::change_item`] alone gives it out.
pub(crate) struct LockedItem<'a> {
    pub(super) inode: &'a Inode,
    pub(super) item: RankedWrite<'a, InodeItem, { rank::INODE_ITEM }>,
    pub(super) handle: &'a Handle<'a>,
}

impl Drop for LockedItem<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ =
                self.handle.abort(Error::new(ErrorKind::Aborted, "a thread died while it changed an inode"));
        }
    }
}

/// The witness that nobody changes the extents of an inode. No data is read from a device meanwhile.
pub(crate) type HeldExtents<'a> = RankedRead<'a, InodeItem, { rank::INODE_ITEM }>;

impl LockedItem<'_> {
    /// The time of the change.
    pub(crate) fn now(&self) -> Timespec {
        self.handle.now()
    }

    /// Changes the item, in the tree too; returns it as the tree has it then. One leaf change.
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
    /// Locks it together with others who share it. [`ErrorKind::Stale`] when it was deleted meanwhile.
    pub fn lock_shared(&self, wait: Wait) -> Result<SharedInode<'_>> {
        let operations = match wait {
            Wait::Yes => self.operations.read_for(Reason::InodeLock, self.place()),
            Wait::No => self.operations.try_read_within(self.place()).ok_or(ErrorKind::WouldBlock)?,
        };
        self.pass(Lock::Shared, wait)?;
        self.check_alive().map(|()| SharedInode { _operations: operations })
    }

    /// Locks it alone. A change waits anyway, so there is no `Wait` to pass. [`ErrorKind::Stale`] as above.
    pub fn lock_exclusive(&self) -> Result<ExclusiveInode<'_>> {
        let operations = self.operations.write_for(Reason::InodeLock, self.place());
        self.pass(Lock::Alone, Wait::Yes)?;
        self.locked_by(operations, Wait::Yes)
    }

    /// Locks it alone, if nobody has it or its item.
    pub(crate) fn try_lock_exclusive(&self) -> Result<Option<ExclusiveInode<'_>>> {
        let Some(operations) = self.operations.try_write_within(self.place()) else { return Ok(None) };
        let locked = self.pass(Lock::Alone, Wait::No).and_then(|()| self.locked_by(operations, Wait::No));
        match locked {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            locked => locked.map(Some),
        }
    }

    /// Waits for the requests that carry what keeps out who has got the lock of operations.
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

    /// The inode item as it is now: what was done last by those who have ended. [`ErrorKind::Stale`] when the inode was deleted.
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

    /// What the file is: `item`, which is locked, is what the tree has.
    pub(super) fn as_it_is(&self, item: &InodeItem) -> InodeItem {
        let mut item = item.clone();
        self.take_along(&mut item);
        if let Some(file) = self.body.file() {
            file.show(&mut item);
        }
        item
    }

    /// The item as the tree has it: without delayed data.
    pub(crate) fn tree_item(&self) -> InodeItem {
        self.item.read().clone()
    }

    /// Keeps the extents as they are, to look at their items: who changes them does so in several steps (DATA-6).
    pub(crate) fn hold_extents(&self, wait: Wait) -> Result<HeldExtents<'_>> {
        match wait {
            Wait::Yes => Ok(self.item.read_for(Reason::InodeLock, 0)),
            Wait::No => self.item_soon().ok_or_else(|| ErrorKind::WouldBlock.into()),
        }
    }

    /// As [`hold_extents`](Self::hold_extents), for a thread that does without where somebody changes the item.
    pub(crate) fn try_hold_extents(&self) -> Option<HeldExtents<'_>> {
        self.item.try_read_within(0)
    }

    /// Tries to lock the item [`LOOKS`] times. A change of one leaf usually ends before the last try: with a single one a request in 25 that must not
    /// wait was refused beside writes into space that was set aside.
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

    /// Changes the item, in the tree too; returns what the file is then. One leaf change. Its errors abort.
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

    /// Deletes the items of the inode by `purge`, and forgets what was put off. It has no entries. Its errors abort.
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

    /// Changes the item in memory only, as a test wants it.
    #[cfg(test)]
    pub(crate) fn forge(&self, change: impl FnOnce(&mut InodeItem)) {
        change(&mut self.item.write());
    }
}
