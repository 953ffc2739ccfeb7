//! Faults that tests plant, each the way something once was done wrong: a harness that finds nothing proves little, so it has to
//! find these. Without the feature `faults` none can be planted, and nothing is left of them.

use std::time::Duration;

use super::Engine;
use crate::commit::Closed;

impl Engine {
    /// The next transaction begins beside those who have handles of this one (GATE-2).
    pub fn begin_next_beside_handles(&self) {
        self.transaction.begin_next_beside_handles();
    }

    /// The transaction closes, and what was written for it stays behind (GATE-3).
    pub fn begin_next_unflushed(&self) {
        self.transaction.close().begin_next();
    }

    /// Somebody wants groups to be removed, and there are none.
    pub fn want_removal_of_nothing(&self) {
        self.chunks.want_removal();
    }

    /// A commit's critical section does nothing of what was put off (COMMIT-1).
    pub fn settle_nothing(&self) {
        self.settles_nothing.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// A transaction begins to be written out while another one is (WRITEOUT-1).
    pub fn write_out_two(&self) {
        (0..2).for_each(|_| self.begin_to_write_nothing());
    }

    /// Who has taken a batch goes away without a word, and another one waits for it (WRITEOUT-2).
    pub fn lose_a_batch(&self) -> creamery_base::Result<()> {
        self.begin_to_write_nothing();
        self.pipeline.write_out.lose_a_batch();
        self.end_write_out()
    }

    fn begin_to_write_nothing(&self) {
        let (superblock, nothing) = (self.volume().superblock(), || self.volume().nothing_written());
        let (generation, begun) = (self.generation(), Duration::ZERO);
        let closed =
            Closed { generation, superblock, block_count: 0, pinned: Vec::new(), written: nothing(), begun };
        self.pipeline.write_out.begin(&self.transaction, closed, &[], nothing());
    }

    /// What is queued for an extent and cancels out is forgotten, though the extent's roots may have changed (QGROUP-1).
    pub fn forget_cancelled_refs(&self) {
        self.extent_tree.refs().set_keeps_cancelled(false);
    }

    /// Readers can see the checksum tree while an item is cut, half done.
    pub fn remove_csums_in_two_steps(&self) {
        self.csum_tree.remove_in_two_steps();
    }

    /// Has something done before somebody looks whether data has checksums: that takes as long as it likes.
    pub fn before_csum_look_ups(&self, before: impl Fn() + Send + Sync + 'static) {
        self.csum_tree.before_look(Box::new(before));
    }

    /// Runs `beside` while what is queued for an extent is on its way into the extent tree. False when nothing is.
    pub fn while_ref_head_runs(&self, at: creamery_base::Logical, beside: impl FnOnce()) -> bool {
        let Some(head) = self.extent_tree.refs().lock(at) else { return false };
        beside();
        drop(head); // nothing of it has run: it is queued again
        true
    }

    /// Who asks how often a block is referred to does not see that what was queued is on its way into the tree.
    pub fn run_refs_unlocked(&self) {
        self.extent_tree.refs().run_unlocked();
    }

    /// Promises leave room for what this transaction has copied already.
    pub fn reckon_copies_twice(&self) {
        self.reservations.reckon_copies_twice();
    }

    /// Who has a handle does not hold off the commit.
    pub fn forget_the_gate(&self) {
        self.transaction.forget_the_gate();
    }

    /// Who finds no room is told so, whatever others have put off that would make some.
    pub fn forget_reclaimers(&self) {
        self.reclaimers.forget();
    }
}
