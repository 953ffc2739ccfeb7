//! The answer that is owed for a request, and its buffer until then.

use std::sync::{Arc, Weak};

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::AlignedBuffer;

use super::{DirectCompletion, DirectDone, DirectPart};
use crate::in_flight::BytesInFlight;
use crate::inode::Inodes;

/// The answer of a filesystem that is gone.
pub(super) fn dropped() -> Error {
    Error::new(ErrorKind::Stale, "the filesystem was dropped with a direct request in flight")
}

/// What is owed to who asked: an answer, once, with the buffer (DIRECT-2).
pub(crate) struct Answer {
    /// None when it was given.
    owed: Option<(Buffer, DirectCompletion, BytesInFlight)>,
    /// It says that what was written is durable, which takes these.
    durable: Option<Weak<Inodes>>,
}

enum Buffer {
    /// A write's: devices may have it, too.
    Written(Arc<AlignedBuffer>),
    /// A read's of so many bytes. None of them while somebody fills it.
    Read(AlignedBuffer, usize),
}

impl Buffer {
    /// It, for who asked. Nobody has it any more but a device that keeps a write's against the rules; that makes this a copy.
    fn back(self, is_good: bool) -> AlignedBuffer {
        match self {
            Self::Written(buffer) => Arc::unwrap_or_clone(buffer),
            Self::Read(buffer, len) if buffer.len() != len => AlignedBuffer::zeroed(len), // lost in a panic
            Self::Read(mut buffer, _) => {
                if !is_good {
                    buffer.fill(0); // it may have what no checksum stands for
                }
                buffer
            }
        }
    }
}

impl Answer {
    /// Owed to `done` for a write, with `buffer`.
    pub(crate) fn of_write(buffer: Arc<AlignedBuffer>, done: DirectCompletion, bytes: BytesInFlight) -> Self {
        Self { owed: Some((Buffer::Written(buffer), done, bytes)), durable: None }
    }

    /// The answer of a write that is to be durable first. It keeps nothing alive (DIRECT-11).
    pub(crate) fn when_durable(mut self, inodes: Option<&Arc<Inodes>>) -> Self {
        self.durable = inodes.map(Arc::downgrade);
        self
    }

    /// What makes the write durable, if that is to be done first.
    pub(super) fn owed_sync(&mut self) -> Option<Weak<Inodes>> {
        self.durable.take()
    }

    /// Owed to `done` for a read, with `buffer`.
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

    /// The buffer of a read is back.
    pub(super) fn take_back(&mut self, buffer: AlignedBuffer) {
        if let Some((Buffer::Read(lent, _), ..)) = &mut self.owed {
            *lent = buffer;
        }
    }

    /// It is owed no more: the buffer and the completion go back to who asked.
    pub(crate) fn withdraw(mut self) -> (AlignedBuffer, DirectCompletion) {
        let (buffer, done, _) = self.owed.take().expect("it was not given");
        (buffer.back(true), done)
    }

    /// Gives it.
    pub(crate) fn give(mut self, outcome: Result<DirectPart>) {
        self.give_once(outcome);
    }

    fn give_once(&mut self, outcome: Result<DirectPart>) {
        if let Some((buffer, done, bytes)) = self.owed.take() {
            let in_flight = bytes.in_flight();
            // The answer may let the caller submit another one.
            drop(bytes);
            done(DirectDone { buffer: buffer.back(outcome.is_ok()), outcome });
            in_flight.tell_of_an_answer();
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A thread panicked on the way.
        self.give_once(Err(Error::new(ErrorKind::Aborted, "a direct request came to no end")));
    }
}
