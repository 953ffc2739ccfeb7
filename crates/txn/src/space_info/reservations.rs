//! Reservations of metadata: one sum of all promised bytes, and the tickets that are parts of it.
//!
//! A reservation checks whether the sum with its part still fits, and adds its part, in one step. So a refused request never makes another
//! one fail. A ticket ends with its handle, or is kept for work that was put off.
//!
//! # Waiting
//! An open handle counts twice: by its ticket and by the blocks that it has taken already. So a thread that finds no room stands in
//! line, first come, first served, until it fits or no other thread holds a ticket. Handles that free space do not look at the line: the
//! room that is left for them is for no other handle.
//!
//! A thread that comes later passes the line only if there is room for all requests in line, and for its own besides. So once there is
//! room again, new threads pass the line at once. Without that rule the first thread that waited would keep the line alive for ever: every later
//! thread would queue behind it, and every operation would wake one. Each change wakes only the first in line.
//!
//! # Invariants
//! - RESERVE-3: a handle queues no more references of data extents than its promise has items, for each makes the commit change
//!   leaves of other trees.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedCondvar, RankedGuard, RankedMutex, rank};
use creamery_base::{CachePadded, Generation, PerThread};

use super::thread_reserve::{self, Advances};
use crate::reserve_items::ReserveItems;

#[derive(Default)]
struct ReservedSums {
    /// Promised to open handles, to work that they put off, and to threads in advance; bytes.
    may_use: AtomicU64,
    /// The part of it for work that handles put off.
    kept: AtomicU64,
    /// References that may be queued besides.
    references: AtomicU64,
}

/// The threads that wait, in the order in which they came.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Arc<RankedCondvar>>,
    /// Grows whenever the sum may have become less.
    changes: u64,
}

impl Line {
    fn is_first(&self, waiter: &Arc<RankedCondvar>) -> bool {
        self.waiting.front().is_some_and(|first| Arc::ptr_eq(first, waiter))
    }
}

/// Totals of all waiting requests.
#[derive(Default)]
struct InLine {
    threads: AtomicUsize,
    /// Bytes that they want.
    bytes: AtomicU64,
    /// References that they want besides.
    references: AtomicU64,
}

/// All promises of metadata.
#[derive(Default)]
pub(crate) struct Reservations {
    sums: CachePadded<ReservedSums>,
    advances: Advances,
    /// Held while a thread looks whether its part fits, until it is added.
    taking: RankedMutex<(), { rank::RESERVATION }>,
    line: RankedMutex<Line, { rank::LEAF }>,
    in_line: CachePadded<InLine>,
    /// Tickets of operations that free space, so far.
    freeing_tickets: PerThread<AtomicU64>,
    #[cfg(feature = "faults")]
    copies_twice: std::sync::atomic::AtomicBool,
}

/// A request for a promise.
#[derive(Clone, Copy)]
pub(crate) struct ReservationRequest {
    pub(crate) units: ReserveItems,
    /// Bytes for each item.
    pub(crate) item: u64,
    /// The running transaction.
    pub(crate) generation: Generation,
}

impl ReservationRequest {
    fn bytes(self) -> u64 {
        u64::from(self.units.items) * self.item
    }
}

/// Metadata promised to a handle; given back when dropped.
#[must_use]
pub(crate) struct Ticket<'r> {
    reservations: &'r Arc<Reservations>,
    wish: ReservationRequest,
    bytes: Cell<u64>,
    /// References that may be queued besides one for each item.
    more_references: Cell<u32>,
    references: Cell<u32>,
    blocks: Cell<u64>,
    /// Taken from the thread's advance, and given back to it.
    advanced: bool,
}

