//! Figures of counting quotas.

use std::sync::atomic::{AtomicU64, Ordering};

/// How extents were counted, since the filesystem was opened.
///
/// ```
/// assert_eq!(creamery_txn::QgroupCounters::default().walked, 0);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct QgroupCounters {
    /// Changes of extents whose subvolume was known without a walk.
    pub known: u64,
    /// Extents whose back references were walked when a transaction closed.
    pub walked: u64,
    /// Extents below blocks that deleted subvolumes shared.
    pub traced: u64,
    /// Extents that rescans counted.
    pub rescanned: u64,
    /// Requests that would have exceeded a limit.
    pub exceeded: u64,
}

/// A sum that grows.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Counting {
    pub(crate) known: Count,
    pub(crate) walked: Count,
    pub(crate) traced: Count,
    pub(crate) rescanned: Count,
    pub(crate) exceeded: Count,
}

impl Counting {
    pub(crate) fn figures(&self) -> QgroupCounters {
        let of = |count: &Count| count.0.load(Ordering::Relaxed);
        let Self { known, walked, traced, rescanned, exceeded } = self;
        QgroupCounters {
            known: of(known),
            walked: of(walked),
            traced: of(traced),
            rescanned: of(rescanned),
            exceeded: of(exceeded),
        }
    }
}
