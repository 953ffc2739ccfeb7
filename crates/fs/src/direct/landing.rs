//! The end of a direct request without a waiting caller: its devices answer, a thread completes it, and its caller gets the answer.
//!
//! ```text
//!   submit --+--> SubmittedRequest -- in_flight: has to land -------------------> has landed --+--> complete, answer
//!            |                                                                       ^         |         ^
//!            +--> Landing ----------- the devices answer, or drop it ----------------+         +- queue -+
//! ```
//! A write that was asked for as durable then owes a sync (`owed_sync`), and is answered after that.
//!
//! A device's thread waits for nothing. It ends a request by itself where that takes no more than memory: a read with all data
//! good, or an overwrite in place, whose times follow later. Most requests of a database end this way, and cost no change of
//! threads. The device's thread queues all other requests, failed ones included. Another thread completes them.
//!
//! A thread that completes a request may be in the midst of another operation. So a panic, also one of the caller's completion, does not
//! reach that operation: it aborts the filesystem, as a panic of a step in the background does.
//!
//! # Invariants
//! - DIRECT-17: a device's thread that ends a request waits for no lock of a long rank. Shown by `a_device_ends_what_waits_for_nothing`,
//!   `a_device_leaves_a_write_to_others_where_the_item_is_locked`.

use std::sync::Arc;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Result, panics};

use super::DirectPart;
use super::answer::{Answer, dropped};
use super::owed_sync::OwedSync;
use super::unwaiting::Unwaiting;
use crate::counters::Direct;
use crate::in_flight::{Begun, InFlight, Submitted};
use crate::inode::Inode;
use crate::inode::lock::HeldExtents;

/// The resources that a request carries to its end.
pub(super) trait Carries: Send + 'static {
    /// The answer of its devices.
    type Landed: Send;

    /// The inode that it is about.
    fn inode(&self) -> &Arc<Inode>;

    /// Wakes the threads that may wait for a carried resource. It takes innermost locks only, and waits for nothing.
    fn wake_those_who_wait(&self);

    /// Returns the lock of `inode` that `finish` needs, if `finish` then waits for nothing; `None` sends the request to the queue.
    /// Waits for nothing.
    fn ends_at_once<'i>(&self, inode: &'i Inode, landed: &Self::Landed) -> Option<LandingItem<'i>>;

    /// Does the remaining work, and gives all back.
    fn finish(self, landed: Self::Landed, answer: &mut Answer, item: LandingItem<'_>) -> Result<DirectPart>;
}

/// The item of the inode, for the end of a request.
pub(super) enum LandingItem<'i> {
    /// The item is locked already, and `finish` waits for nothing else.
    Held(HeldExtents<'i>),
    /// `finish` locks the item itself, and may wait for it.
    Free,
}

/// The answer of a request's devices, and the answer owed to the caller; `None` before the devices answer, and after the caller's
/// answer was given.
struct Outcome<L>(RankedMutex<Option<(L, Answer)>, { rank::LEAF }>);

/// A request that its devices are to answer, or have answered. The fields drop in order.
struct SubmittedRequest<C: Carries> {
    carried: C,
    /// The request is known until it is answered.
    begun: Begun,
    outcome: Arc<Outcome<C::Landed>>,
}

impl<C: Carries> Submitted for SubmittedRequest<C> {
    fn wake(&self) {
        self.carried.wake_those_who_wait();
        self.carried.inode().engine().background().wake();
    }

    fn has_background(&self) -> bool {
        self.carried.inode().engine().background().has_threads()
    }

    fn complete(self: Box<Self>) {
        let inode = Arc::clone(self.carried.inode());
        self.complete_with(&inode, LandingItem::Free);
    }

    fn complete_at_once(self: Box<Self>) -> Option<Box<dyn Submitted>> {
        let inode = Arc::clone(self.carried.inode());
        if !inode.context().policy().direct_ends_at_once || Unwaiting::is_under_way() {
            return Some(self);
        }
        let (landed, answer) = self.outcome.take().expect("it has landed");
        let item = self.carried.ends_at_once(&inode, &landed);
        self.outcome.put((landed, answer));
        let Some(item) = item else { return Some(self) };
        Direct::count(&inode.context().counters().direct.ended_at_once);
        self.complete_with(&inode, item);
        None
    }

    fn abandon(self: Box<Self>) {
        let Self { carried, begun, outcome } = *self;
        // No caller is left to report a panic to.
        let _ = panics::catch(|| drop((carried, begun)));
        outcome.tell_that_it_is_abandoned();
    }
}

impl<C: Carries> SubmittedRequest<C> {
    /// Completes the request, which is about `inode`, with its `item`.
    fn complete_with(self, inode: &Arc<Inode>, item: LandingItem<'_>) {
        // The request is known until it is answered, and until a panic has aborted the filesystem.
        let Self { carried, begun, outcome } = self;
        let (landed, mut answer) = outcome.take().expect("it has landed");
        let mut begun = Some(begun);
        let ended = panics::catch(|| match (carried.finish(landed, &mut answer, item), answer.owed_sync()) {
            (Ok(part), Some(inodes)) => {
                let begun = begun.take().expect("it is known until it is answered");
                OwedSync { answer, part, inode: Arc::clone(inode), inodes, begun }.owe();
            }
            (outcome, _) => answer.give(outcome),
        });
        if let Err(panic) = ended {
            inode.engine().abort_after_panic(&panic);
        }
    }
}

impl<L> Outcome<L> {
    fn put(&self, landed: (L, Answer)) {
        *self.0.lock() = Some(landed);
    }

    fn take(&self) -> Option<(L, Answer)> {
        self.0.lock().take()
    }

    /// Answers a request of a filesystem that was dropped, if its devices have answered and no other thread answers it. A panic of the
    /// completion is ignored: no caller is left to report it to.
    fn tell_that_it_is_abandoned(&self) {
        if let Some((_, answer)) = self.take() {
            let _ = panics::catch(|| answer.give(Err(dropped())));
        }
    }
}

/// The part of a request that its devices hold, which keeps nothing alive (DIRECT-11). A landing that is dropped lands the request as
/// unanswered.
pub(super) struct Landing<L> {
    ticket: u64,
    /// `None` after it landed.
    landing: Option<(L, Answer)>,
    outcome: Arc<Outcome<L>>,
    in_flight: Arc<InFlight>,
}

impl<L: Send + 'static> Landing<L> {
    /// Makes the landing of a request that has `begun` and is now on its way. It lands as `unanswered` unless its devices answer.
    pub(super) fn new<C: Carries<Landed = L>>(
        (carried, begun): (C, Begun),
        unanswered: L,
        answer: Answer,
    ) -> Self {
        let (ticket, in_flight) = (begun.ticket(), Arc::clone(carried.inode().context().in_flight()));
        let outcome = Arc::new(Outcome(RankedMutex::new(None)));
        let request = SubmittedRequest { carried, begun, outcome: Arc::clone(&outcome) };
        in_flight.submit(ticket, Box::new(request));
        Self { ticket, landing: Some((unanswered, answer)), outcome, in_flight }
    }

    /// Lands the request with the answer of its devices, which `note` records.
    pub(super) fn lands(mut self, note: impl FnOnce(&mut L, &mut Answer)) {
        if let Some((landed, answer)) = &mut self.landing {
            note(landed, answer);
        }
    }
}

impl<L> Drop for Landing<L> {
    fn drop(&mut self) {
        *self.outcome.0.lock() = self.landing.take();
        if !self.in_flight.land(self.ticket) {
            self.outcome.tell_that_it_is_abandoned();
        }
    }
}
