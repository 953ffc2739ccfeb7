//! Advances: room promised to a thread before it asks, so that threads with small operations do not all change the
//! same sum each time they begin and end one.
//!
//! Where there is plenty, a thread that asks for room gets it several times over. Its later operations take from that, and
//! the room that they give back is collected until the thread asks again. All of it counts as promised meanwhile, and an early
//! promise is as good as any other (RESERVE-1): room given back is not used a second time, because the reckoning of the
//! commit's need is for one use. When room gets short, the advances of all threads are called in first.
//!
//! # Invariants
//! - ADVANCE-1: `fresh` and `spent` of all threads are part of the sum of promises, and of no handle's promise.

use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Generation, PerThread};

/// Number of operations, like the one that asked, for which an advance is.
pub(super) const OPERATIONS: u64 = 8;

/// The advance of one thread.
#[derive(Default)]
struct ThreadReserve {
    /// The transaction in which `fresh` was promised.
    generation: Generation,
    /// Not used yet, bytes.
    fresh: u64,
    /// Given back, bytes.
    spent: u64,
}

impl ThreadReserve {
    /// Moves room promised in another transaction to `spent`: it is not used in this one (RESERVE-5).
    fn keep_of(&mut self, generation: Generation) {
        if self.generation != generation {
            self.spent += std::mem::take(&mut self.fresh);
            self.generation = generation;
        }
    }
}

/// The advances of all threads.
#[derive(Default)]
pub(super) struct Advances(PerThread<RankedMutex<ThreadReserve, { rank::LEAF }>>);

impl Advances {
    /// Takes `need` bytes out of this thread's advance; false when it has less of this transaction.
    pub(super) fn take(&self, need: u64, generation: Generation) -> bool {
        let mut advance = self.0.mine().lock();
        advance.keep_of(generation);
        let left = advance.fresh.checked_sub(need);
        if let Some(left) = left {
            advance.fresh = left;
        }
        left.is_some()
    }

    /// Adds `fresh` bytes that were just promised in transaction `generation` to this thread's advance. Returns the bytes given back before, which the caller
    /// takes from the sum.
    pub(super) fn refill(&self, fresh: u64, generation: Generation) -> u64 {
        let mut advance = self.0.mine().lock();
        advance.keep_of(generation);
        advance.fresh += fresh;
        std::mem::take(&mut advance.spent)
    }

    /// Keeps `bytes` of an operation that ended until this thread asks again.
    pub(super) fn give_back(&self, bytes: u64) {
        self.0.mine().lock().spent += bytes;
    }

    /// Calls in the advances of all threads. Returns whether there were any.
    pub(super) fn call_in(&self, promised: &AtomicU64) -> bool {
        let mut any = false;
        for advance in self.0.all() {
            let ThreadReserve { fresh, spent, generation: _ } = std::mem::take(&mut *advance.lock());
            let all = promised.fetch_sub(fresh + spent, Ordering::AcqRel);
            assert!(all >= fresh + spent, "ADVANCE-1: an advance is not part of what is promised");
            any |= fresh + spent > 0;
        }
        any
    }

    /// Bytes in all advances.
    pub(super) fn bytes(&self) -> u64 {
        self.0
            .all()
            .map(|advance| {
                let advance = advance.lock();
                advance.fresh + advance.spent
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Generation = Generation::new(7);

    #[test]
    fn what_is_given_back_is_not_taken_again() {
        let advances = Advances::default();
        assert!(!advances.take(1, NOW));
        assert_eq!(advances.refill(10, NOW), 0);
        assert!(advances.take(6, NOW));
        advances.give_back(6);
        assert!(!advances.take(5, NOW), "four are left, and six that were used");
        assert_eq!(advances.bytes(), 10);
        assert_eq!(advances.refill(10, NOW), 6);
        assert!(advances.take(14, NOW));
    }

    #[test]
    fn what_another_transaction_promised_is_not_taken_in_this_one() {
        let advances = Advances::default();
        advances.refill(30, NOW);
        assert!(advances.take(10, NOW));
        assert!(!advances.take(10, NOW.next()), "it was promised in another one");
        assert_eq!(advances.bytes(), 20, "it counts until the thread asks again");
        assert_eq!(advances.refill(30, NOW.next()), 20);
        assert!(advances.take(30, NOW.next()));
    }

    #[test]
    fn all_of_it_is_called_in() {
        let (advances, promised) = (Advances::default(), AtomicU64::new(100));
        std::thread::scope(|scope| {
            scope.spawn(|| advances.refill(30, NOW));
        });
        advances.refill(20, NOW);
        assert!(advances.take(15, NOW));
        advances.give_back(15);
        assert!(advances.call_in(&promised));
        assert_eq!((promised.into_inner(), advances.bytes()), (50, 0));
        assert!(!advances.call_in(&AtomicU64::new(0)));
    }

    #[test]
    #[should_panic(expected = "ADVANCE-1")]
    fn an_advance_that_nobody_promised_is_a_bug() {
        let advances = Advances::default();
        advances.refill(20, NOW);
        advances.call_in(&AtomicU64::new(19));
    }
}
