//! Commit roots: the trees as the last commit left them, read without locks under a guard.
//!
//! A guard names the generation whose roots it reads. Space that a later transaction freed may still be part of
//! what the guard reads, so it is handed out again only when no such guard is left.
//!
//! # Invariants
//! - PIN-1: space freed in transaction G is handed out only after G is durable and every guard is at G or later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Generation, Logical, memory};
use creamery_volume::Committed;

type Extents = Vec<(Logical, u64)>;

struct State {
    last: Generation,
    readers: BTreeMap<Generation, u64>,
    pinned: VecDeque<(Generation, Extents)>,
}

pub(crate) struct CommitRoots {
    state: Arc<RankedMutex<State, { rank::LEAF }>>,
}

/// As long as it lives, nothing that the commit of its generation reaches is handed out again.
///
/// ```no_run
/// # fn show(engine: &creamery_txn::Engine) {
/// let guard = engine.commit_root_guard();
/// println!("reading as of transaction {}", guard.generation());
/// # }
/// ```
#[must_use]
pub struct CommitRootGuard {
    generation: Generation,
    state: Arc<RankedMutex<State, { rank::LEAF }>>,
}

impl CommitRootGuard {
    /// The commit whose roots may be read.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }
}

impl Drop for CommitRootGuard {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let readers = state.readers.get_mut(&self.generation).expect("a guard is counted");
        *readers -= 1;
        if *readers == 0 {
            state.readers.remove(&self.generation);
        }
    }
}

impl CommitRoots {
    pub(crate) fn new(last: Generation) -> Self {
        let state = State { last, readers: BTreeMap::new(), pinned: VecDeque::new() };
        Self { state: Arc::new(RankedMutex::new(state)) }
    }

    /// A guard at the last commit.
    pub(crate) fn guard(&self) -> CommitRootGuard {
        let mut state = self.state.lock();
        let generation = state.last;
        *state.readers.entry(generation).or_insert(0) += 1;
        CommitRootGuard { generation, state: Arc::clone(&self.state) }
    }

    /// What the lists of what was freed take in memory, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let state = self.state.lock();
        let lists = state.pinned.iter().map(|(_, freed)| memory::vec::<(Logical, u64)>(freed.capacity()));
        memory::vec::<(Generation, Extents)>(state.pinned.capacity()) + lists.sum::<u64>()
    }

    /// Transaction `generation` is durable and freed these extents.
    pub(crate) fn publish(&self, generation: Generation, freed: Extents, _proof: &Committed) {
        self.advance(generation, freed);
    }

    fn advance(&self, generation: Generation, freed: Extents) {
        let mut state = self.state.lock();
        let last = state.last;
        assert!(generation > last, "PIN-1: what {generation} freed comes behind what {last} freed");
        state.last = generation;
        state.pinned.push_back((generation, freed));
    }

    /// Takes the extents that nobody can read any more (PIN-1).
    pub(crate) fn take_releasable(&self) -> Extents {
        let mut state = self.state.lock();
        let oldest = state.readers.keys().next().copied();
        let mut extents = Vec::new();
        while let Some((generation, _)) = state.pinned.front()
            && oldest.is_none_or(|oldest| oldest >= *generation)
        {
            let (freed_in, freed) = state.pinned.pop_front().expect("just seen");
            let last = state.last;
            assert!(
                freed_in <= last,
                "PIN-1: freed in transaction {freed_in}, and {last} is the last durable one"
            );
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
        let roots = CommitRoots::new(Generation::new(10));
        roots.advance(Generation::new(12), Vec::new());
        roots.advance(Generation::new(11), Vec::new());
    }

    #[test]
    #[should_panic(expected = "PIN-1")]
    fn what_is_not_durable_releases_nothing() {
        let roots = CommitRoots::new(Generation::new(10));
        roots.state.lock().pinned.push_back((Generation::new(11), Vec::new()));
        roots.take_releasable();
    }

    #[test]
    fn freed_space_waits_for_older_readers_only() {
        let roots = CommitRoots::new(Generation::new(10));
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
