//! Rescans: counting every extent there is, in steps, beside working threads.
//!
//! A step counts the next extents from the last commit, while that is the one before the running transaction. Changes of the running transaction
//! below the mark are noted and counted when it closes (QGROUP-2). The mark stands in the status, so Creamery or Linux continues an
//! interrupted rescan from there.

use creamery_base::{Generation, Logical};

use super::changed::Roots;
use super::state::QuotaState;

/// Extents that a step counts.
pub(crate) const STEP: usize = 128;

/// The result of a step.
pub(crate) struct Counted {
    pub(crate) extents: Vec<(Roots, u64)>,
    /// Where the next extent begins; `None`, when everything is counted.
    pub(crate) next: Option<Logical>,
}

impl QuotaState {
    /// Adds the result of a step that began at `from`. It does nothing if the rescan has begun anew meanwhile.
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
            // The sum overflows 64 bits: only a hostile image does this, and a new rescan would find the same.
            self.give_up_rescan("a quota group has more than 64 bits hold".to_owned());
            return;
        }
        self.rescan = counted.next;
        if counted.next.is_none() {
            self.inconsistent = false;
        }
        // The next commit writes the new mark.
        self.written_in = Generation::default();
    }
}
