//! The end of a direct write that nobody waits for: its devices answer, somebody completes it, and it is answered.
//!
//! ```text
//!   submit --+--> SubmittedWrite ---- in_flight: has to land -------------------> has landed ----> complete, answer
//!            |                                                                       ^
//!            +--> Landing ----------- the devices answer, or drop it ----------------+
//! ```
//! A device's thread only says that it has landed, also when it failed: what the write carries is given back elsewhere.
//!
//! A thread that completes it may be in the midst of an operation of somebody else. So a panic, also one of the caller's completion, does not
//! get there: it aborts the filesystem, as that of a step in the background does.

use std::sync::Arc;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Result, panics};
use creamery_device::AlignedBuffer;
use creamery_volume::{WriteBatch, WriteReport, Written};

use super::flight::Flight;
use super::{DirectCompletion, DirectDone, DirectPart};
use crate::in_flight::{BytesInFlight, InFlight, Submitted};

/// What is owed to who asked: an answer, once, with the buffer (DIRECT-2).
pub(crate) struct Answer {
    /// None when it was given.
    owed: Option<(Arc<AlignedBuffer>, DirectCompletion, BytesInFlight)>,
}

impl Answer {
    /// Owed to `done`, with `buffer`.
    pub(crate) fn new(buffer: Arc<AlignedBuffer>, done: DirectCompletion, bytes: BytesInFlight) -> Self {
        Self { owed: Some((buffer, done, bytes)) }
    }

    /// Gives it. Nobody has the buffer any more but a device that keeps it against the rules; that makes this a copy.
    pub(crate) fn give(mut self, outcome: Result<DirectPart>) {
        self.give_once(outcome);
    }

    fn give_once(&mut self, outcome: Result<DirectPart>) {
        if let Some((buffer, done, bytes)) = self.owed.take() {
            // The answer may let the caller submit another one.
            drop(bytes);
            done(DirectDone { buffer: Arc::unwrap_or_clone(buffer), outcome });
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A thread panicked on the way.
        self.give_once(Err(Error::new(ErrorKind::Aborted, "a direct write came to no end")));
    }
}

/// What became of a write on its devices, and the answer that is owed for it; none before they have answered, and when it was given.
#[derive(Default)]
struct Outcome(RankedMutex<Option<(Result<Written>, Answer)>, { rank::LEAF }>);

/// A write that its devices are to answer, or have answered.
struct SubmittedWrite {
    flight: Flight,
    outcome: Arc<Outcome>,
}

impl Submitted for SubmittedWrite {
    fn wake(&self) {
        self.flight.wake_those_who_wait();
    }

    fn complete(self: Box<Self>) {
        let Self { flight, outcome } = *self;
        let (outcome, answer) = outcome.take().expect("it has landed");
        let engine = Arc::clone(flight.context().engine());
        // It is known until it is answered, and until a panic has aborted the filesystem.
        let (carried, _begun) = flight.land();
        if let Err(panic) = panics::catch(|| answer.give(carried.finish(outcome))) {
            engine.abort_after_panic(&panic);
        }
    }

    fn abandon(self: Box<Self>) {
        let Self { flight, outcome } = *self;
        // Nobody is left to tell of a panic.
        let _ = panics::catch(|| drop(flight));
        outcome.tell_that_it_is_abandoned();
    }
}

impl Outcome {
    fn take(&self) -> Option<(Result<Written>, Answer)> {
        self.0.lock().take()
    }

    /// Answers a write of a filesystem that was dropped, if its devices have answered and nobody else does. Nobody is left to tell of a
    /// panic of the completion.
    fn tell_that_it_is_abandoned(&self) {
        if let Some((_, answer)) = self.take() {
            let dropped =
                Error::new(ErrorKind::Stale, "the filesystem was dropped with a direct write in flight");
            let _ = panics::catch(|| answer.give(Err(dropped)));
        }
    }
}

/// What the devices of a write have of it: no more than keeps nobody alive (DIRECT-11). Dropped, the write lands as one that failed.
struct Landing {
    ticket: u64,
    /// None when it landed.
    landing: Option<(Result<Written>, Answer)>,
    outcome: Arc<Outcome>,
    in_flight: Arc<InFlight>,
}

impl Landing {
    fn lands(mut self, outcome: Result<Written>) {
        if let Some((landed, _)) = &mut self.landing {
            *landed = outcome;
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        *self.outcome.0.lock() = self.landing.take();
        if !self.in_flight.land(self.ticket) {
            self.outcome.tell_that_it_is_abandoned();
        }
    }
}

impl Flight {
    /// Sends `batch`, which is all that it has places for, to the devices, and waits for nothing.
    pub(crate) fn submit(self, batch: WriteBatch, answer: Answer) {
        let (engine, in_flight) =
            (Arc::clone(self.context().engine()), Arc::clone(self.context().in_flight()));
        let unanswered = Error::new(ErrorKind::Io, "a direct write was dropped unanswered");
        let (ticket, outcome) = (self.ticket(), Arc::<Outcome>::default());
        let request = SubmittedWrite { flight: self, outcome: Arc::clone(&outcome) };
        in_flight.submit(ticket, Box::new(request));
        let landing = Landing { ticket, landing: Some((Err(unanswered), answer)), outcome, in_flight };
        let done = |report: Result<WriteReport>| landing.lands(report.and_then(WriteReport::into_written));
        engine.volume().submit_write(batch, Box::new(done));
    }
}
