//! The end of a direct request that nobody waits for: its devices answer, somebody completes it, and it is answered.
//!
//! ```text
//!   submit --+--> SubmittedRequest -- in_flight: has to land -------------------> has landed ----> complete, answer
//!            |                                                                       ^
//!            +--> Landing ----------- the devices answer, or drop it ----------------+
//! ```
//! A write that is asked for as durable owes a sync then (`owed_sync`), and is answered behind that.
//!
//! A device's thread only says that it has landed, also when it failed: what the request carries is given back elsewhere.
//!
//! A thread that completes it may be in the midst of an operation of somebody else. So a panic, also one of the caller's completion, does not
//! get there: it aborts the filesystem, as that of a step in the background does.

use std::sync::Arc;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Result, panics};

use super::DirectPart;
use super::answer::{Answer, dropped};
use super::owed_sync::OwedSync;
use crate::in_flight::{Begun, InFlight, Submitted};
use crate::inode::Inode;

/// All that a request carries to its end.
pub(super) trait Carries: Send + 'static {
    /// What its devices say.
    type Landed: Send;

    /// What it is about.
    fn inode(&self) -> &Arc<Inode>;

    /// Wakes those who may wait for what it carries. It takes innermost locks only, and waits for nothing.
    fn wake_those_who_wait(&self);

    /// Does what is left to do, and gives all back.
    fn finish(self, landed: Self::Landed, answer: &mut Answer) -> Result<DirectPart>;
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
        // It is known until it is answered, and until a panic has aborted the filesystem.
        let Self { carried, begun, outcome } = *self;
        let (landed, mut answer) = outcome.take().expect("it has landed");
        let (inode, mut begun) = (Arc::clone(carried.inode()), Some(begun));
        let ended = panics::catch(|| match (carried.finish(landed, &mut answer), answer.owed_sync()) {
            (Ok(part), Some(inodes)) => {
                let begun = begun.take().expect("it is known until it is answered");
                OwedSync { answer, part, inode: Arc::clone(&inode), inodes, begun }.owe();
            }
            (outcome, _) => answer.give(outcome),
        });
        if let Err(panic) = ended {
            inode.engine().abort_after_panic(&panic);
        }
    }

    fn abandon(self: Box<Self>) {
        let Self { carried, begun, outcome } = *self;
        // Nobody is left to tell of a panic.
        let _ = panics::catch(|| drop((carried, begun)));
        outcome.tell_that_it_is_abandoned();
    }
}

impl<L> Outcome<L> {
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
