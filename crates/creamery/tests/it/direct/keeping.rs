//! A device that answers writes of marked data, and reads of it, on the test's command.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use creamery::device::{BlockDevice, Completion, DeviceId, MemoryDevice, Request};
use creamery::{Error, ErrorKind};

/// Sectors of this byte are marked.
pub(super) const MARK: u8 = 0xe7;
pub(super) const SECTOR: usize = 4096;

pub(super) struct Keeping {
    below: Arc<MemoryDevice>,
    kept: Mutex<VecDeque<(Request, Completion)>>,
    keeps_reads: AtomicBool,
}

impl Keeping {
    pub(super) fn new(below: Arc<MemoryDevice>) -> Self {
        Self { below, kept: Mutex::default(), keeps_reads: AtomicBool::new(false) }
    }

    /// From now on it also holds reads until the test's command.
    pub(super) fn keep_reads(&self) {
        self.keeps_reads.store(true, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Request, Completion)>> {
        self.kept.lock().expect("nobody panicked")
    }

    /// Requests without an answer.
    pub(super) fn kept(&self) -> usize {
        self.lock().len()
    }

    fn next(&self) -> (Request, Completion) {
        self.lock().pop_front().expect("it was asked")
    }

    /// Answers the oldest open request, on this thread.
    pub(super) fn answer(&self) {
        let (request, done) = self.next();
        self.below.submit(request, done);
    }

    /// Fails the oldest open request.
    pub(super) fn fail(&self) {
        let (request, done) = self.next();
        drop(request);
        done(Err(Error::new(ErrorKind::Io, "the device fails")));
    }

    /// Whether all data of a request is marked.
    fn is_marked(&self, request: &Request) -> bool {
        let mut first = [0; SECTOR];
        match request {
            Request::Write { data, .. } => data.iter().all(|part| part.iter().all(|byte| *byte == MARK)),
            Request::Read { offset, .. } if self.keeps_reads.load(Ordering::SeqCst) => {
                self.below.read_at(*offset, &mut first).is_ok() && first == [MARK; SECTOR]
            }
            _ => false,
        }
    }
}

impl BlockDevice for Keeping {
    fn submit(&self, request: Request, done: Completion) {
        if self.is_marked(&request) {
            self.lock().push_back((request, done));
        } else {
            self.below.submit(request, done);
        }
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
