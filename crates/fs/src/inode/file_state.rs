//! What a file has in memory because it has data.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use creamery_base::Logical;

use super::carried_locks::CarriedLocks;
use super::extent_changes::ExtentChanges;
use super::noted_writes::NotedWrites;
use super::range_lock::RangeLocks;
use crate::delalloc::{Delalloc, WriteErrors};
use crate::items::InodeItem;

/// No file has this size: the item's is told.
const SIZE_OF_ITEM: u64 = u64::MAX;

/// What a file has besides what every inode has.
pub(crate) struct FileState {
    /// The size that it is being cut to, or [`SIZE_OF_ITEM`].
    shown_size: AtomicU64,
    /// How often extents changed; raised with the item locked for writing.
    extent_changes: AtomicU64,
    /// Where they changed, for the log.
    log_changes: ExtentChanges,
    /// Byte ranges that readers, writers and truncation hold.
    ranges: RangeLocks,
    /// Locks of operations that requests carry.
    carried: CarriedLocks,
    /// Where on the volume the space ends that it was given last, 0 before that: a hint, so relaxed.
    data_behind: AtomicU64,
    /// It was cut to nothing: what is written anew is wanted on the device soon after it is closed.
    flush_on_close: AtomicBool,
    /// Data that is in memory only.
    delalloc: Delalloc,
    /// What became of such data.
    write_errors: WriteErrors,
    /// Writes over what it has that its item does not show.
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

    /// What became of such data.
    pub(super) const fn write_errors(&self) -> &WriteErrors {
        &self.write_errors
    }

    /// Writes over what it has that its item does not show.
    pub(super) const fn noted_writes(&self) -> &NotedWrites {
        &self.noted_writes
    }

    /// Notes of where its extents changed.
    pub(super) const fn log_changes(&self) -> &ExtentChanges {
        &self.log_changes
    }

    /// What it takes in memory outside, bytes.
    pub(super) fn memory(&self) -> u64 {
        self.ranges.memory() + self.delalloc.memory()
    }

    /// Makes `item`, which is what the tree has and is locked, what the file is.
    pub(super) fn show(&self, item: &mut InodeItem) {
        self.delalloc.show(item);
        item.size = self.shown_size().unwrap_or(item.size);
    }

    /// The size that it is being cut to, if it is.
    pub(super) fn shown_size(&self) -> Option<u64> {
        Some(self.shown_size.load(Ordering::Acquire)).filter(|size| *size != SIZE_OF_ITEM)
    }

    /// Has `size` told as the size of a file that is being cut to it; who does that has the inode alone.
    pub(super) fn show_size(&self, size: u64) -> ShownSize<'_> {
        self.shown_size.store(size, Ordering::Release);
        ShownSize { file: self }
    }

    /// What its extents are now; to be asked before they are looked at.
    pub(super) fn extents_seen(&self) -> ExtentsSeen {
        ExtentsSeen(self.extent_changes.load(Ordering::Acquire))
    }

    /// Its extents change, with the item locked for writing.
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

    /// Where its next data would best be: behind that which got its space last, so that the file stays together.
    pub(super) fn data_behind(&self) -> Option<Logical> {
        let behind = self.data_behind.load(Ordering::Relaxed);
        (behind > 0).then(|| Logical::new(behind))
    }

    /// Space up to `end` was given to it.
    pub(super) fn set_data_behind(&self, end: Logical) {
        self.data_behind.store(end.get(), Ordering::Relaxed);
    }

    /// What is written to it from now on is to be written back as soon as somebody closes it.
    pub(super) fn set_flush_on_close(&self) {
        self.flush_on_close.store(true, Ordering::Release);
    }

    /// Whether that is so, no more after that.
    pub(super) fn take_flush_on_close(&self) -> bool {
        self.flush_on_close.load(Ordering::Acquire) && self.flush_on_close.swap(false, Ordering::AcqRel)
    }
}

/// What the extents of a file were when somebody looked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExtentsSeen(u64);

/// The size of a file that is being cut, told until this goes: then the file has it, or is as long as cutting it has left it.
#[must_use]
pub(crate) struct ShownSize<'a> {
    file: &'a FileState,
}

impl Drop for ShownSize<'_> {
    fn drop(&mut self) {
        self.file.shown_size.store(SIZE_OF_ITEM, Ordering::Release);
    }
}
