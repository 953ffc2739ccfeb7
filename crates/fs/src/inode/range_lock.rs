//! Byte-range locks of one inode.
//!
//! Reads take a range shared; writes and truncation take it exclusive (truncation to the end of the 64-bit
//! space). The table is a list of requests in the order of their arrival, granted and waiting alike. A request is granted when no
//! request *before it in the list* conflicts with it, so no request is overtaken by a conflicting later one: a writer that waits
//! for readers stops new readers of its range, and no others.
//!
//! The list is as long as the number of operations under way on this one file: a handful. A scan of it costs less than any tree
//! of intervals, and a range to the end of the file costs as much as a range of one byte. An idle table owns no memory.
//!
//! # Invariants
//! - RANGE-1: two granted requests overlap only if both are shared.
//! - RANGE-2: a request waits only for requests that came before it, so waiting is free of cycles within one table.
//! - RANGE-3: with `Wait::No` the table is as it was when the answer is "would block".
//!   Shown by `only_two_shared_ranges_may_overlap`.
//!
//! # Locking
//! The table's mutex is innermost and held for a scan. A thread that holds a range of an inode asks for no second
//! one of the same inode. Ranges are taken after the inode's operations and before a transaction handle. A request that outlives its
//! call takes its range on the thread that begins it and carries it from there on (`carried`).

use creamery_base::gate::Reason;
use creamery_base::lock::{HeldNote, LockPosition, RankedCondvar, RankedMutex, rank};
use creamery_base::{ErrorKind, Result, Wait, memory};
use smallvec::SmallVec;

use crate::in_flight::Awaited;

/// The byte ranges of one inode that are in use.
///
/// ```
/// use creamery_base::Wait;
/// use creamery_fs::RangeLocks;
/// let locks = RangeLocks::new();
/// let read = locks.shared(0, 4096, Wait::Yes)?;
/// assert!(locks.exclusive(4095, 4097, Wait::No).is_err());
/// drop(read);
/// assert!(locks.exclusive(4095, u64::MAX, Wait::No).is_ok());
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Default)]
pub struct RangeLocks {
    table: RankedMutex<Table, { rank::LEAF }>,
    changed: RankedCondvar,
}

#[derive(Default)]
struct Table {
    next_ticket: u64,
    /// In order of arrival.
    requests: SmallVec<[RangeRequest; 1]>,
}

#[derive(Clone, Copy)]
struct RangeRequest {
    ticket: u64,
    start: u64,
    end: u64,
    exclusive: bool,
}

impl RangeRequest {
    const fn conflicts(&self, other: &Self) -> bool {
        (self.exclusive || other.exclusive) && self.start < other.end && other.start < self.end
    }
}

impl Table {
    /// Whether an earlier request conflicts with `request`.
    fn must_wait(&self, request: &RangeRequest) -> bool {
        self.requests
            .iter()
            .take_while(|earlier| earlier.ticket < request.ticket)
            .any(|earlier| earlier.conflicts(request))
    }
}

impl RangeLocks {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Locks `[start, end)` against writers.
    pub fn shared(&self, start: u64, end: u64, wait: Wait) -> Result<RangeGuard<'_>> {
        self.lock((start, end), false, wait, None)
    }

    /// Locks `[start, end)` against readers and writers.
    pub fn exclusive(&self, start: u64, end: u64, wait: Wait) -> Result<RangeGuard<'_>> {
        self.lock((start, end), true, wait, None)
    }

    /// Locks `[start, end)` against writers, as [`RangeLocks::shared`] does. While it waits it completes requests that are
    /// `awaited`: they may carry ranges.
    pub(super) fn shared_or_help(
        &self,
        range: (u64, u64),
        wait: Wait,
        awaited: Awaited<'_>,
    ) -> Result<RangeGuard<'_>> {
        self.lock(range, false, wait, Some(awaited))
    }

    /// Locks `[start, end)` against all others, as [`RangeLocks::exclusive`] does. While it waits it completes requests that are
    /// `awaited`: they may carry ranges.
    pub(super) fn exclusive_or_help(
        &self,
        range: (u64, u64),
        wait: Wait,
        awaited: Awaited<'_>,
    ) -> Result<RangeGuard<'_>> {
        self.lock(range, true, wait, Some(awaited))
    }

    /// How many ranges are in use or waited for.
    #[cfg(feature = "faults")]
    pub(super) fn len(&self) -> usize {
        self.table.lock().requests.len()
    }

    /// Wakes waiters: a request that carries a range landed, and a waiter may complete it.
    pub(super) fn wake(&self) {
        drop(self.table.lock());
        self.changed.notify_all();
    }

    /// The heap memory of the requests, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let requests = &self.table.lock().requests;
        if requests.spilled() { memory::vec::<RangeRequest>(requests.capacity()) } else { 0 }
    }

    fn lock(
        &self,
        (start, end): (u64, u64),
        exclusive: bool,
        wait: Wait,
        awaited: Option<Awaited<'_>>,
    ) -> Result<RangeGuard<'_>> {
        assert!(start <= end);
        let held = HeldNote::before(LockPosition::of(rank::RANGE), wait);
        let mut table = self.table.lock();
        let request = RangeRequest { ticket: table.next_ticket, start, end, exclusive };
        let in_order = table.requests.last().is_none_or(|last| last.ticket < request.ticket);
        assert!(in_order, "RANGE-2: requests stand in the order in which they came");
        if table.must_wait(&request) {
            if wait == Wait::No {
                return Err(ErrorKind::WouldBlock.into());
            }
            table.next_ticket += 1;
            table.requests.push(request);
            let waits = |table: &mut Table| table.must_wait(&request);
            match awaited {
                Some(awaited) => {
                    drop(table);
                    awaited.wait(Reason::InodeLock, (&self.table, &self.changed), waits);
                }
                None => drop(self.changed.pass_while(Reason::InodeLock, table, waits)),
            }
        } else {
            table.next_ticket += 1;
            table.requests.push(request);
        }
        Ok(RangeGuard { locks: self, ticket: Some(request.ticket), _held: held })
    }

    /// Unlocks the range of a guard or of a request.
    pub(super) fn give_back(&self, ticket: u64) {
        let mut table = self.table.lock();
        let at = table.requests.iter().position(|request| request.ticket == ticket);
        let at = at.expect("DIRECT-1: a granted request is in the table until it is given back");
        assert!(!table.must_wait(&table.requests[at]), "RANGE-1: it was granted and conflicts with another");
        table.requests.remove(at);
        let others = !table.requests.is_empty();
        if !others {
            table.requests = SmallVec::new();
        }
        drop(table);
        if others {
            self.changed.notify_all();
        }
    }
}

