//! An inode that is a file.
//!
//! A [`FileInode`] is the inode together with its [`FileState`]: its holder needs no further check of the kind. [`Inode::regular`]
//! gives it out, once for an operation.
//!
//! Extents change under the lock of the item (`lock`), by [`FileInode::change_extents`]. It counts the changes, so a plan that was
//! made before notices them, and it notes the changed ranges for the log (`extent_changes`).

use std::ops::Deref;

use creamery_base::{Error, ErrorKind, Logical, Result, Timespec, Wait};
use creamery_txn::Handle;

use super::carried_locks::CarriedLocks;
use super::extent_changes::ExtentChanges;
use super::file_state::{ExtentsSeen, FileState, ShownSize};
use super::lock::{ExclusiveInode, HeldExtents, LockedItem};
use super::noted_writes::NotedWrites;
use super::range_lock::{RangeGuard, RangeLocks};
use super::{FileType, Inode, InodeItem};
use crate::delalloc::{Delalloc, WriteErrors};
use crate::fault::Fault;
use crate::in_flight::{Awaited, Carried};

/// The item of a file, locked for a change together with its extents; only [`FileInode::change_extents`] gives it out.
pub(crate) struct LockedExtents<'l, 'a> {
    file: &'a FileState,
    locked: &'l mut LockedItem<'a>,
}

impl LockedExtents<'_, '_> {
    /// The time of the change.
    pub(crate) fn now(&self) -> Timespec {
        self.locked.now()
    }

    /// Whether no thread changed the extents since they were `seen`.
    pub(crate) fn are_as(&self, seen: ExtentsSeen) -> bool {
        self.file.extents_seen() == seen
    }

    /// Changes the item, as [`LockedItem::update`] does, after the extents in `changed` changed. An empty `changed` leaves the
    /// plans of others valid.
    pub(crate) fn update(
        &mut self,
        changed: (u64, u64),
        change: impl FnOnce(&mut InodeItem),
    ) -> Result<InodeItem> {
        if changed.0 < changed.1 {
            self.file.count_extent_change();
        }
        let item = self.locked.update(change)?;
        if !self.locked.inode.context().has(Fault::ChangesUnnoted) {
            self.file.log_changes().add(changed.0, changed.1);
        }
        Ok(item)
    }
}

/// An inode that is a file.
#[derive(Clone, Copy)]
pub(crate) struct FileInode<'a> {
    inode: &'a Inode,
    state: &'a FileState,
}

impl Deref for FileInode<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        self.inode
    }
}

impl Inode {
    /// The inode as a file; `None` if it is something else.
    pub(crate) fn as_file(&self) -> Option<FileInode<'_>> {
        self.body.file().map(|state| FileInode { inode: self, state })
    }

    /// The inode as a file, for an operation on data. Errors: it is something else.
    pub(crate) fn regular(&self) -> Result<FileInode<'_>> {
        self.as_file().ok_or_else(|| match self.kind() {
            FileType::Directory => ErrorKind::IsADirectory.into(),
            _ => Error::invalid("not a regular file"),
        })
    }

    /// Writes back its delayed data. Only a file has any. Errors: the data could not be written back, and is lost.
    pub(crate) fn flush(&self) -> Result<()> {
        self.as_file().map_or(Ok(()), |file| file.flush())
    }

    /// The inode as a file, for a test that made it as one.
    #[cfg(test)]
    pub(crate) fn file(&self) -> FileInode<'_> {
        self.as_file().expect("a file")
    }
}

