//! The end of a direct request that nobody waits for: its devices answer, somebody completes it, and it is answered.
//!
//! ```text
//!   submit --+--> SubmittedRequest -- in_flight: has to land -------------------> has landed --+--> complete, answer
//!            |                                                                       ^         |         ^
//!            +--> Landing ----------- the devices answer, or drop it ----------------+         +- queue -+
//! ```
//! A write that is asked for as durable owes a sync then (`owed_sync`), and is answered behind that.
//!
//! A device's thread waits for nothing. It ends a request by itself where that takes no more than memory: a read of which all is good, and a write over what the
//! file has in place, whose times follow later. Most requests of a database end this way, and cost no change of threads.
//! The device's thread queues all other requests, failed ones included. Another thread completes them.
//!
//! A thread that completes it may be in the midst of an operation of somebody else. So a panic, also one of the caller's completion, does not
//! get there: it aborts the filesystem, as that of a step in the background does.
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

/// All that a request carries to its end.
pub(super) trait Carries: Send + 'static {
    /// What its devices say.
    type Landed: Send;

    /// What it is about.
    fn inode(&self) -> &Arc<Inode>;

    /// Wakes those who may wait for what it carries. It takes innermost locks only, and waits for nothing.
    fn wake_those_who_wait(&self);

    /// Returns the lock of `inode` that `finish` needs, if `finish` then waits for nothing; none sends the request to the queue. Waits for nothing.
    fn ends_at_once<'i>(&self, inode: &'i Inode, landed: &Self::Landed) -> Option<Item<'i>>;

    /// Does what is left to do, and gives all back.
    fn finish(self, landed: Self::Landed, answer: &mut Answer, item: Item<'_>) -> Result<DirectPart>;
}

/// The item of the inode, for the end of a request.
pub(super) enum Item<'i> {
    /// It is locked already, and nothing else that is needed is waited for.
    Held(HeldExtents<'i>),
    /// `finish` locks the item itself, and may wait for it.
    Free,
}

/// What a request's devices have said, and the answer that is owed for it; none before, and when that was given.
struct Outcome<L>(RankedMutex<Option<(L, Answer)>, { rank::LEAF }>);

/// A request that its devices are to answer, or have answered. The fields go from the first to the last.
struct SubmittedRequest<C: Carries> {
    carried: C,
    /// It is known until it is answered.
    begun: Begun,
    outcome: Arc<Outcome<C::Landed>>,
}

impl<C: Carries> Submitted for SubmittedRequest<C> {
    fn wake(&self) {
        self.carried.wake_those_who_wait();
        self.carried.inode().engine().wake_background();
    }

    fn has_background(&self) -> bool {
        self.carried.inode().engine().has_background_threads()
    }

    fn complete(self: Box<Self>) {
        let inode = Arc::clone(self.carried.inode());
        self.complete_with(&inode, Item::Free);
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
        // Nobody is left to tell of a panic.
        let _ = panics::catch(|| drop((carried, begun)));
        outcome.tell_that_it_is_abandoned();
    }
}

impl<C: Carries> SubmittedRequest<C> {
    /// Completes it, which is about `inode`, with the `item` of that.
    fn complete_with(self, inode: &Arc<Inode>, item: Item<'_>) {
        // It is known until it is answered, and until a panic has aborted the filesystem.
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

    /// Answers a request of a filesystem that was dropped, if its devices have answered and nobody else does. Nobody is left to tell of a
    /// panic of the completion.
    fn tell_that_it_is_abandoned(&self) {
        if let Some((_, answer)) = self.take() {
            let _ = panics::catch(|| answer.give(Err(dropped())));
        }
    }
}

/// What the devices of a request have of it: no more than keeps nobody alive (DIRECT-11). Dropped, the request lands as one that nobody
/// answered.
pub(super) struct Landing<L> {
    ticket: u64,
    /// None when it landed.
    landing: Option<(L, Answer)>,
    outcome: Arc<Outcome<L>>,
    in_flight: Arc<InFlight>,
}

impl<L: Send + 'static> Landing<L> {
    /// From now on a request that has `begun` is on its way to its devices and back. It lands as `unanswered` unless these say something
    /// else.
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

    /// Its devices say something, which `note` puts in its place.
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