/// The witness that a range is locked; dropping it unlocks.
///
/// ```
/// use creamery_base::Wait;
/// let locks = creamery_fs::RangeLocks::new();
/// let guard: creamery_fs::RangeGuard<'_> = locks.exclusive(0, 1, Wait::Yes)?;
/// # drop(guard);
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[must_use]
pub struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    /// `None` when a request carries the range.
    ticket: Option<u64>,
    _held: HeldNote,
}

impl RangeGuard<'_> {
    /// Keeps the range locked, without this thread's guard, until [`give_back`](RangeLocks::give_back).
    pub(super) fn carry(mut self) -> u64 {
        self.ticket.take().expect("it is carried once")
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.locks.give_back(ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use creamery_base::gate;

    use super::*;

    #[test]
    fn only_two_shared_ranges_may_overlap() {
        let rows = [
            ((0, 10, false), (5, 15, false), true),
            ((0, 10, true), (5, 15, false), false),
            ((0, 10, false), (5, 15, true), false),
            ((0, 10, true), (10, 20, true), true),
            ((10, u64::MAX, true), (0, 10, true), true),
            ((10, u64::MAX, true), (1 << 60, 1 << 61, false), false),
        ];
        for (first, second, granted) in rows {
            let locks = RangeLocks::new();
            let held = locks.lock((first.0, first.1), first.2, Wait::Yes, None).expect("an empty table");
            let waits = gate::waits_of_this_thread();
            assert_eq!(
                locks.lock((second.0, second.1), second.2, Wait::No, None).is_ok(),
                granted,
                "{first:?} {second:?}"
            );
            assert_eq!(gate::waits_of_this_thread(), waits);
            drop(held);
            assert!(locks.lock((second.0, second.1), second.2, Wait::No, None).is_ok());
        }
    }

    fn request(ticket: u64) -> RangeRequest {
        RangeRequest { ticket, start: 0, end: 10, exclusive: true }
    }

    #[test]
    #[should_panic(expected = "RANGE-1")]
    fn a_range_that_is_granted_twice_is_a_bug() {
        let locks = RangeLocks::new();
        let _first = locks.exclusive(0, 10, Wait::Yes).expect("an empty table");
        locks.table.lock().requests.push(request(1));
        drop(RangeGuard {
            locks: &locks,
            ticket: Some(1),
            _held: HeldNote::tried(LockPosition::of(rank::RANGE)),
        });
    }

    #[test]
    #[should_panic(expected = "RANGE-2")]
    fn a_request_before_one_that_came_earlier_is_a_bug() {
        let locks = RangeLocks::new();
        locks.table.lock().requests.push(request(1));
        let _ = locks.shared(20, 30, Wait::No);
    }

    #[test]
    fn a_waiting_writer_stops_later_readers_of_its_range_only() {
        let locks = RangeLocks::new();
        let reader = locks.shared(0, 100, Wait::Yes).expect("an empty table");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| drop(locks.exclusive(50, 60, Wait::Yes)));
            while locks.table.lock().requests.len() < 2 {
                std::thread::yield_now();
            }
            assert!(locks.shared(55, 56, Wait::No).is_err());
            assert!(locks.shared(0, 50, Wait::No).is_ok());
            drop(reader);
            writer.join().expect("the writer gets its range");
        });
        assert!(locks.table.lock().requests.is_empty());
    }

    #[test]
    fn exclusive_ranges_exclude_under_contention() {
        let locks = RangeLocks::new();
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (locks, inside) = (&locks, &inside);
                scope.spawn(move || {
                    for round in 0..200 {
                        let guard = locks.exclusive(thread + round % 3, 10, Wait::Yes).expect("may wait");
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(guard);
                    }
                });
            }
        });
    }
}
