//! Faults that tests plant, each the way something once was done wrong: a harness that finds nothing proves little, so it has to
//! find these. Without the feature `faults` none can be planted, and nothing is left of them.

use super::Engine;

impl Engine {
    /// Readers can see the checksum tree while an item is cut, half done.
    pub fn remove_csums_in_two_steps(&self) {
        self.csum_tree.remove_in_two_steps();
    }

    /// Who asks how often a block is referred to does not see that what was queued is on its way into the tree.
    pub fn run_refs_unlocked(&self) {
        self.extent_tree.refs().run_unlocked();
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
