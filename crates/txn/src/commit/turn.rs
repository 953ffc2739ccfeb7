//! Whose turn it is to commit, and who need not any more.
//!
//! Several ask for a commit at once: each fsync is one. One of them has the turn; when its transaction is durable, all whose
//! changes were part of it go home, and one of the others has the next turn. So a commit serves everybody who asked while
//! the one before was on its way.
//!
//! # Invariants
//! - TURN-1: one commit at a time closes a transaction; a turn is given back by whatever way its owner leaves.
//! - TURN-2: who returns without a turn finds its changes durable.

use creamery_base::Generation;
use creamery_base::gate::{self, Reason};
use creamery_base::lock::{Held, Place, RankedCondvar, RankedMutex, rank};

struct State {
    taken: bool,
    /// The last transaction that is durable.
    durable: Generation,
}

/// Turns to commit.
pub(crate) struct CommitTurns {
    state: RankedMutex<State, { rank::LEAF }>,
    changed: RankedCondvar,
}

/// The right to close a transaction and to have it written (TURN-1).
#[must_use]
pub(crate) struct CommitTurn<'c> {
    turns: &'c CommitTurns,
    _held: Held,
}

impl Drop for CommitTurn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        assert!(state.taken, "a turn is given back once (TURN-1)");
        state.taken = false;
        drop(state);
        self.turns.changed.notify_all();
    }
}

impl CommitTurns {
    pub(crate) fn new(durable: Generation) -> Self {
        Self { state: RankedMutex::new(State { taken: false, durable }), changed: RankedCondvar::new() }
    }

    /// Waits for a turn; none when transaction `generation` has become durable meanwhile (TURN-2).
    pub(crate) fn take_unless_durable(&self, generation: Generation) -> Option<CommitTurn<'_>> {
        let held = Held::wait(Place::of(rank::COMMIT));
        let mut state = self.state.lock();
        let waits = |state: &mut State| state.taken && state.durable < generation;
        if waits(&mut state) {
            state = gate::passing(Reason::Commit, || self.changed.wait_while(state, waits));
        }
        if state.durable >= generation {
            return None;
        }
        state.taken = true;
        drop(state);
        Some(CommitTurn { turns: self, _held: held })
    }

    /// Waits for a turn, whatever becomes durable meanwhile.
    pub(crate) fn take(&self) -> CommitTurn<'_> {
        self.take_unless_durable(Generation::new(u64::MAX)).expect("no transaction has the last generation")
    }

    /// A turn, if nobody has it.
    pub(crate) fn try_take(&self) -> Option<CommitTurn<'_>> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.taken, true) {
            return None;
        }
        drop(state);
        Some(CommitTurn { turns: self, _held: Held::tried(Place::of(rank::COMMIT)) })
    }

    /// Transaction `generation` is durable.
    pub(crate) fn durable(&self, generation: Generation) {
        let mut state = self.state.lock();
        assert!(generation > state.durable, "transactions become durable in their order");
        state.durable = generation;
        drop(state);
        self.changed.notify_all();
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
            turns.durable(Generation::new(8));
            assert!(overtaken.join().expect("it returns"), "before the turn is given back");
            drop(turn);
            assert!(next.join().expect("it returns"));
        });
        assert!(turns.try_take().is_some());
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
}
