//! Direct reads and writes: data goes between a device and the caller's own buffer, and is in no memory of ours.
//!
//! ```text
//!   write_at        bytes --copy--> dirty pages --- later ---> device --> items in the tree
//!   write_direct    the caller's buffer ------------ now -----> device --> items in the tree
//! ```
//! A direct write has ended when its items are in the tree: everybody reads it from the device then. A write over what the file has in place
//! changes none of these, and its times follow later (`overwrite_times`). It is as durable as any other
//! write: what was synced is there after a power cut. One that is asked for as durable is answered when it is (`owed_sync`). It goes over what is there, or to new space, as `data` decides for all writes; new space gets
//! checksums, which are computed from the buffer. It is never packed, whatever the file is marked with, as on Linux;
//! what goes through memory is, as on Linux, too.
//!
//! A direct read gets what any read gets: what is delayed lies over what is in the tree, and is copied from there. The rest goes from the
//! device into the caller's buffer, and is held against its checksums there, before the caller has it again.
//!
//! # The buffer
//! The caller gives it away and has it back with the answer. So nobody can change bytes between the moment in which they are summed and that
//! in which they are written, which is the way to data that its own checksum refuses, and no page of it can be missing.
//!
//! # Beside others
//! A direct write looks where its data goes with the locks of the thread that asks for it. From then on until its items are in the tree no
//! thread has them: the write carries what it needs (`flight`), and one request writes all of it. Where room is so scarce that none can be kept for that, it is
//! made at once, on the thread that asks, which looks for space on the way and has others free some.
//!
//! A direct write has its range of bytes alone until the items are in the tree. It shares the inode with others only under two conditions:
//!
//! | condition | because |
//! |---|---|
//! | it ends below the size of the file, which is not stored inline | others who share the inode rely on the size |
//! | nothing that grows the file is delayed: its size in the tree is its size | writing back what grows a file fills the gap before it and rewrites the old last sector, and nobody else may change extents meanwhile (DATA-5) |
//!
//! Who grows a file has its inode alone, so what is found with the inode shared holds as long as it is shared. Otherwise the inode is locked alone
//! and everything delayed of it is written back first. Of a write that shares the inode the runs of dirty pages that its range touches are written back, too, and nobody
//! makes anything dirty there meanwhile: he would need the range.
//!
//! # Requests that outlive their call
//! A direct write is the same, whether its caller waits or not. A caller that waits completes it. A write without a waiting caller ends in
//! `landing`. Its devices answer, and end it where that waits for nothing. Otherwise it stands in a queue, and the background, or a thread that waits
//! for what it carries, completes it (`in_flight`). To begin one may take as long as any operation: for locks, for space, for the way through memory.
//!
//! A direct read whose caller does not wait carries its range only (`read`). A thread that waits for its read keeps the range itself.
//!
//! A write that has the file alone - it grows it, or the file is one sector long - keeps all others out until it is complete. So of
//! several that append one is in flight.
//!
//! A request that must not wait begins without waiting for anything, or comes back (`attempt`; for reads `read`).
//!
//! # Errors
//! They are those of the one request. What is lost of a direct write was never in memory, so no other opener hears of it, and no later fsync. And what is lost of delayed data that had to be written back before is
//! not the request's: the openers learn that as always.
//!
//! # What goes through memory all the same
//! Of a read the ends that are no whole sectors, and all of a file with fs-verity, of which whole blocks are held against their digests.
//!
//! A write that does not begin and end with sectors, and one over what is stored in the tree itself or compressed, is made as any other
//! write and then written back before it is answered (`way`). Only there an error of writing back is the request's as well as the openers':
//! of all the file's data that is written back meanwhile, whoever wrote it. The request's own opener has it with the answer, and its next sync does not tell it again.
//!
//! # Invariants
//! - DIRECT-2: a request is answered with its buffer, once, whatever comes of it. Of a call that waits only a panic takes it along.
//!   Shown by `a_device_that_fails_is_told_to_the_writer_and_to_nobody_else`.
//! - DIRECT-4: a request that is refused leaves everything as it was. Shown by `what_is_refused_leaves_no_trace`,
//!   `what_is_refused_leaves_no_trace_and_is_carried_out_by_a_thread_that_waits`.
//! - DIRECT-5: a request that must not wait never waits, by the gate's own count. Shown by `a_wait_is_noticed`.
//! - DIRECT-16: a write that is asked for as durable is answered when it is. Its locks are released first. A thread that holds locks does not
//!   sync for it. Shown by `a_durable_write_is_answered_when_it_is_durable`, `what_is_written_in_place_survives_every_power_cut`.
//! - DIRECT-7: while a direct write has the range, nothing of that is delayed.
//!   Shown by `what_was_delayed_before_a_direct_write_does_not_come_back`.
//! - DIRECT-8: a direct write that shares the inode leaves the size of the file as it is.
//!   Shown by `a_file_grows_beside_direct_writes_of_its_front`.

mod answer;
mod attempt;
mod flight;
mod landing;
mod owed_sync;
mod read;
mod unwaiting;
mod waiter;
mod way;
mod write;

#[cfg(test)]
mod tests;