impl Ticket<'_> {
    /// The transaction in which it was given (RESERVE-5).
    pub(crate) fn generation(&self) -> Generation {
        self.wish.generation
    }

    /// Splits off room for `items` items, to be held for longer.
    pub(crate) fn keep(&self, items: u32) -> BlockReserve {
        let bytes = u64::from(items) * self.wish.item;
        let left = self.bytes.get().checked_sub(bytes).expect("a handle keeps no more than it was promised");
        self.bytes.set(left);
        self.reservations.sums.kept.fetch_add(bytes, Ordering::SeqCst);
        BlockReserve { reservations: Arc::clone(self.reservations), bytes, references: 0 }
    }

    /// Splits off all its room, including that for references.
    pub(crate) fn keep_all(&self) -> BlockReserve {
        let mut kept = self.keep(self.wish.units.items);
        kept.references = self.more_references.take();
        kept
    }

    /// Whether it has room for one more tree block of `len` bytes.
    pub(crate) fn has_room_for(&self, len: u64) -> bool {
        self.blocks.get() + len <= self.wish.bytes()
    }

    /// Checks that the handle used none of it.
    pub(crate) fn check_unused(&self) {
        assert!(
            (self.blocks.get(), self.references.get()) == (0, 0) && self.bytes.get() == self.wish.bytes(),
            "DELALLOC-9: what a handle used of its promise is not kept again"
        );
    }

    /// Counts one more tree block of `len` bytes (RESERVE-1).
    pub(crate) fn take_block(&self, len: u64) {
        let (blocks, most) = (self.blocks.get() + len, self.wish.bytes());
        assert!(
            blocks <= most,
            "RESERVE-1: a handle that was promised {most} bytes of tree blocks for {:?} takes {blocks}",
            self.wish.units
        );
        self.blocks.set(blocks);
    }

    /// Counts one more queued reference of a data extent (RESERVE-3).
    pub(crate) fn queue_reference(&self) {
        let references = self.references.get() + 1;
        assert!(
            references <= self.wish.units.items + self.more_references.get(),
            "RESERVE-3: a handle that was promised {:?} queues {references} references",
            self.wish.units
        );
        self.references.set(references);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let bytes = self.bytes.get();
        self.reservations.forget_references(self.more_references.get());
        if self.advanced {
            self.reservations.advances.give_back(bytes);
        } else {
            self.reservations.sums.may_use.fetch_sub(bytes, Ordering::SeqCst);
        }
        self.reservations.tell_change();
    }
}

/// Metadata room for changes that a handle put off. They are made at the latest when the transaction closes; dropping this afterwards
/// gives the room back.
///
/// ```no_run
/// # fn put_off(engine: &creamery_txn::Engine) -> creamery_base::Result<creamery_txn::BlockReserve> {
/// let handle = engine.start(creamery_txn::ReserveItems::items(1))?;
/// let kept = handle.keep(1);
/// handle.end();
/// # Ok(kept)
/// # }
/// ```
#[must_use]
pub struct BlockReserve {
    reservations: Arc<Reservations>,
    bytes: u64,
    references: u32,
}

impl Drop for BlockReserve {
    fn drop(&mut self) {
        self.reservations.forget_references(self.references);
        // In this order: a thread that reads between sees room of a handle, and learns of the change right after.
        self.reservations.sums.kept.fetch_sub(self.bytes, Ordering::SeqCst);
        self.reservations.sums.may_use.fetch_sub(self.bytes, Ordering::SeqCst);
        self.reservations.tell_change();
    }
}

/// A place in the line.
struct PlaceInLine<'r> {
    reservations: &'r Reservations,
    /// Wakes the thread when it is the first.
    waiter: Arc<RankedCondvar>,
    wish: ReservationRequest,
}

impl PlaceInLine<'_> {
    /// Waits for being the first, and for a change after `seen`. Returns the changes so far.
    fn wait(&self, seen: Option<u64>) -> u64 {
        let waits =
            |line: &mut Line| !line.is_first(&self.waiter) || seen.is_some_and(|seen| line.changes == seen);
        let mut line = self.reservations.line.lock();
        if waits(&mut line) {
            line = self.waiter.pass_while(Reason::Reservation, line, waits);
        }
        line.changes
    }
}

impl Drop for PlaceInLine<'_> {
    fn drop(&mut self) {
        let Reservations { line, in_line, .. } = self.reservations;
        line.lock().waiting.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        in_line.bytes.fetch_sub(self.wish.bytes(), Ordering::SeqCst);
        in_line.references.fetch_sub(self.wish.units.references.into(), Ordering::SeqCst);
        in_line.threads.fetch_sub(1, Ordering::SeqCst);
        self.reservations.tell_change();
    }
}

impl Reservations {
    /// Bytes promised, including advances.
    pub(crate) fn may_use(&self) -> u64 {
        self.sums.may_use.load(Ordering::SeqCst)
    }

    /// Bytes promised to open handles, and to work that they put off; threads' advances left out.
    pub(crate) fn promised_to_handles(&self) -> u64 {
        self.may_use().saturating_sub(self.advances.bytes())
    }

    /// References that promises allow besides those queued; advances have none.
    pub(crate) fn references(&self) -> u64 {
        self.sums.references.load(Ordering::SeqCst)
    }

