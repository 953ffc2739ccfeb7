//! Keeping changes out of a subvolume that becomes read-only.
//!
//! An operation that changes a subvolume enters its gate first. It stays within until the change is made, in memory or in the running transaction. Making the
//! subvolume read-only closes the gate: the closer waits until no operation is within, and the gate refuses later operations. So the closer finds all changes that
//! there will be, and writes them out with the flag.
//!
//! An operation that may wait long before it changes anything enters after that wait; a write that waits for memory is one. A check without entering
//! ([`ChangeGate::check_open`]) only refuses early.
//!
//! Entering and leaving never wait: each adds to a counter that a thread shares with few others. A request that outlives its call is within, too, until it ends,
//! on any thread: such requests have a counter of their own.
//!
//! # Invariants
//! - RDONLY-1: when closing the gate has returned, no operation is within, and none enters before it opens.
//!   Shown by `the_closer_waits_for_those_within_and_keeps_others_out`, `a_change_ends_before_its_subvolume_is_read_only_or_is_refused`.
//! - RDONLY-2: an operation leaves as often as it entered: a thread's on the thread that entered, a request's on any (DIRECT-1).
//!
//! # Locking
//! The closer waits for operations, and an operation may wait for any lock. So the closer holds no lock that operations may want (rank IN_PLACE).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use creamery_base::PerThread;
use creamery_base::gate::Reason;
use creamery_base::lock::{HeldNote, LockPosition, RankedCondvar, RankedMutex, rank};
use creamery_base::{ErrorKind, Result};

use crate::in_flight::Awaited;

/// Counts the operations that change one subvolume, and keeps further ones out while it is closed.
#[derive(Default)]
pub(crate) struct ChangeGate {
    /// The number of reasons to stay closed: one for each closer, and one while the subvolume is read-only.
    closed: AtomicU32,
    read_only: AtomicBool,
    within: PerThread<AtomicU64>,
    /// Operations that requests carry.
    carried: AtomicU64,
    /// Closers wait here until no operation is within.
    leaving: RankedMutex<(), { rank::LEAF }>,
    somebody_left: RankedCondvar,
}

/// The witness that no operation changes the subvolume.
#[must_use]
pub(crate) struct Closed<'g>(&'g ChangeGate);

impl ChangeGate {
    /// Bytes of memory that one gate takes beside itself.
    pub(super) fn striped_memory() -> u64 {
        PerThread::<AtomicU64>::memory()
    }

    /// The gate of a subvolume. `read_only` says whether the subvolume is read-only.
    pub(super) fn new(read_only: bool) -> Self {
        Self {
            closed: AtomicU32::new(u32::from(read_only)),
            read_only: AtomicBool::new(read_only),
            ..Self::default()
        }
    }

