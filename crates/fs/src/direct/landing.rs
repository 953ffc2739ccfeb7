//! The end of a direct write that nobody waits for: its devices answer, somebody completes it, and it is answered.
//!
//! ```text
//!   submit ---> Landing ----- the devices answer, or drop it -----> LandedWrite ---- in_flight ----> complete, answer
//! ```
//! On a device's thread it is only put into the queue, also when it failed: what it carries is given back elsewhere.
//!
//! A thread that completes it may be in the midst of an operation of somebody else. So a panic, also one of the caller's completion, does not
//! get there: it aborts the filesystem, as that of a step in the background does.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Result, panics};
use creamery_device::AlignedBuffer;
use creamery_volume::{WriteBatch, WriteReport, Written};

use super::flight::Flight;
use super::{DirectCompletion, DirectDone, DirectPart};
use crate::in_flight::{InFlight, Landed};

/// What is owed to who asked: an answer, once, with the buffer (DIRECT-2).
pub(crate) struct Answer {
    /// None when it was given.
    owed: Option<(Arc<AlignedBuffer>, DirectCompletion)>,
}

impl Answer {
    /// Owed to `done`, with `buffer`.
    pub(crate) fn new(buffer: Arc<AlignedBuffer>, done: DirectCompletion) -> Self {
        Self { owed: Some((buffer, done)) }
    }

    /// Gives it. Nobody has the buffer any more but a device that keeps it against the rules; that makes this a copy.
    pub(crate) fn give(mut self, outcome: Result<DirectPart>) {
        self.give_once(outcome);
    }

    fn give_once(&mut self, outcome: Result<DirectPart>) {
        if let Some((buffer, done)) = self.owed.take() {
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

/// A write that its devices have answered.
struct LandedWrite {
    flight: Flight,
    outcome: Result<Written>,
    answer: Answer,
}

impl Landed for LandedWrite {
    fn wake(&self) {
        self.flight.wake_those_who_wait();
    }

    fn complete(self: Box<Self>) {
        let Self { flight, outcome, answer } = *self;
        let engine = Arc::clone(flight.context().engine());
        let ended = panics::catch(|| {
            let (outcome, begun) = flight.finish(outcome);
            answer.give(outcome);
            drop(begun);
        });
        if let Err(panic) = ended {
            engine.abort_after_panic(&panic);
        }
    }
}

/// A write that its devices are still to answer; dropped, it lands as one that failed.
struct Landing {
    /// None when it landed.
    write: Option<Box<LandedWrite>>,
    in_flight: Arc<InFlight>,
}

impl Landing {
    fn lands(mut self, outcome: Result<Written>) {
        if let Some(write) = &mut self.write {
            write.outcome = outcome;
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            self.in_flight.land(write);
        }
    }
}

impl Flight {
    /// Sends what [`Flight::begin`] told to the devices, and waits for nothing.
    pub(crate) fn submit(self, batch: WriteBatch, answer: Answer) {
        let (engine, in_flight) =
            (Arc::clone(self.context().engine()), Arc::clone(self.context().in_flight()));
        let outcome = Err(Error::new(ErrorKind::Io, "a direct write was dropped unanswered"));
        let landing =
            Landing { write: Some(Box::new(LandedWrite { flight: self, outcome, answer })), in_flight };
        let done = |report: Result<WriteReport>| landing.lands(report.and_then(WriteReport::into_written));
        engine.volume().submit_write(batch, Box::new(done));
    }
}
