//! The trees that hold the space in use, and the number of searches that a scrub makes in them.

use std::sync::atomic::{AtomicU64, Ordering};

use creamery_tree::ReadAhead;
use creamery_txn::DurableTree;

/// Searches of a scrub from the root of a tree down. A cursor goes on from one item to the next without a search, so their number does not
/// depend on the number of extents, stripes, or requests: each step of a device in a block group makes one search in each tree. With
/// parity, it is one step for all devices.
///
/// ```
/// let searches = creamery_maint::scrub::Searches::default();
/// assert_eq!((searches.extent_searches, searches.csum_searches), (0, 0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Searches {
    /// Searches in the extent tree.
    pub extent_searches: u64,
    /// Searches in the checksum tree.
    pub csum_searches: u64,
}

/// Counts the searches.
#[derive(Default, Debug)]
pub(super) struct SearchCounters {
    extents: AtomicU64,
    sums: AtomicU64,
}

impl SearchCounters {
    pub(super) fn count_of_extents(&self) {
        self.extents.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_of_sums(&self) {
        self.sums.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Searches {
        Searches {
            extent_searches: self.extents.load(Ordering::Relaxed),
            csum_searches: self.sums.load(Ordering::Relaxed),
        }
    }
}

/// The trees of a group that hold the space in use: extents, and checksums of data, if those can be read.
#[derive(Clone, Copy)]
pub(super) struct Trees<'t> {
    pub(super) extents: &'t DurableTree,
    pub(super) sums: Option<&'t DurableTree>,
    pub(super) ahead: ReadAhead,
    pub(super) searches: &'t SearchCounters,
}
