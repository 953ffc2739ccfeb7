//! Faults for tests, each a mistake that was made once: a harness that finds nothing proves little, so it has to
//! find these. Without the feature `faults` they are not compiled.

use std::time::Duration;

use super::Engine;
use crate::commit::Closed;

impl Engine {
    /// Begins the next transaction beside handles of this one (TXN-GATE-2).
    pub fn begin_next_beside_handles(&self) {
        self.transaction.begin_next_beside_handles();
    }

    /// Closes the transaction and leaves its written data behind (TXN-GATE-3).
    pub fn begin_next_unflushed(&self) {
        self.transaction.close().begin_next();
    }

    /// Asks for the removal of groups although there are none to remove.
    pub fn want_removal_of_nothing(&self) {
        self.chunks.want_removal();
    }

    /// Makes a commit's critical section skip all changes that were put off (COMMIT-1).
    pub fn settle_nothing(&self) {
        self.settles_nothing.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Begins to write out a transaction while another one is written (WRITEOUT-1).
    pub fn write_out_two(&self) {
        (0..2).for_each(|_| self.begin_to_write_nothing());
    }

    /// Takes a batch, drops it unwritten, and waits for the write-out (WRITEOUT-2).
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

    /// Forgets queued changes of an extent that cancel out, though the extent's roots may have changed (QGROUP-1).
    pub fn forget_cancelled_refs(&self) {
        self.extent_tree.refs().set_keeps_cancelled(false);
    }

    /// Lets readers see the checksum tree while an item is cut, half done.
    pub fn remove_csums_in_two_steps(&self) {
        self.csum_tree.remove_in_two_steps();
    }

    /// Calls `before` before each look whether data has checksums; it may take any time.
    pub fn before_csum_look_ups(&self, before: impl Fn() + Send + Sync + 'static) {
        self.csum_tree.before_look(Box::new(before));
    }

    /// Runs `beside` while a queued change of an extent is on its way into the extent tree. False when none is queued.
    pub fn while_ref_head_runs(&self, at: creamery_base::Logical, beside: impl FnOnce()) -> bool {
        let Some(head) = self.extent_tree.refs().lock(at) else { return false };
        beside();
        drop(head); // it has not run: it is queued again
        true
    }

    /// Hides queued changes on their way into the tree from a look at a block's references.
    pub fn run_refs_unlocked(&self) {
        self.extent_tree.refs().run_unlocked();
    }

    /// Makes promises leave room for blocks that this transaction has copied already.
    pub fn reckon_copies_twice(&self) {
        self.reservations.reckon_copies_twice();
    }

    /// Makes handles not hold off the commit.
    pub fn forget_the_gate(&self) {
        self.transaction.forget_the_gate();
    }

    /// Makes a reservation without room fail, although reclaimers could make some.
    pub fn forget_reclaimers(&self) {
        self.reclaimers.forget();
    }
}
