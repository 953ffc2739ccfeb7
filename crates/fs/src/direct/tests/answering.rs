//! A device that answers reads and writes of marked data when the test calls `answer`, and in the way that it names.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::sync::Mutex;
use creamery_base::{Error, ErrorKind};
use creamery_device::{AlignedBuffer, BlockDevice, Completion, DeviceId, MemoryDevice, Reply, Request};

use crate::data::tests::support::SECTOR;

/// Bytes from here on mark written data: all bytes of a part are equal.
pub(super) const MARKED: u8 = 0xe0;

pub(super) struct Answering {
    below: Arc<MemoryDevice>,
    kept: Mutex<VecDeque<(Request, Completion)>>,
    keeps_reads: AtomicBool,
    is_full: AtomicBool,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    Done,
    Failed,
    /// A part of it is written, and the device reports that.
    Short,
    /// The device drops it without an answer.
    Dropped,
}

impl Answering {
    pub(super) fn new(below: Arc<MemoryDevice>) -> Self {
        Self {
            below,
            kept: Mutex::default(),
            keeps_reads: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
        }
    }

    /// Makes the device keep reads of marked data until the test answers them, or answer them at once.
    pub(super) fn keep_reads(&self, keeps: bool) {
        self.keeps_reads.store(keeps, Ordering::SeqCst);
    }

    /// Gives the device no room, or room again, for requests that must not wait.
    pub(super) fn is_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }

    /// Whether a read is of marked data.
    fn has_marked(&self, offset: u64) -> bool {
        let mut sector = [0; SECTOR as usize];
        self.below.read_at(offset, &mut sector).is_ok() && is_marked(&sector)
    }

    /// A copy of its content.
    pub(super) fn copy(&self) -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice::copy_of(&*self.below).expect("a copy"))
    }

    /// The number of requests without an answer.
    pub(super) fn kept(&self) -> usize {
        self.kept.lock().len()
    }

    /// Answers one of them, on this thread.
    pub(super) fn answer(&self, which: usize, how: How) {
        let (request, done) = self.kept.lock().remove(which).expect("it was asked");
        match how {
            How::Done => self.below.submit(request, done),
            How::Failed => done(Err(Error::new(ErrorKind::Io, "the device fails"))),
            How::Short => {
                let (offset, data) = match request {
                    Request::Write { offset, data } => (offset, data),
                    Request::Read { buffer, .. } => {
                        return done(Ok(Reply::Read(AlignedBuffer::zeroed(buffer.len() / 2))));
                    }
                    _ => panic!("it is kept for its bytes"),
                };
                let first = data.iter().next().expect("some data");
                self.below.write_at(offset, &first[..first.len() / 2]).expect("memory takes it");
                drop(data);
                done(Err(Error::new(ErrorKind::Io, "the device took half of it")));
            }
            How::Dropped => drop((request, done)),
        }
    }
}

fn is_marked(part: &[u8]) -> bool {
    part[0] >= MARKED && part.iter().all(|byte| *byte == part[0])
}

impl BlockDevice for Answering {
    fn submit(&self, request: Request, done: Completion) {
        let is_marked = match &request {
            Request::Write { data, .. } => data.iter().next().is_some_and(is_marked),
            Request::Read { offset, .. } => {
                self.keeps_reads.load(Ordering::SeqCst) && self.has_marked(*offset)
            }
            _ => false,
        };
        if is_marked {
            self.kept.lock().push_back((request, done));
        } else {
            self.below.submit(request, done);
        }
    }

    fn has_room(&self) -> bool {
        !self.is_full.load(Ordering::SeqCst)
    }

    fn len(&self) -> u64 {
        self.below.len()
    }

    fn id(&self) -> DeviceId {
        self.below.id()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }
}
