//! Direct requests of callers that must not wait.

use std::sync::Arc;

use creamery_base::Wait;
use creamery_device::{AlignedBuffer, SharedBytes};

use super::OpenFile;
use crate::counters::{Direct, Nowait, Refusal};
use crate::direct::{
    self, Answer, DirectAt, DirectCompletion, DirectRequest, Refused, Started, Stop, Unwaiting,
};

impl OpenFile {
    /// As [`submit_direct`](Self::submit_direct), for a caller that must not wait: the request begins at once, or it comes back and nothing
    /// has happened. It never waits for a lock that others have for long, nor for a device, for space or for a commit, and reads no tree
    /// block that is not in memory.
    ///
    /// A write begins that goes over one extent of a file that is NODATACOW, or into space that was set aside in one without
    /// checksums, where nobody else has that extent. A read begins whose range and checksums are known in memory. What is refused is for
    /// a thread that may wait: the same request by [`submit_direct`](Self::submit_direct) is carried out, or gets its true error.
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
    /// The request and its completion, with why it was refused. All other errors are the request's answer.
    pub fn try_submit_direct(
        &self,
        request: DirectRequest,
        done: DirectCompletion,
    ) -> std::result::Result<(), Box<Refused>> {
        let context = self.inode.context();
        let nowait = &context.counters().nowait;
        Nowait::add(&nowait.attempts, 1);
        let unwaiting = Unwaiting::begin();
        let attempted = match request {
            DirectRequest::Read { offset, buffer } => self.try_read(offset, buffer, done),
            DirectRequest::Write { at, data } => self.try_write(at, data, done),
        };
        unwaiting.end(nowait, context.policy().direct_waits);
        match &attempted {
            Ok(()) => {
                Nowait::add(&nowait.begun, 1);
                Direct::count(&context.counters().direct.submitted);
            }
            Err(refused) => nowait.refuse(refused.why),
        }
        attempted
    }

    fn try_read(
        &self,
        offset: u64,
        buffer: AlignedBuffer,
        done: DirectCompletion,
    ) -> std::result::Result<(), Box<Refused>> {
        let back = |buffer, done, why| Refused::new(DirectRequest::Read { offset, buffer }, done, why);
        let Some(bytes) = self.inode.context().in_flight().try_make_room(buffer.len() as u64) else {
            return Err(back(buffer, done, Refusal::TooMuchInFlight));
        };
        let answer = Answer::of_read(buffer, done, bytes);
        match self.inode.regular() {
            Ok(file) => {
                direct::try_submit_read((&self.inode, &file), offset, answer).map_err(|(answer, why)| {
                    let (buffer, done) = answer.withdraw();
                    back(buffer, done, why)
                })
            }
            Err(error) => {
                answer.give(Err(error));
                Ok(())
            }
        }
    }

    fn try_write(
        &self,
        at: DirectAt,
        data: AlignedBuffer,
        done: DirectCompletion,
    ) -> std::result::Result<(), Box<Refused>> {
        let back = |data, done, why| Refused::new(DirectRequest::Write { at, data }, done, why);
        let context = self.inode.context();
        let Some(bytes) = context.in_flight().try_make_room(data.len() as u64) else {
            return Err(back(data, done, Refusal::TooMuchInFlight));
        };
        let data = Arc::new(data);
        let answer = Answer::of_write(Arc::clone(&data), done, bytes);
        let data = SharedBytes::from(data);
        let attempted = match self.inode.regular() {
            Ok(file) => direct::attempt((&self.inode, &file), at, &data),
            Err(error) => Err(Stop::Failed(error)),
        };
        drop(data);
        if let Err(Stop::Refused(why)) = attempted {
            let (data, done) = answer.withdraw();
            return Err(back(data, done, why));
        }
        Direct::count(&context.counters().direct.writes);
        match attempted {
            Ok(Started::Flight(flight, batch)) => flight.submit(batch, Wait::No, answer),
            Ok(Started::Done(part)) => answer.give(Ok(part)),
            Err(Stop::Failed(error)) => answer.give(Err(error)),
            Err(Stop::Refused(_)) => unreachable!("it has come back"),
        }
        Ok(())
    }
}
