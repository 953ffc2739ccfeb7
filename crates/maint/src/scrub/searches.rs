//! The trees that say what is in use, and how often a scrub searches them.

use std::sync::atomic::{AtomicU64, Ordering};

use creamery_tree::ReadAhead;
use creamery_txn::DurableTree;

/// Searches of a scrub from the root of a tree down. A cursor goes on from one item to the next without any, so their number does not follow that of
/// extents, of stripes, or of requests: there is one of each tree for each step of a device in a block group, or for all of its devices where it
/// has parity.
///
/// ```
/// let searches = creamery_maint::scrub::Searches::default();
/// assert_eq!((searches.extent_searches, searches.csum_searches), (0, 0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Searches {
    /// Of the extent tree.
    pub extent_searches: u64,
    /// Of the checksum tree.
    pub csum_searches: u64,
}

/// Counts them.
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

/// The trees of a group that say what is in use: extents, and checksums of data, where those can be read.
#[derive(Clone, Copy)]
pub(super) struct Trees<'t> {
    pub(super) extents: &'t DurableTree,
    pub(super) sums: Option<&'t DurableTree>,
    pub(super) ahead: ReadAhead,
    pub(super) searches: &'t SearchCounters,
}
