//! Who reads what a commit left: as long as he does, nothing of it is handed out again.
//!
//! Space that a transaction frees is part of the trees as the last commit left them, and may be part of what somebody reads who
//! takes no locks. Such a reader has a guard. It names the last commit; what later transactions free waits for it.
//!
//! # Invariants
//! - PIN-1: space freed in transaction G is handed out only after G is durable and every guard is at G or later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use creamery_base::Generation;
use creamery_base::gate::Reason;
use creamery_base::lock::{RankedCondvar, RankedMutex, rank};

struct State {
    last: Generation,
    readers: BTreeMap<Generation, u64>,
}

/// The guards there are.
///
/// ```
/// use creamery_base::Generation;
/// let readers = creamery_tree::Readers::default();
/// readers.advance(Generation::new(8));
/// let guard = readers.guard();
/// readers.advance(Generation::new(9));
/// assert_eq!(readers.unread(), guard.generation());
/// ```
#[derive(Clone)]
pub struct Readers(Arc<Shared>);

struct Shared {
    state: RankedMutex<State, { rank::LEAF }>,
    /// The last guard at some commit is gone.
    gone: RankedCondvar,
}

/// As long as it lives, nothing that the commit of its generation reaches is handed out again.
///
/// ```
/// let readers = creamery_tree::Readers::default();
/// let guard = readers.guard();
/// println!("reading as of transaction {}", guard.generation());
/// ```
#[must_use]
pub struct CommitRootGuard {
    generation: Generation,
    readers: Readers,
}

impl Default for Readers {
    /// Of a filesystem of which no commit is known yet.
    fn default() -> Self {
        let state = State { last: Generation::new(0), readers: BTreeMap::new() };
        Self(Arc::new(Shared { state: RankedMutex::new(state), gone: RankedCondvar::new() }))
    }
}

impl Readers {
    /// A guard at the last commit.
    pub fn guard(&self) -> CommitRootGuard {
        let mut state = self.0.state.lock();
        let generation = state.last;
        *state.readers.entry(generation).or_insert(0) += 1;
        CommitRootGuard { generation, readers: self.clone() }
    }

    /// `generation` is the last commit from here on.
    ///
    /// # Panics
    /// When a later one was (PIN-1).
    pub fn advance(&self, generation: Generation) {
        let mut state = self.0.state.lock();
        let last = state.last;
        assert!(generation > last, "PIN-1: what {generation} freed comes behind what {last} freed");
        state.last = generation;
    }

    /// Waits until nobody reads what was freed before the last commit, for `most` at most. For who has no guard, and needs that space.
    pub fn wait(&self, most: Duration) {
        let state = self.0.state.lock();
        let reads =
            |state: &mut State| state.readers.keys().next().is_some_and(|oldest| *oldest < state.last);
        drop(self.0.gone.pass_while_for(Reason::Reservation, state, most, reads));
    }

    /// Up to which transaction nobody reads what was freed, nor will: every guard is there or later, and the commit is the last.
    #[must_use]
    pub fn unread(&self) -> Generation {
        let state = self.0.state.lock();
        state.readers.keys().next().map_or(state.last, |oldest| state.last.min(*oldest))
    }
}

impl CommitRootGuard {
    /// The commit whose roots may be read.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }
}

impl Clone for CommitRootGuard {
    /// One more guard at the same commit.
    fn clone(&self) -> Self {
        *self.readers.0.state.lock().readers.entry(self.generation).or_insert(0) += 1;
        Self { generation: self.generation, readers: self.readers.clone() }
    }
}

impl Drop for CommitRootGuard {
    fn drop(&mut self) {
        let mut state = self.readers.0.state.lock();
        let readers = state.readers.get_mut(&self.generation).expect("a guard is counted");
        *readers -= 1;
        if *readers == 0 {
            state.readers.remove(&self.generation);
            drop(state);
            self.readers.0.gone.notify_all();
        }
    }
}
