//! Turns to commit, and commits that serve several threads.
//!
//! Several threads ask for a commit at once: each fsync is one. One of them has the turn. When its transaction is durable, all threads whose
//! changes were part of it return, and one of the others has the next turn. So a commit serves every thread that asked while
//! the one before was on its way.
//!
//! Threads that write and sync in turn would then split into two halves, each waiting for the other's commit, or into more parts: the thread that
//! comes back first would commit for itself alone. So a thread that gets its turn right after a commit that served several waits until as
//! many ask again, at most as long as that commit took ([`CommitTurns::gather`]).
//!
//! # Invariants
//! - TURN-1: one commit at a time closes a transaction; a turn is given back however its owner leaves.
//! - TURN-2: a thread that returns without a turn finds its changes durable.

use std::collections::BTreeMap;
use std::time::Duration;

use creamery_base::Generation;
use creamery_base::gate::Reason;
use creamery_base::lock::{HeldNote, LockPosition, RankedCondvar, RankedMutex, rank};

/// Longest wait for other threads to ask.
const GATHER_MAX: Duration = Duration::from_millis(10);

struct TurnState {
    taken: bool,
    /// The last transaction that is durable.
    durable: Generation,
    /// How many threads have asked for each transaction that is not durable.
    asked: BTreeMap<Generation, usize>,
    /// The last commit.
    last: LastCommit,
}

/// The record of a commit.
#[derive(Clone, Copy, Default)]
struct LastCommit {
    /// How many threads had asked for it.
    served: usize,
    took: Duration,
    /// When it became durable, by the engine's monotonic clock.
    ended: Duration,
}

/// Turns to commit.
pub(crate) struct CommitTurns {
    state: RankedMutex<TurnState, { rank::LEAF }>,
    /// A turn was given back, or a transaction is durable.
    changed: RankedCondvar,
    /// A thread has asked; wakes a gathering one.
    more: RankedCondvar,
}

/// The right to close a transaction and to have it written (TURN-1).
#[must_use]
pub(crate) struct CommitTurn<'c> {
    turns: &'c CommitTurns,
    /// The transaction that was asked for, if the turn has one.
    asked: Option<Generation>,
    _held: HeldNote,
}

impl Drop for CommitTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        assert!(state.taken, "TURN-1: a turn is given back once");
        state.taken = false;
        // Nothing became durable: there was nothing to commit, or the commit failed.
        if let Some(generation) = self.asked
            && let Some(asked) = state.asked.get_mut(&generation)
        {
            *asked -= 1;
            if *asked == 0 {
                state.asked.remove(&generation);
            }
        }
        drop(state);
        self.turns.changed.notify_all();
    }
}

impl CommitTurns {
    pub(crate) fn new(durable: Generation) -> Self {
        let state = TurnState { taken: false, durable, asked: BTreeMap::new(), last: LastCommit::default() };
        Self { state: RankedMutex::new(state), changed: RankedCondvar::new(), more: RankedCondvar::new() }
    }

    /// Waits for a turn; `None` when transaction `generation` has become durable meanwhile (TURN-2).
    pub(crate) fn take_unless_durable(&self, generation: Generation) -> Option<CommitTurn<'_>> {
        let held = HeldNote::wait(LockPosition::of(rank::COMMIT));
        let mut state = self.state.lock();
        if state.durable < generation {
            *state.asked.entry(generation).or_default() += 1;
            self.more.notify_all();
        }
        let waits = |state: &mut TurnState| state.taken && state.durable < generation;
        if waits(&mut state) {
            state = self.changed.pass_while(Reason::Commit, state, waits);
        }
        if state.durable >= generation {
            return None;
        }
        state.taken = true;
        drop(state);
        Some(CommitTurn { turns: self, asked: Some(generation), _held: held })
    }

    /// Waits for a turn, even if transactions become durable meanwhile.
    pub(crate) fn take(&self) -> CommitTurn<'_> {
        let held = HeldNote::wait(LockPosition::of(rank::COMMIT));
        let mut state = self.state.lock();
        if state.taken {
            let taken = |state: &mut TurnState| state.taken;
            state = self.changed.pass_while(Reason::Commit, state, taken);
        }
        state.taken = true;
        drop(state);
        CommitTurn { turns: self, asked: None, _held: held }
    }

    /// Takes a turn, if no thread has it.
    pub(crate) fn try_take(&self) -> Option<CommitTurn<'_>> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.taken, true) {
            return None;
        }
        drop(state);
        Some(CommitTurn { turns: self, asked: None, _held: HeldNote::tried(LockPosition::of(rank::COMMIT)) })
    }

    /// Whether a thread has the turn.
    pub(crate) fn is_taken(&self) -> bool {
        self.state.lock().taken
    }

    /// Waits for the threads that the last commit served to ask for `generation`, if that commit ended just before `now`.
    pub(crate) fn gather(&self, _turn: &CommitTurn<'_>, generation: Generation, now: Duration) {
        let state = self.state.lock();
        let LastCommit { served, took, ended } = state.last;
        let limit = took.min(GATHER_MAX);
        if served <= 1 || now.saturating_sub(ended) > limit {
            return;
        }
        let missing = |state: &mut TurnState| state.asked_through(generation) < served;
        drop(self.more.pass_while_for(Reason::Commit, state, limit, missing));
    }

    /// Records that transaction `generation`, whose commit took `took`, is durable at `now`.
    pub(crate) fn durable(&self, generation: Generation, took: Duration, now: Duration) {
        let mut state = self.state.lock();
        let durable = state.durable;
        assert!(
            generation > durable,
            "TURN-2: transaction {generation} becomes durable, and {durable} has already"
        );
        state.durable = generation;
        state.last = LastCommit { served: state.asked_through(generation), took, ended: now };
        state.asked.retain(|asked, _| *asked > generation);
        drop(state);
        self.changed.notify_all();
    }
}

