//! Direct requests of callers that must not wait.

use std::sync::Arc;

use creamery_base::{Result, Wait};
use creamery_device::{AlignedBuffer, SharedBytes};

use super::OpenFile;
use crate::counters::{Direct, Nowait, Refusal};
use crate::direct::{
    self, Answer, AttemptFailure, Attempted, DirectAt, DirectCompletion, DirectPart, DirectRequest, Refused,
    Started, Unwaiting,
};
use crate::inode::Inodes;

impl OpenFile {
    /// Submits a request like [`submit_direct`](Self::submit_direct), for a caller that must not wait: the request begins at once, or it
    /// comes back and nothing has happened. It never waits for a lock that other threads hold for long, nor for a device, for space or for
    /// a commit, and reads no tree block that is not in memory.
    ///
    /// A write begins if it goes over one extent of a NODATACOW file, or into preallocated space of a file without checksums, and no
    /// other file or snapshot has that extent. A read begins if its range and checksums are known in memory. A refused request is for a
    /// thread that may wait: [`submit_direct`](Self::submit_direct) carries it out, or answers with its true error.
    ///
    /// ```no_run
    /// use creamery_fs::{DirectCompletion, DirectRequest, OpenFile};
    /// fn begin(file: &OpenFile, request: DirectRequest, done: DirectCompletion) {
    ///     if let Err(refused) = file.try_submit_direct(request, done) {
    ///         // On a thread that may wait:
    ///         file.submit_direct(refused.request, refused.done);
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// The request and its completion, with the reason for the refusal. All other errors are the request's answer.
    pub fn try_submit_direct(
        &self,
        request: DirectRequest,
        done: DirectCompletion,
    ) -> std::result::Result<(), Box<Refused>> {
        let context = self.inode.context();
        let nowait = &context.counters().nowait;
        Nowait::add(&nowait.attempts, 1);
        let unwaiting = Unwaiting::begin();
        let attempt = match request {
            DirectRequest::Read { offset, buffer } => self.try_read(offset, buffer, done),
            DirectRequest::Write { at, data } => {
                let back = |data| DirectRequest::Write { at, data };
                self.try_write((at, data), (done, None), back)
            }
            DirectRequest::WriteDurably { at, data } => {
                let back = |data| DirectRequest::WriteDurably { at, data };
                self.try_write((at, data), (done, Some(&self.inodes)), back)
            }
        };
        unwaiting.end(nowait, context.policy().direct_waits);
        if let Attempt::Refused(refused) = attempt {
            nowait.refuse(refused.why);
            return Err(refused);
        }
        Nowait::add(&nowait.begun, 1);
        Direct::count(&context.counters().direct.submitted);
        // The completion runs the caller's code, which may wait.
        if let Attempt::Ended(answer, outcome) = attempt {
            answer.give(outcome);
        }
        Ok(())
    }

    fn try_read(&self, offset: u64, buffer: AlignedBuffer, done: DirectCompletion) -> Attempt {
        let back = |buffer, done, why| Refused::new(DirectRequest::Read { offset, buffer }, done, why);
        let Some(bytes) = self.inode.context().in_flight().try_make_room(buffer.len() as u64) else {
            return Attempt::Refused(back(buffer, done, Refusal::TooMuchInFlight));
        };
        let answer = Answer::of_read(buffer, done, bytes);
        let ended = match self.inode.regular() {
            Ok(file) => direct::submit_read((&self.inode, &file), offset, Wait::No, answer),
            Err(error) => Some((answer, Err(AttemptFailure::Failed(error)))),
        };
        Attempt::of(ended, back)
    }

    /// Tries a write. `durable`, if given, makes it durable before it is answered; `back` turns it into the request again.
    fn try_write(
        &self,
        (at, data): (DirectAt, AlignedBuffer),
        (done, durable): (DirectCompletion, Option<&Arc<Inodes>>),
        back: impl Fn(AlignedBuffer) -> DirectRequest,
    ) -> Attempt {
        let back = |data, done, why| Refused::new(back(data), done, why);
        let context = self.inode.context();
        let Some(bytes) = context.in_flight().try_make_room(data.len() as u64) else {
            return Attempt::Refused(back(data, done, Refusal::TooMuchInFlight));
        };
        let data = Arc::new(data);
        let answer = Answer::of_write(Arc::clone(&data), done, bytes).when_durable(durable);
        let data = SharedBytes::from(data);
        let attempted = match self.inode.regular() {
            Ok(file) => direct::attempt((&self.inode, &file), at, &data),
            Err(error) => Err(AttemptFailure::Failed(error)),
        };
        drop(data);
        if !matches!(attempted, Err(AttemptFailure::Refused(_))) {
            Direct::count(&context.counters().direct.writes);
        }
        let ended = match attempted {
            Ok(Started::Flight(flight, batch)) => {
                flight.submit(batch, Wait::No, answer);
                None
            }
            Ok(Started::Done(part)) => Some((answer, Ok(part))),
            Err(stop) => Some((answer, Err(stop))),
        };
        Attempt::of(ended, back)
    }
}

/// The outcome of a request that must not wait.
enum Attempt {
    /// Devices have it.
    Submitted,
    /// The request has ended; the caller of this gives the answer.
    Ended(Answer, Result<DirectPart>),
    Refused(Box<Refused>),
}

impl Attempt {
    /// The outcome of a request that has `ended`, if it has; `back` makes a request of a returned answer.
    fn of(
        ended: Option<(Answer, Attempted<DirectPart>)>,
        back: impl FnOnce(AlignedBuffer, DirectCompletion, Refusal) -> Box<Refused>,
    ) -> Self {
        match ended {
            None => Self::Submitted,
            Some((answer, Err(AttemptFailure::Refused(why)))) => {
                let (buffer, done) = answer.withdraw();
                Self::Refused(back(buffer, done, why))
            }
            Some((answer, Err(AttemptFailure::Failed(error)))) => Self::Ended(answer, Err(error)),
            Some((answer, Ok(part))) => Self::Ended(answer, Ok(part)),
        }
    }
}
