//! The part of an inode in memory that only a directory has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::memory;

use super::acl::Acl;
use crate::delayed::DelayedNode;

/// The part of an inode in memory that only a directory has.
pub(crate) struct DirectoryState {
    /// The next free DIR_INDEX number; 0 = not looked up yet. Only a thread that has the directory alone reads and raises it, so
    /// relaxed loads and stores are enough.
    next_index: AtomicU64,
    /// The default ACL, once looked up.
    default_acl: RankedMutex<Option<Option<Arc<Acl>>>, { rank::LEAF }>,
    /// The delayed items, once entries changed.
    delayed: OnceLock<Arc<DelayedNode>>,
}

impl DirectoryState {
    pub(super) fn new() -> Self {
        Self { next_index: AtomicU64::new(0), default_acl: RankedMutex::new(None), delayed: OnceLock::new() }
    }

    /// The delayed items, once entries changed.
    pub(super) fn delayed(&self) -> Option<&Arc<DelayedNode>> {
        self.delayed.get()
    }

    /// Whether any delayed item is unwritten.
    pub(super) fn is_unwritten(&self) -> bool {
        self.delayed.get().is_some_and(|delayed| delayed.any())
    }

    /// The heap memory it takes, bytes. [`DelayedRoot`](crate::delayed::DelayedRoot) counts delayed entries.
    pub(super) fn memory(&self) -> u64 {
        let acl = self.default_acl.lock().as_ref().map_or(0, |acl| acl.as_deref().map_or(0, Acl::memory));
        acl + self.delayed.get().map_or(0, |_| memory::shared::<DelayedNode>())
    }

    /// The next free DIR_INDEX number; 0 before the first lookup.
    pub(super) fn next_index(&self) -> u64 {
        self.next_index.load(Ordering::Relaxed)
    }

    /// Notes the next free DIR_INDEX number.
    pub(super) fn set_next_index(&self, index: u64) {
        assert!(index >= self.next_index(), "DIR-2: a number is not given again");
        self.next_index.store(index, Ordering::Relaxed);
    }

    /// The default ACL, if it was looked up.
    pub(super) fn known_default_acl(&self) -> Option<Option<Arc<Acl>>> {
        self.default_acl.lock().clone()
    }

    /// Remembers the default ACL.
    pub(super) fn set_known_default_acl(&self, acl: Option<Arc<Acl>>) {
        *self.default_acl.lock() = Some(acl);
    }

    /// The delayed items; `make` makes them if there are none.
    pub(super) fn delayed_or(&self, make: impl FnOnce() -> DelayedNode) -> &Arc<DelayedNode> {
        self.delayed.get_or_init(|| Arc::new(make()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "DIR-2")]
    fn an_index_number_that_is_given_again_is_a_bug() {
        let state = DirectoryState::new();
        state.set_next_index(7);
        state.set_next_index(6);
    }
}
