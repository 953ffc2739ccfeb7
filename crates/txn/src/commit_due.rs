//! When a commit falls due.

use creamery_tree::BufferStore;

use crate::extent_tree::ExtentTree;
use crate::qgroup::Qgroups;

/// Handles run heads from this part of [`Options::delayed_refs_max`](crate::Options::delayed_refs_max) on.
const RUN_FROM: usize = 4;

/// Decides whether waiting changes ask for a commit.
#[derive(Clone, Copy)]
pub(crate) struct CommitDue<'e> {
    pub(crate) store: &'e BufferStore,
    pub(crate) extent_tree: &'e ExtentTree,
    pub(crate) qgroups: &'e Qgroups,
    /// Bytes of dirty tree blocks to have at most.
    pub(crate) dirty_max: u64,
    /// Extents with queued changes of references at which a commit is due.
    pub(crate) refs_max: usize,
}

impl CommitDue<'_> {
    /// Whether so many heads wait that handles run some of them.
    #[inline]
    pub(crate) fn many_refs_wait(&self) -> bool {
        self.extent_tree.refs().len() > self.refs_max / RUN_FROM
    }

    /// Whether memory, or the length of the commit, asks for a commit. Each commit makes later changes copy blocks again, so the later
    /// the better; the rest of the budget is for threads that go on during the commit.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_more_waiting(self.dirty_max / 4 * 3) || self.qgroups.is_much_noted()
    }

    /// Whether waiting changes, and those that a commit is writing out, take all of the budget.
    #[inline]
    pub(crate) fn is_budget_used(&self) -> bool {
        self.is_more_waiting(self.dirty_max.saturating_sub(self.store.writing_bytes()))
    }

    #[inline]
    fn is_more_waiting(&self, dirty_max: u64) -> bool {
        self.store.dirty_bytes() > dirty_max || self.extent_tree.refs().len() > self.refs_max
    }
}