    /// Refuses an operation while the gate is closed. The gate may close or open right after this check.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) > 0 { Err(ErrorKind::ReadOnly.into()) } else { Ok(()) }
    }

    /// Enters. Errors: the gate is closed.
    pub(super) fn enter(&self) -> Result<()> {
        // Before the check: a closer whose mark this thread does not see sees this count.
        self.within.mine().fetch_add(1, Ordering::SeqCst);
        self.check_open().inspect_err(|_| self.leave())
    }

    /// Leaves, on the thread that entered.
    pub(super) fn leave(&self) {
        let before = self.within.mine().fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "RDONLY-2: an operation leaves that did not enter here");
        self.tell_closers();
    }

    /// Hands an operation that is within over to a request. The thread leaves after that.
    pub(super) fn carry(&self) {
        self.carried.fetch_add(1, Ordering::SeqCst);
    }

    /// A request leaves, on any thread.
    pub(super) fn leave_carried(&self) {
        let before = self.carried.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "DIRECT-1, RDONLY-2: a request leaves once");
        self.tell_closers();
    }

    /// How many operations and requests are within.
    #[cfg(feature = "faults")]
    pub(super) fn len(&self) -> u64 {
        let within = self.within.all().map(|count| count.load(Ordering::SeqCst));
        within.chain([self.carried.load(Ordering::SeqCst)]).sum()
    }

    fn tell_closers(&self) {
        if self.closed.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    /// Makes closers check again: an operation left, or a request landed.
    pub(super) fn wake(&self) {
        drop(self.leaving.lock());
        self.somebody_left.notify_all();
    }

    /// Closes the gate and waits until no operation is within, completing the `awaited` requests meanwhile. The caller has no inode locked, and is not within.
    pub(crate) fn close(&self, awaited: Awaited<'_>) -> Closed<'_> {
        let _held = HeldNote::wait(LockPosition::of(rank::IN_PLACE));
        self.closed.fetch_add(1, Ordering::SeqCst);
        let closed = Closed(self);
        // Threads first: an operation whose thread leaves between the two checks is carried by then.
        let is_anybody_within = |(): &mut ()| {
            self.within.all().any(|count| count.load(Ordering::SeqCst) > 0)
                || self.carried.load(Ordering::SeqCst) > 0
        };
        awaited.wait(Reason::InodeLock, (&self.leaving, &self.somebody_left), is_anybody_within);
        closed
    }

    /// Notes whether the subvolume is read-only, as its root item says from now on. No other thread changes that meanwhile.
    pub(super) fn set_read_only(&self, read_only: bool) {
        if self.read_only.swap(read_only, Ordering::SeqCst) != read_only {
            match read_only {
                true => self.closed.fetch_add(1, Ordering::SeqCst),
                false => self.closed.fetch_sub(1, Ordering::SeqCst),
            };
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.closed.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use creamery_base::TreeId;

    use super::*;
    use crate::in_flight::{Carried, InFlight};

    const HERE: Carried = Carried::OfSubvolume(TreeId::FS);

    #[test]
    fn the_closer_waits_for_those_within_and_keeps_others_out() {
        let (gate, is_over) = (ChangeGate::default(), AtomicBool::new(false));
        gate.enter().expect("it is open");
        std::thread::scope(|scope| {
            let closer = scope.spawn(|| {
                let closed = gate.close(InFlight::default().awaited(HERE));
                assert!(is_over.load(Ordering::SeqCst), "RDONLY-1: somebody is within");
                assert!(gate.enter().is_err(), "RDONLY-1");
                drop(closed);
            });
            while gate.check_open().is_ok() {
                std::thread::yield_now();
            }
            assert!(gate.enter().is_err(), "it is about to be closed");
            is_over.store(true, Ordering::SeqCst);
            gate.leave();
            closer.join().expect("it ends well");
        });
        assert!(gate.enter().is_ok());
    }

    #[test]
    fn the_closer_waits_for_requests() {
        let (gate, is_over) = (ChangeGate::default(), AtomicBool::new(false));
        gate.enter().expect("it is open");
        gate.carry();
        gate.leave();
        std::thread::scope(|scope| {
            let closer = scope.spawn(|| {
                drop(gate.close(InFlight::default().awaited(HERE)));
                assert!(is_over.load(Ordering::SeqCst), "RDONLY-1: a request is within");
            });
            while gate.check_open().is_ok() {
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::SeqCst);
            gate.leave_carried();
            closer.join().expect("it ends well");
        });
    }

    #[test]
    #[should_panic(expected = "DIRECT-1")]
    fn a_request_that_leaves_twice_is_a_bug() {
        let gate = ChangeGate::default();
        gate.enter().expect("it is open");
        gate.carry();
        gate.leave();
        gate.leave_carried();
        gate.leave_carried();
    }

    #[test]
    #[should_panic(expected = "RDONLY-2")]
    fn an_operation_that_leaves_twice_is_a_bug() {
        let gate = ChangeGate::default();
        gate.enter().expect("it is open");
        gate.leave();
        gate.leave();
    }
}