    fn forget_references(&self, references: u32) {
        if references > 0 {
            self.sums.references.fetch_sub(references.into(), Ordering::SeqCst);
        }
    }

    /// Keeps other threads from taking promises, so that figures stay as they are.
    pub(crate) fn hold(&self) -> RankedGuard<'_, (), { rank::RESERVATION }> {
        self.taking.lock()
    }

    /// Calls in the advances of all threads. Returns whether there were any.
    pub(crate) fn call_in(&self) -> bool {
        let any = self.advances.call_in(&self.sums.may_use);
        if any {
            self.tell_change();
        }
        any
    }

    /// How many tickets operations got so far that free space.
    pub(crate) fn freeing_tickets(&self) -> u64 {
        self.freeing_tickets.all().map(|tickets| tickets.load(Ordering::Relaxed)).sum()
    }

    /// Whether a thread stands in line.
    fn is_anybody_waiting(&self) -> bool {
        self.in_line.threads.load(Ordering::SeqCst) > 0
    }

    /// Bytes that a passing thread must leave for the line. `None` while a waiting thread wants references: no thread passes then.
    pub(crate) fn left_to_those_in_line(&self) -> Option<u64> {
        let InLine { threads: _, bytes, references } = &*self.in_line;
        (references.load(Ordering::SeqCst) == 0).then(|| bytes.load(Ordering::SeqCst))
    }

    /// A ticket out of this thread's advance, which is refilled if the sum `fits` with the refill.
    pub(crate) fn take_advanced<'r>(
        self: &'r Arc<Self>,
        wish: ReservationRequest,
        fits: &dyn Fn(u64) -> bool,
    ) -> Option<Ticket<'r>> {
        let (need, generation) = (wish.bytes(), wish.generation);
        if wish.units.references > 0 {
            return None;
        }
        if !self.advances.take(need, generation) {
            if self.is_anybody_waiting() {
                return None; // the room is theirs first
            }
            let more = need * thread_reserve::OPERATIONS;
            if !self.add(more, 0, fits) {
                return None;
            }
            let spent = self.advances.refill(more, generation);
            self.sums.may_use.fetch_sub(spent, Ordering::SeqCst);
            self.tell_change();
            if !self.advances.take(need, generation) {
                return None; // a thread that shares the advance was faster
            }
        }
        Some(self.ticket(wish, true))
    }

    /// A ticket for a request, if the sum `fits` with it.
    pub(crate) fn take<'r>(
        self: &'r Arc<Self>,
        wish: ReservationRequest,
        fits: &dyn Fn(u64) -> bool,
    ) -> Option<Ticket<'r>> {
        self.add(wish.bytes(), wish.units.references, fits).then(|| self.ticket(wish, false))
    }

    /// A ticket for a request, after waiting in line while other threads hold tickets that may end. `wish` gives the request at the time. `None` when no
    /// ticket is left that could free room.
    pub(crate) fn take_in_turn<'r>(
        self: &'r Arc<Self>,
        wish: impl Fn() -> ReservationRequest,
        fits: &dyn Fn(u64) -> bool,
    ) -> Option<Ticket<'r>> {
        let place = self.stand_in_line(wish());
        let mut seen = place.wait(None);
        loop {
            self.call_in();
            let others = self.held();
            if let Some(ticket) = self.take(wish(), fits) {
                return Some(ticket);
            }
            if others == 0 && self.held() == 0 {
                if self.advances.bytes() == 0 {
                    return None;
                }
                continue; // a thread got an advance before it saw this one in line
            }
            seen = place.wait(Some(seen));
        }
    }

    fn ticket<'r>(self: &'r Arc<Self>, wish: ReservationRequest, advanced: bool) -> Ticket<'r> {
        let (bytes, references, blocks) = (Cell::new(wish.bytes()), Cell::new(0), Cell::new(0));
        let more_references = Cell::new(wish.units.references);
        if wish.units.policy.frees() {
            self.freeing_tickets.mine().fetch_add(1, Ordering::Relaxed);
        }
        Ticket { reservations: self, wish, bytes, more_references, references, blocks, advanced }
    }

    /// Adds `need` and `references` to the sums if they fit then.
    fn add(&self, need: u64, references: u32, fits: &dyn Fn(u64) -> bool) -> bool {
        // Alone: between two additions the sum only falls, so if the sum is unchanged, no ticket ended meanwhile.
        let _alone = self.taking.lock();
        self.sums.references.fetch_add(references.into(), Ordering::SeqCst);
        loop {
            // First the sum, then, in `fits`, the available bytes: the blocks of a handle that ends between count twice, and never not at all. And a handle that ends
            // in between may leave the room that was missing.
            let sum = self.may_use();
            if fits(sum + need) {
                self.sums.may_use.fetch_add(need, Ordering::SeqCst);
                return true;
            }
            if self.may_use() == sum {
                self.forget_references(references);
                return false;
            }
        }
    }

    /// Plants a fault: promises leave room for blocks that were copied already.
    #[cfg(feature = "faults")]
    pub(crate) fn reckon_copies_twice(&self) {
        self.copies_twice.store(true, Ordering::Relaxed);
    }

    #[cfg(feature = "faults")]
    pub(crate) fn are_copies_reckoned_twice(&self) -> bool {
        self.copies_twice.load(Ordering::Relaxed)
    }

    /// Bytes that open handles hold.
    fn held(&self) -> u64 {
        self.promised_to_handles().saturating_sub(self.sums.kept.load(Ordering::SeqCst))
    }

    fn stand_in_line(&self, wish: ReservationRequest) -> PlaceInLine<'_> {
        let waiter = Arc::new(RankedCondvar::new());
        let mut line = self.line.lock();
        line.waiting.push_back(Arc::clone(&waiter));
        self.in_line.bytes.fetch_add(wish.bytes(), Ordering::SeqCst);
        self.in_line.references.fetch_add(wish.units.references.into(), Ordering::SeqCst);
        self.in_line.threads.fetch_add(1, Ordering::SeqCst);
        PlaceInLine { reservations: self, waiter, wish }
    }

    /// Makes the first in line look again.
    fn tell_change(&self) {
        // A thread that comes into the line after this reads the sum after this.
        if self.is_anybody_waiting() {
            let mut line = self.line.lock();
            line.changes += 1;
            if let Some(first) = line.waiting.front() {
                first.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Barrier;

    const UNIT: u64 = 1000;

    fn wish(items: u32) -> ReservationRequest {
        ReservationRequest { units: ReserveItems::items(items), item: UNIT, generation: Generation::new(7) }
    }

    fn most(bytes: u64) -> impl Fn(u64) -> bool {
        move |sum| sum <= bytes
    }

    /// Asking and adding is one step: a request for more than there is never makes another one fail.
    #[test]
    fn who_is_refused_takes_no_room_from_others() {
        const ROUNDS: usize = 5_000;
        let reservations = Arc::new(Reservations::default());
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    barrier.wait();
                    assert!(reservations.take(wish(9), &most(UNIT)).is_none());
                }
            });
            for round in 0..ROUNDS {
                barrier.wait();
                assert!(reservations.take(wish(1), &most(UNIT)).is_some(), "round {round}");
            }
        });
        assert_eq!(reservations.may_use(), 0);
    }

    #[test]
    fn who_finds_no_room_waits_for_those_who_may_leave_some() {
        let reservations = Arc::new(Reservations::default());
        let first = reservations.take(wish(1), &most(UNIT)).expect("room");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| reservations.take_in_turn(|| wish(1), &most(UNIT)).is_some());
            while !reservations.is_anybody_waiting() {
                std::thread::yield_now();
            }
            drop(first);
            assert!(second.join().expect("it ends well"));
        });
        assert_eq!(reservations.may_use(), 0);
    }

    #[test]
    fn nobody_waits_for_what_is_kept() {
        let reservations = Arc::new(Reservations::default());
        let ticket = reservations.take(wish(2), &most(2 * UNIT)).expect("room");
        let kept = ticket.keep(2);
        drop(ticket);
        assert!(reservations.take_in_turn(|| wish(1), &most(2 * UNIT)).is_none());
        drop(kept);
        assert!(reservations.take_in_turn(|| wish(1), &most(2 * UNIT)).is_some());
        assert_eq!(reservations.may_use(), 0);
    }

    #[test]
    fn those_in_line_are_served_in_the_order_in_which_they_came() {
        const WAITING: usize = 4;
        let reservations = Arc::new(Reservations::default());
        let first = reservations.take(wish(1), &most(UNIT)).expect("room");
        let served = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..WAITING {
                let (reservations, served) = (&reservations, &served);
                scope.spawn(move || {
                    let _ticket = reservations.take_in_turn(|| wish(1), &most(UNIT)).expect("its turn comes");
                    served.lock().expect("not poisoned").push(number);
                });
                while reservations.in_line.threads.load(Ordering::SeqCst) <= number {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(served.into_inner().expect("not poisoned"), [0, 1, 2, 3]);
    }

    /// Without a rule for passing, each of many threads that meets a line stands in it for ever.
    #[test]
    fn a_thread_passes_the_line_where_there_is_room_for_all_in_it_and_itself() {
        let reservations = Arc::new(Reservations::default());
        let first = reservations.take(wish(2), &most(4 * UNIT)).expect("room");
        let left = || reservations.left_to_those_in_line();
        assert_eq!(left(), Some(0));
        std::thread::scope(|scope| {
            let waits =
                scope.spawn(|| drop(reservations.take_in_turn(|| wish(3), &most(4 * UNIT)).expect("room")));
            while !reservations.is_anybody_waiting() {
                std::thread::yield_now();
            }
            assert_eq!(left(), Some(3 * UNIT));
            drop(first);
            waits.join().expect("it ends well");
        });
        assert_eq!((left(), reservations.may_use()), (Some(0), 0));
    }

    #[test]
    fn nobody_passes_a_thread_that_waits_for_references() {
        let reservations = Arc::new(Reservations::default());
        let first = reservations.take(wish(1), &most(UNIT)).expect("room");
        let with_references = || ReservationRequest {
            units: ReserveItems { references: 1, ..ReserveItems::items(1) },
            ..wish(1)
        };
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| reservations.take_in_turn(with_references, &most(UNIT)).is_some());
            while !reservations.is_anybody_waiting() {
                std::thread::yield_now();
            }
            assert_eq!(reservations.left_to_those_in_line(), None);
            drop(first);
            assert!(waits.join().expect("it ends well"));
        });
        assert_eq!((reservations.left_to_those_in_line(), reservations.references()), (Some(0), 0));
    }

    #[test]
    fn what_threads_have_in_advance_is_called_in_for_those_in_line() {
        let reservations = Arc::new(Reservations::default());
        std::thread::scope(|scope| {
            scope.spawn(|| drop(reservations.take_advanced(wish(1), &most(8 * UNIT)).expect("room")));
        });
        assert_eq!((reservations.may_use(), reservations.promised_to_handles()), (8 * UNIT, 0));
        assert!(reservations.take(wish(1), &most(8 * UNIT)).is_none());
        assert!(reservations.take_in_turn(|| wish(1), &most(8 * UNIT)).is_some());
    }

    #[test]
    fn a_thread_gets_no_advance_while_another_one_stands_in_line() {
        let reservations = Arc::new(Reservations::default());
        let first = reservations.take(wish(2), &most(4 * UNIT)).expect("room");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| reservations.take_in_turn(|| wish(3), &most(4 * UNIT)).is_some());
            while !reservations.is_anybody_waiting() {
                std::thread::yield_now();
            }
            assert!(reservations.take_advanced(wish(1), &most(1000 * UNIT)).is_none());
            drop(first);
            assert!(waits.join().expect("it ends well"));
        });
        assert!(reservations.take_advanced(wish(1), &most(1000 * UNIT)).is_some());
    }

    #[test]
    #[should_panic(expected = "RESERVE-1")]
    fn a_handle_that_takes_more_blocks_than_it_was_promised_is_a_bug() {
        let reservations = Arc::new(Reservations::default());
        let ticket = reservations.take(wish(2), &|_| true).expect("room");
        (0..3).for_each(|_| ticket.take_block(UNIT));
    }

    #[test]
    #[should_panic(expected = "RESERVE-3")]
    fn a_handle_that_queues_more_references_than_it_said_is_a_bug() {
        let reservations = Arc::new(Reservations::default());
        let ticket = reservations.take(wish(2), &|_| true).expect("room");
        (0..3).for_each(|_| ticket.queue_reference());
    }

    #[test]
    #[should_panic(expected = "DELALLOC-9")]
    fn a_promise_that_was_used_and_is_kept_again_is_a_bug() {
        let reservations = Arc::new(Reservations::default());
        let ticket = reservations.take(wish(2), &|_| true).expect("room");
        ticket.check_unused();
        ticket.take_block(UNIT);
        ticket.check_unused();
    }

    #[test]
    #[should_panic(expected = "keeps no more than it was promised")]
    fn a_handle_that_keeps_more_than_it_was_promised_is_a_bug() {
        let reservations = Arc::new(Reservations::default());
        let ticket = reservations.take(wish(2), &|_| true).expect("room");
        drop(ticket.keep(3));
    }
}
