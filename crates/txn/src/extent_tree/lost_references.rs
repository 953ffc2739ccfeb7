//! Data extents that lost a reference which the last durable commit has, or a log behind it.
//!
//! A file is its extent's only user as soon as the others have dropped their references. After a power cut these have them again until the
//! commit that drops them is durable: what is written in place before that is read by files to which it was never written. So each
//! reference that is dropped is noted, until then.
//!
//! # Invariants
//! - LOST-1: a reference of a data extent that was dropped is queued, or noted here, until the transaction that dropped it is durable or the
//!   extent is freed. Shown by `a_reference_that_was_dropped_counts_until_that_is_durable`,
//!   `a_committed_file_keeps_its_data_until_its_removal_is_durable`, `a_synced_clone_keeps_its_data_until_its_truncation_is_durable`.

use std::collections::BTreeMap;

use creamery_base::{Generation, Logical, memory};
use smallvec::SmallVec;

use super::backref::Backref;

type ByExtent = BTreeMap<Logical, SmallVec<[Backref; 1]>>;

/// The dropped references of some extents.
#[derive(Default)]
pub(super) struct LostReferences {
    /// Of the running transaction.
    running: ByExtent,
    /// Of those that closed and are not durable, up to this one.
    closed: ByExtent,
    closed_at: Generation,
}

impl LostReferences {
    /// The extent at `at` loses this reference in the running transaction.
    pub(super) fn note(&mut self, at: Logical, backref: Backref) {
        let known = self.running.entry(at).or_default();
        if !known.contains(&backref) {
            known.push(backref);
        }
    }

    /// Nobody has the extent any more.
    pub(super) fn forget(&mut self, at: Logical) {
        self.running.remove(&at);
        self.closed.remove(&at);
    }

    /// Whether anybody but `user` may have the extent again after a power cut.
    pub(super) fn has_others(&self, at: Logical, user: Backref) -> bool {
        [&self.running, &self.closed]
            .into_iter()
            .filter_map(|of| of.get(&at))
            .flatten()
            .any(|backref| *backref != user)
    }

    /// The running transaction closes.
    pub(super) fn close(&mut self, generation: Generation) {
        for (at, backrefs) in std::mem::take(&mut self.running) {
            self.closed.entry(at).or_default().extend(backrefs);
        }
        self.closed_at = generation;
    }

    /// Transaction `durable` is durable.
    pub(super) fn forget_durable(&mut self, durable: Generation) {
        if durable >= self.closed_at {
            self.closed.clear();
        }
    }

    /// What they take in memory, bytes.
    pub(super) fn memory(&self) -> u64 {
        let of = |map: &ByExtent| {
            let spilled = map.values().filter(|backrefs| backrefs.spilled());
            let outside: u64 = spilled.map(|backrefs| memory::vec::<Backref>(backrefs.capacity())).sum();
            memory::btree::<Logical, SmallVec<[Backref; 1]>>(map.len()) + outside
        };
        of(&self.running) + of(&self.closed)
    }
}
