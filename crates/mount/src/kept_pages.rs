//! Pages of the kernel's cache under writes that go around it.
//!
//! A write of O_DIRECT comes around the kernel's page cache, and so does each write of a file that was opened with `FOPEN_DIRECT_IO`. Before it is
//! sent the kernel drops the pages of its range. Other programs may read the file through the cache, or have it mapped. A page that they
//! fetch while the write is on its way has what was there before. Where the writer waits for the answer (pwrite) the kernel drops the
//! pages once more behind it; of a write by libaio or io_uring it does not (Linux 6.18, measured: every other one of these, beside two
//! readers, left old pages for good).
//!
//! Which of the two a WRITE is, is not in the request. So the server has the pages dropped (`mapped_pages`), between the
//! write and its answer: a reader finds what was written as soon as that is answered.
//!
//! That costs as much as a small write. Where nobody uses the cache, as beside a database with a cache of its own, there is nothing to drop. A request says
//! whether it fills pages: the kernel names an owner of locks in those that go around them, and none in others. So for each
//! file that is open this keeps whether a request has filled pages since all of them were dropped, and how many handles there are that did.
//! While there are such handles each write has its own range dropped, and the pages around it stay. When they are closed one last write
//! has all of them dropped, and the next need nothing.
//!
//! # Invariants
//! - PAGES-1: a request that fills pages is noted before the file is read or written for it. So a write that ends after that was read
//!   finds the note, and a page with what was there before is in the cache when the kernel is told.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What the kernel has of a file that is open.
#[derive(Default, Debug)]
pub(crate) struct KeptPages {
    /// Requests that filled pages, ever.
    filled: AtomicU64,
    /// How many of them had when all pages were dropped.
    dropped: AtomicU64,
    /// Handles that did, ever.
    fillers: AtomicUsize,
}

/// Whether a handle has filled pages.
#[derive(Default, Debug)]
pub(crate) struct HasFilled(AtomicBool);

/// Which pages may have what was there before a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stale {
    /// None.
    Nothing,
    /// Those of the write.
    Written,
    /// Those of the write. Nobody uses the others: all are to be dropped, and [`KeptPages::dropped`] then hears this.
    All(Filled),
}

/// How many requests had filled pages at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Filled(u64);

impl KeptPages {
    /// A request of a handle is about to fill pages (PAGES-1).
    pub(crate) fn fill(&self, handle: &HasFilled) {
        if !handle.0.swap(true, Ordering::AcqRel) {
            self.fillers.fetch_add(1, Ordering::AcqRel);
        }
        self.filled.fetch_add(1, Ordering::AcqRel);
    }

    /// A handle is closed.
    pub(crate) fn close(&self, handle: &HasFilled) {
        if handle.0.load(Ordering::Acquire) {
            self.fillers.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// What is to be dropped behind a write that has ended.
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

    /// The kernel has dropped all pages that these had filled. Until then each write has them dropped.
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