impl<'a> FileInode<'a> {
    /// Its data that is in memory only.
    pub(crate) const fn delalloc(&self) -> &'a Delalloc {
        self.state.delalloc()
    }

    /// The errors of its writeback.
    pub(crate) const fn write_errors(&self) -> &'a WriteErrors {
        self.state.write_errors()
    }

    /// Overwrites that the item does not show yet.
    pub(super) const fn noted_writes(&self) -> &'a NotedWrites {
        self.state.noted_writes()
    }

    /// Notes of the ranges in which its extents changed.
    pub(crate) const fn log_changes(&self) -> &'a ExtentChanges {
        self.state.log_changes()
    }

    /// The byte ranges that are in use.
    pub(super) const fn ranges(&self) -> &'a RangeLocks {
        self.state.ranges()
    }

    /// The locks of operations that requests carry.
    pub(super) const fn carried(&self) -> &'a CarriedLocks {
        self.state.carried()
    }

    /// Locks the whole sectors that `[start, end)` touches against writers.
    pub(crate) fn lock_range_shared(&self, start: u64, end: u64, wait: Wait) -> Result<RangeGuard<'a>> {
        let range = self.whole_sectors(start, end);
        self.state.ranges().shared_or_help(range, wait, self.awaited())
    }

    /// Locks the whole sectors that `[start, end)` touches against readers and writers.
    pub(crate) fn lock_range(&self, start: u64, end: u64, wait: Wait) -> Result<RangeGuard<'a>> {
        let range = self.whole_sectors(start, end);
        self.state.ranges().exclusive_or_help(range, wait, self.awaited())
    }

    /// How many of its ranges are in use or waited for.
    #[cfg(feature = "faults")]
    pub(crate) fn ranges_in_use(&self) -> usize {
        self.ranges().len()
    }

    /// The requests that may carry locks of the file.
    pub(super) fn awaited(&self) -> Awaited<'a> {
        self.inode.context().in_flight().awaited(Carried::OfInode(self.inode.id))
    }

    fn whole_sectors(&self, start: u64, end: u64) -> (u64, u64) {
        let sector = u64::from(self.engine().sector_size());
        (start - start % sector, end.checked_next_multiple_of(sector).unwrap_or(u64::MAX))
    }

    /// The preferred place of its next data: behind the space that it got last, so that the file stays together.
    pub(crate) fn data_behind(&self) -> Option<Logical> {
        self.state.data_behind()
    }

    /// Notes that it got space up to `end`.
    pub(crate) fn set_data_behind(&self, end: Logical) {
        self.state.set_data_behind(end);
    }

    /// From now on the next close of the file starts writeback.
    pub(crate) fn set_flush_on_close(&self) {
        self.state.set_flush_on_close();
    }

    /// Whether a close is to start writeback; clears that.
    pub(crate) fn take_flush_on_close(&self) -> bool {
        self.state.take_flush_on_close()
    }

    /// Its size, for a caller that holds its extents. Errors: [`ErrorKind::Stale`] when it was deleted.
    pub(crate) fn size_beside(&self, item: &HeldExtents<'_>) -> Result<u64> {
        self.check_alive()?;
        Ok(self.state.shown_size().or_else(|| self.delalloc().size()).unwrap_or(item.size))
    }

    /// Its current size.
    pub(crate) fn size(&self) -> u64 {
        let item = self.item.read();
        self.delalloc().size().unwrap_or(item.size)
    }

    /// Shows `size` as the size of a file while it is cut to that. The caller has the inode alone.
    pub(crate) fn show_size(&self, size: u64) -> ShownSize<'a> {
        self.state.show_size(size)
    }

    /// The state of its extents; take it before you look at them.
    pub(crate) fn extents_seen(&self) -> ExtentsSeen {
        self.state.extents_seen()
    }

    /// Runs `change` with the item locked, for a change of extents; its errors abort (INODE-6).
    #[track_caller]
    pub(crate) fn change_extents<T>(
        &self,
        handle: &Handle<'_>,
        change: impl FnOnce(&mut LockedExtents<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        self.inode.change_item(handle, |locked| change(&mut LockedExtents { file: self.state, locked }))
    }

    /// Writes its delayed data back. Errors: the data could not be written back, and is lost.
    pub(crate) fn flush(&self) -> Result<()> {
        self.context().writeback().flush(self.inode)
    }

    /// Writes back the delayed data of a range that the caller has alone, of a file that no delayed data makes longer. The openers get
    /// the errors.
    pub(crate) fn flush_range(&self, range: (u64, u64)) {
        self.context().writeback().flush_range(self.inode, range);
    }

    /// Has all delayed data written back, for a caller that has the inode alone and changes its extents itself: nothing becomes
    /// dirty meanwhile. The locked item includes all data from then on.
    /// Errors: data that was delayed when the caller locked the inode could not be written back, and is lost (WRITEBACK-5).
    pub(crate) fn settle(&self, locked: &mut ExclusiveInode<'_>) -> Result<()> {
        // A run that landed since the inode was locked left nothing to flush.
        let _ = self.flush();
        locked.item = self.settled_item();
        self.write_errors().since(locked.errors_before)
    }

    /// Settles a file ([`FileInode::settle`]) for a caller that makes `size` its size. Delayed data behind `size` is discarded where the
    /// cut is sure to succeed, else it is written back like the rest (SHRINK-1).
    pub(crate) fn settle_cut(&self, locked: &mut ExclusiveInode<'_>, size: u64) {
        if self.delalloc().any() {
            let (sector, has_room) =
                (u64::from(self.engine().sector_size()), self.engine().has_room_to_spare());
            let gone = self.delalloc().cut(size, sector, has_room);
            self.context().writeback().forget(gone);
        }
        // The openers get the errors; the file can be cut all the same.
        let _ = self.settle(locked);
    }

    /// The item of a file without delayed data, which no other thread changes.
    fn settled_item(&self) -> InodeItem {
        // A deletion that was aborted keeps the data that it held back for good.
        let nothing = !self.delalloc().any() || self.engine().read_only().is_some();
        assert!(nothing, "DELALLOC-6: nothing of a settled file is delayed");
        let mut item = self.tree_item();
        self.take_along(&mut item);
        item
    }
}