impl TurnState {
    /// How many threads have asked for a transaction or one before it.
    fn asked_through(&self, generation: Generation) -> usize {
        self.asked.range(..=generation).map(|(_, asked)| asked).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_overtaken_needs_no_turn() {
        let turns = CommitTurns::new(Generation::new(7));
        assert!(turns.take_unless_durable(Generation::new(7)).is_none());
        let turn = turns.take_unless_durable(Generation::new(8)).expect("nobody has it");
        assert!(turns.try_take().is_none());
        std::thread::scope(|scope| {
            let overtaken = scope.spawn(|| turns.take_unless_durable(Generation::new(8)).is_none());
            let next = scope.spawn(|| turns.take_unless_durable(Generation::new(9)).is_some());
            std::thread::yield_now();
            turns.durable(Generation::new(8), Duration::ZERO, Duration::ZERO);
            assert!(overtaken.join().expect("it returns"), "before the turn is given back");
            drop(turn);
            assert!(next.join().expect("it returns"));
        });
        assert!(turns.try_take().is_some());
    }

    #[test]
    #[should_panic(expected = "TURN-1")]
    fn a_turn_that_nobody_took_is_a_bug() {
        let turns = CommitTurns::new(Generation::new(7));
        drop(CommitTurn {
            turns: &turns,
            asked: None,
            _held: HeldNote::tried(LockPosition::of(rank::COMMIT)),
        });
    }

    #[test]
    #[should_panic(expected = "TURN-2")]
    fn a_transaction_that_is_durable_twice_is_a_bug() {
        let turns = CommitTurns::new(Generation::new(7));
        turns.durable(Generation::new(7), Duration::ZERO, Duration::ZERO);
    }

    #[test]
    fn a_turn_comes_back_from_who_panics() {
        let turns = CommitTurns::new(Generation::new(7));
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _turn = turns.take();
            panic!("in its turn");
        }));
        assert!(died.is_err());
        drop(turns.take());
    }

    #[test]
    fn who_comes_back_first_waits_for_the_others() {
        let turns = CommitTurns::new(Generation::new(7));
        let (eight, nine) = (Generation::new(8), Generation::new(9));
        let now = Duration::from_secs(1);
        std::thread::scope(|scope| {
            let turn = turns.take_unless_durable(eight).expect("nobody has it");
            let others = [0, 1].map(|_| scope.spawn(|| turns.take_unless_durable(eight).is_none()));
            while turns.state.lock().asked_through(eight) < 3 {
                std::thread::yield_now();
            }
            // So long that only asking threads end the wait.
            turns.durable(eight, Duration::from_secs(3600), now);
            drop(turn);
            assert!(others.into_iter().all(|other| other.join().expect("served")));
            let turn = turns.take_unless_durable(nine).expect("nobody has it");
            let late = [0, 1].map(|_| scope.spawn(|| turns.take_unless_durable(nine).is_none()));
            turns.gather(&turn, nine, now);
            turns.durable(nine, Duration::ZERO, now);
            drop(turn);
            assert!(late.into_iter().all(|other| other.join().expect("served")));
        });
        let turn = turns.take();
        turns.gather(&turn, Generation::new(10), now + Duration::from_secs(1)); // no thread comes, and none waits
    }
}
