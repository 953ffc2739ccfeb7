//! The answer that is owed for a request, and its buffer until then.

use std::sync::{Arc, Weak};

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::AlignedBuffer;

use super::{DirectCompletion, DirectDone, DirectPart};
use crate::in_flight::BytesInFlight;
use crate::inode::Inodes;

/// The error that answers a request of a filesystem that is gone.
pub(super) fn dropped() -> Error {
    Error::new(ErrorKind::Stale, "the filesystem was dropped with a direct request in flight")
}

/// The answer that is owed to the caller of a request: given once, with the buffer (DIRECT-2).
pub(crate) struct Answer {
    /// `None` after the answer was given.
    owed: Option<(Buffer, DirectCompletion, BytesInFlight)>,
    /// Set when the answer promises durability; these inodes make the write durable.
    durable: Option<Weak<Inodes>>,
}

enum Buffer {
    /// The buffer of a write: devices may hold it, too.
    Written(Arc<AlignedBuffer>),
    /// The buffer of a read of so many bytes. It is empty while it is lent.
    Read(AlignedBuffer, usize),
}

impl Buffer {
    /// Returns the buffer for the caller. No other owner is left, except a device that keeps a write's buffer against the rules;
    /// then this is a copy.
    fn back(self, is_good: bool) -> AlignedBuffer {
        match self {
            Self::Written(buffer) => Arc::unwrap_or_clone(buffer),
            Self::Read(buffer, len) if buffer.len() != len => AlignedBuffer::zeroed(len), // lost in a panic
            Self::Read(mut buffer, _) => {
                if !is_good {
                    buffer.fill(0); // it may have bytes that no checksum covers
                }
                buffer
            }
        }
    }
}

impl Answer {
    /// Makes the answer of a write with `buffer`, owed to `done`.
    pub(crate) fn of_write(buffer: Arc<AlignedBuffer>, done: DirectCompletion, bytes: BytesInFlight) -> Self {
        Self { owed: Some((Buffer::Written(buffer), done, bytes)), durable: None }
    }

    /// Promises, with `inodes`, that the write is durable before the answer is given. It does not keep them alive (DIRECT-11).
    pub(crate) fn when_durable(mut self, inodes: Option<&Arc<Inodes>>) -> Self {
        self.durable = inodes.map(Arc::downgrade);
        self
    }

    /// Takes the inodes that make the write durable, if it has to be durable before the answer.
    pub(super) fn owed_sync(&mut self) -> Option<Weak<Inodes>> {
        self.durable.take()
    }

    /// Makes the answer of a read with `buffer`, owed to `done`.
    pub(crate) fn of_read(buffer: AlignedBuffer, done: DirectCompletion, bytes: BytesInFlight) -> Self {
        let len = buffer.len();
        Self { owed: Some((Buffer::Read(buffer, len), done, bytes)), durable: None }
    }

    /// Lends the buffer of a read to the code that fills it.
    pub(super) fn lend(&mut self) -> AlignedBuffer {
        match &mut self.owed {
            Some((Buffer::Read(buffer, len), ..)) if buffer.len() == *len => std::mem::take(buffer),
            Some((Buffer::Read(_, len), ..)) => AlignedBuffer::zeroed(*len), // lost in a panic
            _ => unreachable!("it is a read's, and was not given"),
        }
    }

    /// Takes the lent buffer of a read back.
    pub(super) fn take_back(&mut self, buffer: AlignedBuffer) {
        if let Some((Buffer::Read(lent, _), ..)) = &mut self.owed {
            *lent = buffer;
        }
    }

    /// Cancels the answer, and returns the buffer and the completion to the caller.
    pub(crate) fn withdraw(mut self) -> (AlignedBuffer, DirectCompletion) {
        let (buffer, done, _) = self.owed.take().expect("it was not given");
        (buffer.back(true), done)
    }

    /// Gives the answer.
    pub(crate) fn give(mut self, outcome: Result<DirectPart>) {
        self.give_once(outcome);
    }

    fn give_once(&mut self, outcome: Result<DirectPart>) {
        if let Some((buffer, done, bytes)) = self.owed.take() {
            let in_flight = bytes.in_flight();
            // The completion may let the caller submit another request.
            drop(bytes);
            done(DirectDone { buffer: buffer.back(outcome.is_ok()), outcome });
            in_flight.tell_of_an_answer();
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A thread panicked on the way.
        self.give_once(Err(Error::new(ErrorKind::Aborted, "a direct request did not complete")));
    }
}
