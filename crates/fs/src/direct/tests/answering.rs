//! A device that answers writes of marked data when it is told to, and as it is told.

use std::collections::VecDeque;
use std::sync::Arc;

use creamery_base::sync::Mutex;
use creamery_base::{Error, ErrorKind};
use creamery_device::{BlockDevice, Completion, DeviceId, MemoryDevice, Request};

/// Bytes from here on mark what is written: all of a part has the same.
pub(super) const MARKED: u8 = 0xe0;

pub(super) struct Answering {
    below: Arc<MemoryDevice>,
    kept: Mutex<VecDeque<(Request, Completion)>>,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    Written,
    Failed,
    /// A part of it is written, and the device says so.
    Short,
    /// Nobody hears of it again.
    Dropped,
}

impl Answering {
    pub(super) fn new(below: Arc<MemoryDevice>) -> Self {
        Self { below, kept: Mutex::default() }
    }

    /// What it has.
    pub(super) fn copy(&self) -> Arc<MemoryDevice> {
        Arc::new(MemoryDevice::copy_of(&*self.below).expect("a copy"))
    }

    /// Requests that are not answered.
    pub(super) fn kept(&self) -> usize {
        self.kept.lock().len()
    }

    /// Answers one of them, on this thread.
    pub(super) fn answer(&self, which: usize, how: How) {
        let (request, done) = self.kept.lock().remove(which).expect("it was asked");
        match how {
            How::Written => self.below.submit(request, done),
            How::Failed => done(Err(Error::new(ErrorKind::Io, "the device fails"))),
            How::Short => {
                let Request::Write { offset, data } = request else { panic!("only writes are marked") };
                let first = data.iter().next().expect("some data");
                self.below.write_at(offset, &first[..first.len() / 2]).expect("memory takes it");
                drop(data);
                done(Err(Error::new(ErrorKind::Io, "the device took half of it")));
            }
            How::Dropped => drop((request, done)),
        }
    }
}

impl BlockDevice for Answering {
    fn submit(&self, request: Request, done: Completion) {
        let is_marked = match &request {
            Request::Write { data, .. } => data
                .iter()
                .next()
                .is_some_and(|part| part[0] >= MARKED && part.iter().all(|byte| *byte == part[0])),
            _ => false,
        };
        if is_marked {
            self.kept.lock().push_back((request, done));
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
