//! The part of an inode in memory that only a file has.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use creamery_base::Logical;

use super::carried_locks::CarriedLocks;
use super::extent_changes::ExtentChanges;
use super::noted_writes::NotedWrites;
use super::range_lock::RangeLocks;
use crate::delalloc::{Delalloc, WriteErrors};
use crate::items::InodeItem;

/// The value of `shown_size` for "the size of the item". No file has this size.
const SIZE_OF_ITEM: u64 = u64::MAX;

/// The part of an inode in memory that only a file has.
pub(crate) struct FileState {
    /// The size that the file is being cut to, or [`SIZE_OF_ITEM`].
    shown_size: AtomicU64,
    /// How often extents changed; raised with the item locked for writing.
    extent_changes: AtomicU64,
    /// The ranges in which they changed, for the log.
    log_changes: ExtentChanges,
    /// Byte ranges that readers, writers and truncation hold.
    ranges: RangeLocks,
    /// Locks of operations that requests carry.
    carried: CarriedLocks,
    /// The end of the space on the volume that the file got last, 0 before that: a hint, so relaxed.
    data_behind: AtomicU64,
    /// The file was cut to nothing: the next close starts writeback of its new data.
    flush_on_close: AtomicBool,
    /// Data that is in memory only.
    delalloc: Delalloc,
    /// The errors of its writeback.
    write_errors: WriteErrors,
    /// Overwrites that the item does not show yet.
    noted_writes: NotedWrites,
}

impl FileState {
    pub(super) fn new() -> Self {
        Self {
            shown_size: AtomicU64::new(SIZE_OF_ITEM),
            extent_changes: AtomicU64::new(0),
            log_changes: ExtentChanges::default(),
            ranges: RangeLocks::new(),
            carried: CarriedLocks::default(),
            data_behind: AtomicU64::new(0),
            flush_on_close: AtomicBool::new(false),
            delalloc: Delalloc::new(),
            write_errors: WriteErrors::default(),
            noted_writes: NotedWrites::default(),
        }
    }

    /// Its data that is in memory only.
    pub(super) const fn delalloc(&self) -> &Delalloc {
        &self.delalloc
    }

    /// The errors of its writeback.
    pub(super) const fn write_errors(&self) -> &WriteErrors {
        &self.write_errors
    }

    /// Overwrites that the item does not show yet.
    pub(super) const fn noted_writes(&self) -> &NotedWrites {
        &self.noted_writes
    }

    /// Notes of the ranges in which its extents changed.
    pub(super) const fn log_changes(&self) -> &ExtentChanges {
        &self.log_changes
    }

    /// The heap memory it takes, bytes.
    pub(super) fn memory(&self) -> u64 {
        self.ranges.memory() + self.delalloc.memory()
    }

    /// Adds delayed data and the shown size to `item`, which is the item of the tree and locked.
    pub(super) fn show(&self, item: &mut InodeItem) {
        self.delalloc.show(item);
        item.size = self.shown_size().unwrap_or(item.size);
    }

    /// The size that the file is being cut to, if it is.
    pub(super) fn shown_size(&self) -> Option<u64> {
        Some(self.shown_size.load(Ordering::Acquire)).filter(|size| *size != SIZE_OF_ITEM)
    }

    /// Shows `size` as the size of a file while it is cut to that. The caller has the inode alone.
    pub(super) fn show_size(&self, size: u64) -> ShownSize<'_> {
        self.shown_size.store(size, Ordering::Release);
        ShownSize { file: self }
    }

    /// The state of its extents; take it before you look at them.
    pub(super) fn extents_seen(&self) -> ExtentsSeen {
        ExtentsSeen(self.extent_changes.load(Ordering::Acquire))
    }

    /// Counts a change of its extents, with the item locked for writing.
    pub(super) fn count_extent_change(&self) {
        self.extent_changes.fetch_add(1, Ordering::Release);
    }

    /// The byte ranges that are in use.
    pub(super) const fn ranges(&self) -> &RangeLocks {
        &self.ranges
    }

    /// The locks of operations that requests carry.
    pub(super) const fn carried(&self) -> &CarriedLocks {
        &self.carried
    }

    /// The preferred place of its next data: behind the space that it got last, so that the file stays together.
    pub(super) fn data_behind(&self) -> Option<Logical> {
        let behind = self.data_behind.load(Ordering::Relaxed);
        (behind > 0).then(|| Logical::new(behind))
    }

    /// Notes that it got space up to `end`.
    pub(super) fn set_data_behind(&self, end: Logical) {
        self.data_behind.store(end.get(), Ordering::Relaxed);
    }

    /// From now on the next close of the file starts writeback.
    pub(super) fn set_flush_on_close(&self) {
        self.flush_on_close.store(true, Ordering::Release);
    }

    /// Whether a close is to start writeback; clears that.
    pub(super) fn take_flush_on_close(&self) -> bool {
        self.flush_on_close.load(Ordering::Acquire) && self.flush_on_close.swap(false, Ordering::AcqRel)
    }
}

/// The state of the extents of a file at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExtentsSeen(u64);

/// The size of a file that is being cut, shown until this drops. Then the file has it, or has the size at which the cut ended.
#[must_use]
pub(crate) struct ShownSize<'a> {
    file: &'a FileState,
}

impl Drop for ShownSize<'_> {
    fn drop(&mut self) {
        self.file.shown_size.store(SIZE_OF_ITEM, Ordering::Release);
    }
}
