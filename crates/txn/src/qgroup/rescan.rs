//! Rescans: counting every extent there is, in steps, beside those who write.
//!
//! A step counts the next extents as the last commit has them, while that is the one before the running transaction, whose changes
//! are noted and counted when it closes, for what is below the mark (QGROUP-2). The mark stands in the status, so a rescan that is
//! cut off goes on from there, for Linux, too.

use creamery_base::{Generation, Logical};

use super::changed::Roots;
use super::state::State;

/// Extents that a step counts.
pub(crate) const STEP: usize = 128;

/// What a step has counted.
pub(crate) struct Counted {
    pub(crate) extents: Vec<(Roots, u64)>,
    /// Where the next one begins; none, when everything is counted.
    pub(crate) next: Option<Logical>,
}

impl State {
    /// A step from `from` on was taken. Nothing, when the rescan has begun anew meanwhile.
    pub(crate) fn rescanned(&mut self, from: Logical, counted: &Counted) {
        if self.rescan != Some(from) {
            return;
        }
        if self.spoiled {
            self.restart_rescan();
            return;
        }
        let fits = |(roots, len): &(Roots, u64)| self.forest.count(&Roots::new(), roots, *len);
        if !counted.extents.iter().all(fits) {
            // More than 64 bits hold: an image says anything, and would say it again.
            self.give_up_rescan("a quota group has more than 64 bits hold".to_owned());
            return;
        }
        self.rescan = counted.next;
        if counted.next.is_none() {
            self.inconsistent = false;
        }
        // So that the next commit tells where it is.
        self.written_in = Generation::default();
    }
}
