//! Pages of the kernel's cache under writes that bypass it.
//!
//! A write with O_DIRECT bypasses the kernel's page cache, and so does each write to a file that was opened with `FOPEN_DIRECT_IO`. Before the kernel
//! sends it, it drops the pages of its range. Other programs may read the file through the cache, or have it mapped. A page that they
//! fetch while the write is in flight has the data from before. If the writer waits for the answer (pwrite), the kernel drops the
//! pages once more after it; for a write by libaio or io_uring it does not (Linux 6.18, measured: every other one of these, beside two
//! readers, left old pages for good).
//!
//! The request does not show which of the two a WRITE is. So the server makes the kernel drop the pages (`mapped_pages`), between the
//! write and its answer: a reader finds the new data as soon as the write is answered.
//!
//! That costs as much as a small write. If no process uses the cache, as with a database with its own cache, there is nothing to drop. A request shows
//! whether it fills pages: the kernel names an owner of locks in requests that bypass the cache, and none in others. So for each
//! open file this module records whether a request has filled pages since all of them were dropped, and the number of handles with such requests.
//! While there are such handles, each write drops the pages of its own range, and the pages around it stay. After they are closed, one last write
//! drops all pages, and later writes need nothing.
//!
//! # Invariants
//! - PAGES-1: a request that fills pages is recorded before the file is read or written for it. So a write that ends after that read
//!   finds the record, and a page with the old data is in the cache when the kernel is notified.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The state of the kernel's pages of an open file.
#[derive(Default, Debug)]
pub(crate) struct KeptPages {
    /// Number of requests that filled pages.
    filled: AtomicU64,
    /// That number when all pages were dropped.
    dropped: AtomicU64,
    /// Number of handles that filled pages and are open.
    fillers: AtomicUsize,
}

/// Whether a handle has filled pages.
#[derive(Default, Debug)]
pub(crate) struct HasFilled(AtomicBool);

/// The pages that may have the data from before a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stale {
    /// No pages.
    Nothing,
    /// The pages of the write.
    Written,
    /// The pages of the write. No handle fills pages any more: all are to be dropped, and then [`KeptPages::dropped`] is called with this.
    All(Filled),
}

/// A number of requests that had filled pages at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Filled(u64);

impl KeptPages {
    /// Records that a request of a handle is about to fill pages (PAGES-1).
    pub(crate) fn fill(&self, handle: &HasFilled) {
        if !handle.0.swap(true, Ordering::AcqRel) {
            self.fillers.fetch_add(1, Ordering::AcqRel);
        }
        self.filled.fetch_add(1, Ordering::AcqRel);
    }

    /// Closes a handle.
    pub(crate) fn close(&self, handle: &HasFilled) {
        if handle.0.load(Ordering::Acquire) {
            self.fillers.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The pages to drop after a write that has ended.
    pub(crate) fn behind_a_write(&self) -> Stale {
        let filled = self.filled.load(Ordering::Acquire);
        if filled == self.dropped.load(Ordering::Acquire) {
            return Stale::Nothing;
        }
        if self.fillers.load(Ordering::Acquire) > 0 {
            return Stale::Written;
        }
        Stale::All(Filled(filled))
    }

    /// Records that the kernel has dropped all pages of these requests. Until then each write drops its pages.
    pub(crate) fn dropped(&self, Filled(filled): Filled) {
        self.dropped.fetch_max(filled, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_dropped_behind_writes_as_long_as_somebody_fills_them_and_once_more() {
        let (pages, reader, mapper) = (KeptPages::default(), HasFilled::default(), HasFilled::default());
        assert_eq!(pages.behind_a_write(), Stale::Nothing);
        pages.fill(&reader);
        pages.fill(&reader);
        pages.fill(&mapper);
        assert_eq!(pages.behind_a_write(), Stale::Written);
        pages.close(&reader);
        assert_eq!(pages.behind_a_write(), Stale::Written);
        pages.close(&mapper);
        let Stale::All(filled) = pages.behind_a_write() else { panic!("nobody uses them") };
        assert_eq!(pages.behind_a_write(), Stale::All(filled), "they are not dropped yet");
        let later = HasFilled::default();
        pages.fill(&later);
        pages.dropped(filled);
        assert_eq!(pages.behind_a_write(), Stale::Written, "filled meanwhile");
        pages.close(&later);
        let Stale::All(filled) = pages.behind_a_write() else { panic!("nobody uses them") };
        pages.dropped(filled);
        assert_eq!(pages.behind_a_write(), Stale::Nothing);
    }

    #[test]
    fn handles_that_fill_nothing_do_not_count() {
        let (pages, direct, reader) = (KeptPages::default(), HasFilled::default(), HasFilled::default());
        pages.fill(&reader);
        pages.close(&direct);
        assert_eq!(pages.behind_a_write(), Stale::Written);
    }
}
