//! Direct reads and writes: data goes between a device and the caller's own buffer, and is in no memory of ours.
//!
//! ```text
//!   write_at        bytes --copy--> dirty pages --- later ---> device --> items in the tree
//!   write_direct    the caller's buffer ------------ now -----> device --> items in the tree
//! ```
//! A direct write has ended when its items are in the tree: from then on all readers get it from the device. An overwrite of
//! existing data in place changes none of these, and its times follow later (`overwrite_times`). It is as durable as any other
//! write: synced data survives a power cut. A write that was asked for as durable is answered when it is (`owed_sync`). `data`
//! decides, as for all writes, whether it goes over existing extents or to new space; new space gets checksums, which are computed
//! from the buffer. As on Linux it is never compressed, whatever the file's flags say; data that goes through memory is, as on
//! Linux, too.
//!
//! A direct read gets the same bytes as any other read: delayed data lies over the extents in the tree, and is copied from memory. The
//! rest goes from the device into the caller's buffer, and is verified against its checksums there, before the caller has it again.
//!
//! # The buffer
//! The caller gives it away and has it back with the answer. So no thread can change bytes between computing their checksum and writing
//! them, which would store data that its own checksum refuses. And no page of the buffer can be missing.
//!
//! # Beside others
//! A direct write looks where its data goes with the locks of the thread that asks for it. From then on until its items are in the
//! tree no thread has them: the write carries its resources (`flight`), and one request writes all of it. Where room is too scarce
//! to keep any for that, the calling thread makes the write at once. It looks for space on the way and has other threads free some.
//!
//! A direct write has its range of bytes alone until the items are in the tree. It shares the inode with others only under two conditions:
//!
//! | condition | because |
//! |---|---|
//! | it ends below the size of the file, which is not stored inline | other threads that share the inode rely on the size |
//! | no delayed data grows the file: its size in the tree is its size | growing writeback fills the gap and rewrites the old last sector: it must change extents alone (DATA-5) |
//!
//! A thread that grows a file has its inode alone, so a condition found with the inode shared holds as long as it is shared.
//! Otherwise the write locks the inode alone and first writes back all its delayed data. A write that shares the inode also writes
//! back the runs of dirty pages that its range touches. No thread makes pages dirty there meanwhile: it would need the range.
//!
//! # Requests that outlive their call
//! A direct write is the same, whether its caller waits or not. A caller that waits completes it. A write without a waiting caller
//! ends in `landing`. Its devices answer, and end it where that waits for nothing. Otherwise it stands in a queue. The background,
//! or a thread that waits for something it carries, completes it (`in_flight`). Beginning a request may take as long as any
//! operation: for locks, for space, for the way through memory.
//!
//! A direct read whose caller does not wait carries its range only (`read`). A thread that waits for its read keeps the range itself.
//!
//! A write that has the file alone (it grows it, or the file is one sector long) keeps all other writes out until it is complete.
//! So of several appending writes one is in flight.
//!
//! A request that must not wait begins without waiting for anything, or comes back (`attempt`; for reads `read`).
//!
//! # Errors
//! Errors are those of the one request. Lost data of a direct write was never in memory, so no other opener gets an error for it,
//! and no later fsync. Lost delayed data that had to be written back before is not the request's error: open files report it as
//! always.
//!
//! # Requests that go through memory all the same
//! Of a read: the ends that are no whole sectors, and all of a file with fs-verity, where whole blocks are verified against their
//! digests.
//!
//! Two kinds of writes are made as buffered writes, and written back before they are answered (`way`): those that do not begin and
//! end with sectors, and those over data that is inline or compressed. Only there a writeback error is the request's as well as the
//! openers'. It covers all the file's data that is written back meanwhile, whichever opener wrote it. The request's own opener has
//! it with the answer, and its next sync does not report it again.
//!
//! # Invariants
//! - DIRECT-2: a request is answered with its buffer, once, whatever comes of it. Of a call that waits only a panic takes the
//!   buffer along.
//!   Shown by `a_device_that_fails_is_told_to_the_writer_and_to_nobody_else`.
//! - DIRECT-4: a request that is refused leaves everything as it was. Shown by `what_is_refused_leaves_no_trace`,
//!   `what_is_refused_leaves_no_trace_and_is_carried_out_by_a_thread_that_waits`.
//! - DIRECT-5: a request that must not wait never waits, by the gate's own count. Shown by `a_wait_is_noticed`.
//! - DIRECT-16: a write that is asked for as durable is answered when it is. Its locks are released first. A thread that holds
//!   locks does not sync for it. Shown by `a_durable_write_is_answered_when_it_is_durable`,
//!   `what_is_written_in_place_survives_every_power_cut`.
//! - DIRECT-7: while a direct write has the range, no data of the range is delayed.
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
pub(crate) use attempt::{AttemptFailure, Attempted, attempt};
pub(crate) use read::submit as submit_read;
pub(crate) use unwaiting::Unwaiting;
pub use waiter::DirectWaiter;
pub(crate) use way::Buffered;
pub(crate) use write::{DirectRoute, Started, begin};

/// The position of a direct write in the file.
///
/// ```
/// use creamery_fs::DirectAt;
/// assert_ne!(DirectAt::Offset(0), DirectAt::End);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectAt {
    /// At this place of the file, in bytes from its beginning.
    Offset(u64),
    /// At the end of the file, wherever that is when the write has the file alone.
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
    /// Reads from `offset` on until `buffer` is full or the file ends.
    Read {
        /// The position where it begins, in bytes.
        offset: u64,
        /// The buffer that it fills.
        buffer: AlignedBuffer,
    },
    /// Writes `data`.
    Write {
        /// The position.
        at: DirectAt,
        /// The bytes to write.
        data: AlignedBuffer,
    },
    /// Writes `data`, and is answered when the data, and all metadata needed to read it, is durable: like a write to a file that was
    /// opened with O_DSYNC or O_SYNC.
    WriteDurably {
        /// The position.
        at: DirectAt,
        /// The bytes to write.
        data: AlignedBuffer,
    },
}

impl DirectRequest {
    /// The answer to a request that is refused before it begins: the reason, and its buffer.
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

/// The completion of a request, called exactly once with the answer. It may run on any thread: on the caller's before the request's
/// call returns, on one that waits in the midst of an operation, and on a device's, of which a file has four. It must be short,
/// must wait for nothing, and must call nothing of the filesystem. A panic of it aborts the filesystem. It must own no open file
/// and no filesystem: these would live until the request is answered.
pub type DirectCompletion = Box<dyn FnOnce(DirectDone) + Send>;

/// A request that would have had to wait. It comes back as it was given, and nothing has happened, except that a read's buffer may
/// have other bytes.
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
    /// The completion that is to be called with its answer.
    pub done: DirectCompletion,
    /// The reason why it would have had to wait.
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
    /// The position in the file where they begin, in bytes.
    pub offset: u64,
    /// How many bytes were read or written: less than all where the file ends, or where space ran out.
    pub len: usize,
}

/// The answer to a direct read or write: the buffer that was given away, and the outcome of the request.
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
    /// The buffer. A write leaves it as it was. After a read the bytes past the read ones have no meaning; after a failed read all are
    /// zero.
    pub buffer: AlignedBuffer,
    /// The bytes that were read or written, or the error.
    pub outcome: Result<DirectPart>,
}
