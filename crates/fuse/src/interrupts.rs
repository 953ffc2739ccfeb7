//! `INTERRUPT`: notifies a running operation that its caller got a signal.
//!
//! The kernel sends the number of the interrupted request, on any channel, at any time after it handed that
//! request out. There are three cases then: a worker runs it (its slot holds the number); a worker has
//! read it and not filled its slot yet; it is answered already. The last two look alike, so a number that no
//! slot holds is kept for a while in `late`.
//!
//! # Invariants
//! - INT-1: a raised number belongs to one request. Slots hold numbers, not a flag, so an interrupt never
//!   hits the next request of the same worker. Shown by `an_interrupt_reaches_the_running_request_and_no_other`.
//! - INT-2: an interrupt that arrives between read and [`Interrupts::begin`] is not lost: the raiser puts it
//!   into `late` before it looks at the slots, the worker fills its slot before it looks at `late`.
//!   Shown by `an_interrupt_that_overtakes_its_request_waits_for_it`.
//! - INT-3: `late` is bounded in length and age; with nothing in it a request pays one load.
//!   Shown by `interrupts_of_answered_requests_do_not_pile_up`.

use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::protocol::UNIQUE_RESEND;

const LATE_MAX: usize = 64;
/// Requests that may begin before a late number is dropped.
const AGE_MAX: u32 = 256;

struct Late {
    unique: u64,
    age: u32,
}

/// The state of one worker.
#[derive(Default)]
struct Slot {
    /// The number of the request that it runs; 0 if none.
    unique: AtomicU64,
    /// The last request of this slot that was interrupted.
    raised: AtomicU64,
}

/// Interrupts of all workers of a session.
pub(crate) struct Interrupts {
    slots: Vec<Slot>,
    late: RankedMutex<VecDeque<Late>, { rank::LEAF }>,
    late_len: AtomicUsize,
}

/// Whether one request was interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupted<'a> {
    raised: &'a AtomicU64,
    unique: u64,
}

impl Interrupted<'_> {
    pub(crate) fn get(self) -> bool {
        self.raised.load(Ordering::Acquire) == self.unique
    }
}

impl Interrupts {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            slots: (0..workers).map(|_| Slot::default()).collect(),
            late: RankedMutex::default(),
            late_len: AtomicUsize::new(0),
        }
    }

    fn late(&self) -> RankedGuard<'_, VecDeque<Late>, { rank::LEAF }> {
        self.late.lock()
    }

    /// `worker` starts request `unique`.
    pub(crate) fn begin(&self, worker: usize, unique: u64) -> Interrupted<'_> {
        let unique = unique & !UNIQUE_RESEND;
        let slot = &self.slots[worker];
        slot.unique.store(unique, Ordering::SeqCst);
        if self.late_len.load(Ordering::SeqCst) > 0 {
            let mut late = self.late();
            if late.iter().any(|row| row.unique == unique) {
                slot.raised.store(unique, Ordering::Release);
            }
            late.retain_mut(|row| {
                row.age += 1;
                row.unique != unique && row.age < AGE_MAX
            });
            self.late_len.store(late.len(), Ordering::SeqCst);
        }
        Interrupted { raised: &slot.raised, unique }
    }

    /// `worker` has its answer.
    pub(crate) fn end(&self, worker: usize) {
        self.slots[worker].unique.store(0, Ordering::SeqCst);
    }

    /// The caller of request `unique` got a signal.
    pub(crate) fn raise(&self, unique: u64) {
        let unique = unique & !UNIQUE_RESEND;
        let mut late = self.late();
        late.push_back(Late { unique, age: 0 });
        self.late_len.store(late.len(), Ordering::SeqCst);
        if let Some(slot) = self.slots.iter().find(|slot| slot.unique.load(Ordering::SeqCst) == unique) {
            slot.raised.store(unique, Ordering::Release);
            late.pop_back();
        } else if late.len() > LATE_MAX {
            late.pop_front();
        }
        self.late_len.store(late.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_reaches_the_running_request_and_no_other() {
        let interrupts = Interrupts::new(2);
        let first = interrupts.begin(0, 10);
        let other = interrupts.begin(1, 12);
        interrupts.raise(10);
        assert!(first.get() && !other.get());
        interrupts.end(0);
        assert!(!interrupts.begin(0, 14).get());
    }

    #[test]
    fn an_interrupt_that_overtakes_its_request_waits_for_it() {
        let interrupts = Interrupts::new(1);
        interrupts.raise(20);
        assert!(!interrupts.begin(0, 18).get());
        interrupts.end(0);
        assert!(interrupts.begin(0, 20 | UNIQUE_RESEND).get());
        assert_eq!(interrupts.late_len.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn interrupts_of_answered_requests_do_not_pile_up() {
        let interrupts = Interrupts::new(1);
        for unique in 1..1000 {
            interrupts.raise(unique * 2);
        }
        assert!(interrupts.late_len.load(Ordering::SeqCst) <= LATE_MAX);
        for unique in 1000..1000 + u64::from(AGE_MAX) {
            interrupts.begin(0, unique * 2);
        }
        assert_eq!(interrupts.late_len.load(Ordering::SeqCst), 0);
    }
}
