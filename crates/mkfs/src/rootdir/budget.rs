//! Bounded memory for file data read ahead.
//!
//! # Invariants
//! - BUDGET-1: the entry that the writer waits for is never refused memory, so readers that hold all of it with later entries cannot block
//!   the queue. Shown by `the_current_entry_is_never_refused`.

use creamery_base::lock::{RankedCondvar, RankedMutex, rank};

/// Gives bytes to readers and takes them back from the writer.
pub(crate) struct Budget {
    limit: u64,
    state: RankedMutex<BudgetState, { rank::LEAF }>,
    room: RankedCondvar,
}

struct BudgetState {
    used: u64,
    /// The entry that the writer waits for or works on.
    current: u64,
    waiting: u32,
    closed: bool,
}

/// The copy was aborted; readers stop.
pub(crate) struct Closed;

impl Budget {
    pub(crate) const fn new(limit: u64) -> Self {
        let state = BudgetState { used: 0, current: 0, waiting: 0, closed: false };
        Self { limit, state: RankedMutex::new(state), room: RankedCondvar::new() }
    }

    /// Takes `bytes` for entry number `entry`; waits until there is room.
    pub(crate) fn take(&self, entry: u64, bytes: u64) -> Result<(), Closed> {
        let mut state = self.state.lock();
        state.waiting += 1;
        state = self.room.wait_while(state, |state| {
            !state.closed && entry != state.current && state.used > 0 && state.used + bytes > self.limit
        });
        state.waiting -= 1;
        if state.closed {
            return Err(Closed);
        }
        state.used += bytes;
        Ok(())
    }

    /// Sets the entry that the writer waits for to `entry`.
    pub(crate) fn advance(&self, entry: u64) {
        let mut state = self.state.lock();
        state.current = entry;
        if state.waiting > 0 {
            self.room.notify_all();
        }
    }

    /// Returns `bytes` that the writer has processed.
    pub(crate) fn give_back(&self, bytes: u64) {
        let mut state = self.state.lock();
        assert!(state.used >= bytes);
        state.used -= bytes;
        if state.waiting > 0 {
            self.room.notify_all();
        }
    }

    /// Ends all waits, present and later ones.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_entry_is_never_refused() {
        let budget = Budget::new(100);
        assert!(budget.take(5, 100).is_ok());
        assert!(budget.take(0, 1000).is_ok()); // without BUDGET-1 this would wait for ever
    }

    #[test]
    fn a_waiting_reader_goes_on_when_bytes_come_back() {
        let budget = Budget::new(100);
        assert!(budget.take(1, 80).is_ok());
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| budget.take(2, 80).is_ok());
            budget.give_back(80);
            assert!(reader.join().unwrap());
        });
    }

    #[test]
    fn closing_stops_readers() {
        let budget = Budget::new(100);
        assert!(budget.take(1, 100).is_ok());
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| budget.take(2, 1).is_err());
            budget.close();
            assert!(reader.join().unwrap());
        });
    }
}
