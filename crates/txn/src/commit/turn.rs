//! Whose turn it is to commit, and who need not any more.
//!
//! Several ask for a commit at once: each fsync is one. One of them has the turn; when its transaction is durable, all whose
//! changes were part of it go home, and one of the others has the next turn. So a commit serves everybody who asked while
//! the one before was on its way.
//!
//! Threads that write and sync in turn would come in two halves then, each waiting for the other's commit, or in more: who is
//! first to come back would commit for itself alone. So who has a turn right behind a commit that served several waits for as
//! many to ask again, as long as that commit took at most ([`CommitTurns::gather`]).
//!
//! # Invariants
//! - TURN-1: one commit at a time closes a transaction; a turn is given back by whatever way its owner leaves.
//! - TURN-2: who returns without a turn finds its changes durable.

use std::collections::BTreeMap;
use std::time::Duration;

use creamery_base::Generation;
use creamery_base::gate::Reason;
use creamery_base::lock::{Held, Place, RankedCondvar, RankedMutex, rank};

/// Nobody waits longer for others to ask.
const GATHER_MAX: Duration = Duration::from_millis(10);

struct State {
    taken: bool,
    /// The last transaction that is durable.
    durable: Generation,
    /// How many have asked for each transaction that is not.
    asked: BTreeMap<Generation, usize>,
    /// The last commit.
    last: Last,
}

/// What is to be known of a commit.
#[derive(Clone, Copy, Default)]
struct Last {
    /// How many had asked for it.
    served: usize,
    took: Duration,
    /// When it was durable, by the engine's monotonic clock.
    ended: Duration,
}

/// Turns to commit.
pub(crate) struct CommitTurns {
    state: RankedMutex<State, { rank::LEAF }>,
    /// A turn was given back, or a transaction is durable.
    changed: RankedCondvar,
    /// Somebody has asked; for who gathers.
    more: RankedCondvar,
}

/// The right to close a transaction and to have it written (TURN-1).
#[must_use]
pub(crate) struct CommitTurn<'c> {
    turns: &'c CommitTurns,
    /// What was asked for, if somebody did.
    asked: Option<Generation>,
    _held: Held,
}

impl Drop for CommitTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        assert!(state.taken, "TURN-1: a turn is given back once");
        state.taken = false;
        // Nothing became durable: there was nothing, or it failed.
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
        let state = State { taken: false, durable, asked: BTreeMap::new(), last: Last::default() };
        Self { state: RankedMutex::new(state), changed: RankedCondvar::new(), more: RankedCondvar::new() }
    }

    /// Waits for a turn; none when transaction `generation` has become durable meanwhile (TURN-2).
    pub(crate) fn take_unless_durable(&self, generation: Generation) -> Option<CommitTurn<'_>> {
        let held = Held::wait(Place::of(rank::COMMIT));
        let mut state = self.state.lock();
        if state.durable < generation {
            *state.asked.entry(generation).or_default() += 1;
            self.more.notify_all();
        }
        let waits = |state: &mut State| state.taken && state.durable < generation;
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

    /// Waits for a turn, whatever becomes durable meanwhile.
    pub(crate) fn take(&self) -> CommitTurn<'_> {
        let held = Held::wait(Place::of(rank::COMMIT));
        let mut state = self.state.lock();
        if state.taken {
            let taken = |state: &mut State| state.taken;
            state = self.changed.pass_while(Reason::Commit, state, taken);
        }
        state.taken = true;
        drop(state);
        CommitTurn { turns: self, asked: None, _held: held }
    }

    /// A turn, if nobody has it.
    pub(crate) fn try_take(&self) -> Option<CommitTurn<'_>> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.taken, true) {
            return None;
        }
        drop(state);
        Some(CommitTurn { turns: self, asked: None, _held: Held::tried(Place::of(rank::COMMIT)) })
    }

    /// Whether somebody has it.
    pub(crate) fn is_taken(&self) -> bool {
        self.state.lock().taken
    }

    /// Waits for those whom the last commit served to ask for `generation`, if that was `now`.
    pub(crate) fn gather(&self, _turn: &CommitTurn<'_>, generation: Generation, now: Duration) {
        let state = self.state.lock();
        let Last { served, took, ended } = state.last;
        let limit = took.min(GATHER_MAX);
        if served <= 1 || now.saturating_sub(ended) > limit {
            return;
        }
        let missing = |state: &mut State| state.asked_through(generation) < served;
        drop(self.more.pass_while_for(Reason::Commit, state, limit, missing));
    }

    /// Transaction `generation`, whose commit took so long, is durable `now`.
    pub(crate) fn durable(&self, generation: Generation, took: Duration, now: Duration) {
        let mut state = self.state.lock();
        let durable = state.durable;
        assert!(
            generation > durable,
            "TURN-2: transaction {generation} becomes durable, and {durable} has already"
        );
        state.durable = generation;
        state.last = Last { served: state.asked_through(generation), took, ended: now };
        state.asked.retain(|asked, _| *asked > generation);
        drop(state);
        self.changed.notify_all();
    }
}

impl State {
    /// How many have asked for a transaction or one before it.
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
        drop(CommitTurn { turns: &turns, asked: None, _held: Held::tried(Place::of(rank::COMMIT)) });
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
            // So long that only those who ask end the wait.
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
        turns.gather(&turn, Generation::new(10), now + Duration::from_secs(1)); // nobody comes, and nobody waits
    }
}
