//! Extents that the last commits freed, until no thread reads them any more.
//!
//! Space that a transaction freed may still be read by a thread with a guard at an earlier commit
//! ([`creamery_tree::Readers`]). It is handed out when no such guard is left (PIN-1).

use std::collections::VecDeque;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Generation, Logical, memory};
use creamery_tree::{CommitRootGuard, Readers};
use creamery_volume::Committed;

type FreedExtents = Vec<(Logical, u64)>;

/// The readers of commit roots, and the extents kept for them.
pub(crate) struct CommitRoots {
    readers: Readers,
    pinned: RankedMutex<VecDeque<(Generation, FreedExtents)>, { rank::LEAF }>,
}

impl CommitRoots {
    /// Creates the roots of a filesystem whose last commit is `last`.
    pub(crate) fn new(readers: Readers, last: Generation) -> Self {
        readers.advance(last);
        Self { readers, pinned: RankedMutex::default() }
    }

    /// A guard at the last commit.
    pub(crate) fn guard(&self) -> CommitRootGuard {
        self.readers.guard()
    }

    /// Memory of the lists of freed extents, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let pinned = self.pinned.lock();
        let lists = pinned.iter().map(|(_, freed)| memory::vec::<(Logical, u64)>(freed.capacity()));
        memory::vec::<(Generation, FreedExtents)>(pinned.capacity()) + lists.sum::<u64>()
    }

    /// Records that transaction `generation` is durable and freed these extents.
    pub(crate) fn publish(&self, generation: Generation, freed: FreedExtents, _proof: &Committed) {
        self.advance(generation, freed);
    }

    fn advance(&self, generation: Generation, freed: FreedExtents) {
        // First the readers: a guard taken meanwhile holds none of the extents back.
        self.readers.advance(generation);
        self.pinned.lock().push_back((generation, freed));
    }

    /// Whether freed extents wait for their readers.
    pub(crate) fn keeps_any(&self) -> bool {
        !self.pinned.lock().is_empty()
    }

    /// Takes the extents that no thread can read any more (PIN-1).
    pub(crate) fn take_releasable(&self) -> FreedExtents {
        let unread = self.readers.unread();
        let mut pinned = self.pinned.lock();
        let mut extents = Vec::new();
        while let Some((_, freed)) = pinned.pop_front_if(|(generation, _)| *generation <= unread) {
            extents.extend(freed);
        }
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "PIN-1")]
    fn transactions_that_end_out_of_order_are_a_bug() {
        let roots = CommitRoots::new(Readers::default(), Generation::new(10));
        roots.advance(Generation::new(12), Vec::new());
        roots.advance(Generation::new(11), Vec::new());
    }

    #[test]
    fn what_is_not_durable_releases_nothing() {
        let roots = CommitRoots::new(Readers::default(), Generation::new(10));
        roots.pinned.lock().push_back((Generation::new(11), Vec::new()));
        assert!(roots.take_releasable().is_empty());
    }

    #[test]
    fn freed_space_waits_for_older_readers_only() {
        let roots = CommitRoots::new(Readers::default(), Generation::new(10));
        let old_reader = roots.guard();
        let extent = (Logical::new(1 << 20), 16384);
        roots.advance(Generation::new(11), vec![extent]);
        let new_reader = roots.guard();
        assert_eq!(new_reader.generation(), Generation::new(11));
        assert!(roots.take_releasable().is_empty());
        drop(old_reader);
        assert_eq!(roots.take_releasable(), [extent]);
        drop(new_reader);
    }
}