use creamery_base::{Error, Result};
use creamery_device::AlignedBuffer;

use crate::counters::Refusal;

pub(crate) use answer::Answer;
pub(crate) use attempt::{Attempted, Stop, attempt};
pub(crate) use read::submit as submit_read;
pub(crate) use unwaiting::Unwaiting;
pub use waiter::DirectWaiter;
pub(crate) use way::Buffered;
pub(crate) use write::{Started, Way, begin};

/// Where a direct write goes.
///
/// ```
/// use creamery_fs::DirectAt;
/// assert_ne!(DirectAt::Offset(0), DirectAt::End);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectAt {
    /// To this place of the file, in bytes from its beginning.
    Offset(u64),
    /// Behind the end of the file, wherever that is when the write has the file alone.
    End,
}

/// A direct request that its caller does not wait for.
///
/// ```
/// use creamery_device::AlignedBuffer;
/// use creamery_fs::{DirectAt, DirectRequest};
/// let request = DirectRequest::Write { at: DirectAt::End, data: AlignedBuffer::zeroed(4096) };
/// # drop(request);
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum DirectRequest {
    /// Reads from `offset` on as much as `buffer` has room for, and the file has.
    Read {
        /// Where it begins, in bytes.
        offset: u64,
        /// What is filled.
        buffer: AlignedBuffer,
    },
    /// Writes `data`.
    Write {
        /// Where it goes.
        at: DirectAt,
        /// What is written.
        data: AlignedBuffer,
    },
    /// Writes `data`, and is answered when that is durable, with all that reading it takes: as a write to a file that was opened with
    /// O_DSYNC or O_SYNC.
    WriteDurably {
        /// Where it goes.
        at: DirectAt,
        /// What is written.
        data: AlignedBuffer,
    },
}

impl DirectRequest {
    /// The answer to a request that is refused before anything was done: why, and its buffer.
    ///
    /// ```
    /// use creamery_base::{Error, ErrorKind};
    /// use creamery_device::AlignedBuffer;
    /// use creamery_fs::DirectRequest;
    /// let request = DirectRequest::Read { offset: 0, buffer: AlignedBuffer::zeroed(4096) };
    /// let done = request.refuse(Error::new(ErrorKind::PermissionDenied, "not for you"));
    /// assert_eq!((done.buffer.len(), done.outcome.is_err()), (4096, true));
    /// ```
    #[must_use = "it has the buffer"]
    pub fn refuse(self, error: Error) -> DirectDone {
        let (Self::Read { buffer, .. }
        | Self::Write { data: buffer, .. }
        | Self::WriteDurably { data: buffer, .. }) = self;
        DirectDone { buffer, outcome: Err(error) }
    }
}

/// Called exactly once with the answer to a request: on any thread, also on that of the caller before the request's call returns, on
/// one that waits in the midst of an operation, and on a device's, of which a file has four. It must be short, must wait for nothing, and must ask the filesystem for nothing. A panic
/// of it aborts the filesystem. It has no open file and no filesystem: these would live until the request is answered.
pub type DirectCompletion = Box<dyn FnOnce(DirectDone) + Send>;

/// A request that would have had to wait. It comes back as it was given, and nothing has happened; only a read's buffer may have other bytes.
///
/// ```
/// fn again(file: &creamery_fs::OpenFile, refused: creamery_fs::Refused) {
///     println!("refused: {}", refused.why.name());
///     file.submit_direct(refused.request, refused.done);
/// }
/// ```
#[non_exhaustive]
pub struct Refused {
    /// The request.
    pub request: DirectRequest,
    /// What is to be called with its answer.
    pub done: DirectCompletion,
    /// Why it would have had to wait.
    pub why: Refusal,
}

impl Refused {
    pub(crate) fn new(request: DirectRequest, done: DirectCompletion, why: Refusal) -> Box<Self> {
        Box::new(Self { request, done, why })
    }
}

impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refused")
            .field("request", &self.request)
            .field("why", &self.why)
            .finish_non_exhaustive()
    }
}

/// The bytes of a file that a direct read or write was about.
///
/// ```
/// let part = creamery_fs::DirectPart { offset: 4096, len: 8192 };
/// assert_eq!(part.offset + part.len as u64, 12288);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectPart {
    /// Where in the file they begin, in bytes.
    pub offset: u64,
    /// How many bytes were read or written: less than all where the file ends, or where space ran out.
    pub len: usize,
}

/// The answer to a direct read or write: the buffer that was given away, and what came of the request.
///
/// ```
/// use creamery_fs::{DirectDone, DirectPart};
/// use creamery_device::AlignedBuffer;
/// let done = DirectDone { buffer: AlignedBuffer::zeroed(4096), outcome: Ok(DirectPart { offset: 0, len: 100 }) };
/// let DirectDone { buffer, outcome } = done;
/// println!("{:?}", &buffer[..outcome?.len]);
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Debug)]
pub struct DirectDone {
    /// The buffer. A write leaves it as it was. After a read the bytes behind those that were read mean nothing; after one that failed
    /// all are zero.
    pub buffer: AlignedBuffer,
    /// What was read or written, or why nothing, or not all, was.
    pub outcome: Result<DirectPart>,
}
