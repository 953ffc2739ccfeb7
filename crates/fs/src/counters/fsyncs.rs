//! What became of calls of fsync, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// What became of calls of fsync for which there was something to do.
#[derive(Default)]
pub(crate) struct Fsyncs {
    pub(crate) logged: AtomicU64,
    pub(crate) names: AtomicU64,
    pub(crate) extents: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// The same, as it is now.
#[derive(Clone, Copy)]
pub(crate) struct FsyncCounters {
    pub(crate) logged: u64,
    pub(crate) names: u64,
    pub(crate) extents: u64,
    pub(crate) refused: u64,
}

impl Fsyncs {
    pub(crate) fn count(what: &AtomicU64) {
        what.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> FsyncCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FsyncCounters {
            logged: of(&self.logged),
            names: of(&self.names),
            extents: of(&self.extents),
            refused: of(&self.refused),
        }
    }
}
