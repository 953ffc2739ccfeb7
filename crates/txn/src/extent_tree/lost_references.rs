//! Data extents that lost a reference which the last durable commit has, or a log behind it.
//!
//! A file is its extent's only user as soon as the others have dropped their references. After a power cut these have them again until the
//! commit that drops them is durable: other files would then show data that was written in place for this file. So each
//! dropped reference is noted until then.
//!
//! # Invariants
//! - LOST-1: a dropped reference of a data extent is queued, or noted here, until the transaction that dropped it is durable or the
//!   extent is freed. Shown by `a_reference_that_was_dropped_counts_until_that_is_durable`,
//!   `a_committed_file_keeps_its_data_until_its_removal_is_durable`, `a_synced_clone_keeps_its_data_until_its_truncation_is_durable`.

use std::collections::BTreeMap;

use creamery_base::{Generation, Logical, memory};

use super::backref::Backref;

/// One or two of the references that an extent lost. Two are enough: they differ, so for any file one of them is another file's. More are not
/// kept, however many an extent loses.
#[derive(Clone, Copy)]
pub(super) struct Dropped {
    first: Backref,
    another: Option<Backref>,
}

impl Dropped {
    fn add(&mut self, backref: Backref) {
        if backref != self.first && self.another.is_none() {
            self.another = Some(backref);
        }
    }

    fn has_others(&self, user: Backref) -> bool {
        self.first != user || self.another.is_some_and(|another| another != user)
    }
}

pub(super) type ByExtent = BTreeMap<Logical, Dropped>;

/// The dropped references of some extents.
#[derive(Default)]
pub(super) struct LostReferences {
    /// References dropped in the running transaction.
    running: ByExtent,
    /// References dropped in closed transactions that are not durable, up to `closed_at`.
    closed: ByExtent,
    closed_at: Generation,
}

fn note(map: &mut ByExtent, at: Logical, backref: Backref) {
    let first = Dropped { first: backref, another: None };
    map.entry(at).and_modify(|dropped| dropped.add(backref)).or_insert(first);
}

impl LostReferences {
    /// Notes that the extent at `at` loses this reference in the running transaction.
    pub(super) fn note(&mut self, at: Logical, backref: Backref) {
        note(&mut self.running, at, backref);
    }

    /// Forgets a freed extent.
    pub(super) fn forget(&mut self, at: Logical) {
        self.running.remove(&at);
        self.closed.remove(&at);
    }

    /// Whether a user other than `user` may have the extent again after a power cut.
    pub(super) fn has_others(&self, at: Logical, user: Backref) -> bool {
        let of = |map: &ByExtent| map.get(&at).is_some_and(|dropped| dropped.has_others(user));
        of(&self.running) || of(&self.closed)
    }

    /// Closes the running transaction.
    pub(super) fn close(&mut self, generation: Generation) {
        self.closed_at = generation;
        let running = std::mem::take(&mut self.running);
        // Nearly always: the transaction before is durable by now.
        if self.closed.is_empty() {
            self.closed = running;
            return;
        }
        for (at, Dropped { first, another }) in running {
            [Some(first), another]
                .into_iter()
                .flatten()
                .for_each(|backref| note(&mut self.closed, at, backref));
        }
    }

    /// Forgets references of transactions up to `durable`. The caller drops the result without the lock.
    #[must_use]
    pub(super) fn forget_durable(&mut self, durable: Generation) -> ByExtent {
        if durable >= self.closed_at { std::mem::take(&mut self.closed) } else { ByExtent::new() }
    }

    /// Memory in use, bytes.
    pub(super) fn memory(&self) -> u64 {
        memory::btree::<Logical, Dropped>(self.running.len() + self.closed.len())
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::{ObjectId, TreeId};

    use super::*;

    #[test]
    fn an_extent_that_loses_many_references_has_others_for_each_of_its_users() {
        let file = |ino| Backref::ExtentData { root: TreeId::FS, ino: ObjectId::new(ino), offset: 0 };
        let (mut lost, at) = (LostReferences::default(), Logical::new(1 << 20));
        lost.note(at, file(300));
        assert!(!lost.has_others(at, file(300)) && lost.has_others(at, file(301)));
        let before = lost.memory();
        (0..1_000).for_each(|number| lost.note(at, file(300 + number)));
        lost.close(Generation::new(7));
        assert!((0..1_001).all(|number| lost.has_others(at, file(300 + number))));
        assert_eq!(lost.memory(), before);
    }
}
