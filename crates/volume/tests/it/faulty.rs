//! A device that notes its requests, in order, and fails at chosen places.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{Hook, Hooked, MemoryDevice, Request};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Write { offset: u64, len: u64 },
    Flush,
    Discard { offset: u64, len: u64 },
}

pub(crate) type Faulty = Hooked<Faults>;

/// `device` with no faults yet.
pub(crate) fn on(device: &Arc<MemoryDevice>) -> Arc<Faulty> {
    Arc::new(Hooked::new(Arc::<MemoryDevice>::clone(device), Faults::default()))
}

#[derive(Default)]
pub(crate) struct Faults {
    events: Mutex<Vec<Event>>,
    bad_reads: Mutex<Vec<Range<u64>>>,
    bad_writes: Mutex<Vec<Range<u64>>>,
    bad_flushes: Mutex<bool>,
}

impl Faults {
    pub(crate) fn fail_reads(&self, range: Range<u64>) {
        self.bad_reads.lock().unwrap().push(range);
    }

    /// All reads succeed again.
    pub(crate) fn mend_reads(&self) {
        self.bad_reads.lock().unwrap().clear();
    }

    pub(crate) fn fail_writes(&self, range: Range<u64>) {
        self.bad_writes.lock().unwrap().push(range);
    }

    pub(crate) fn fail_flushes(&self) {
        *self.bad_flushes.lock().unwrap() = true;
    }

    /// Returns the events since the last call.
    pub(crate) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }
}

impl Hook for Faults {
    fn before(&self, request: &Request) -> Result<()> {
        let hits = |ranges: &Mutex<Vec<Range<u64>>>, offset: u64, len: u64| {
            ranges.lock().unwrap().iter().any(|range| offset < range.end && range.start < offset + len)
        };
        let note = |event| self.events.lock().unwrap().push(event);
        let fails = match request {
            Request::Read { offset, buffer } => hits(&self.bad_reads, *offset, buffer.len() as u64),
            Request::Write { offset, data } => {
                note(Event::Write { offset: *offset, len: data.len() as u64 });
                hits(&self.bad_writes, *offset, data.len() as u64)
            }
            Request::Flush => {
                note(Event::Flush);
                *self.bad_flushes.lock().unwrap()
            }
            Request::Discard { offset, len } => {
                note(Event::Discard { offset: *offset, len: *len });
                false
            }
        };
        if fails { Err(Error::new(ErrorKind::Io, request.to_string())) } else { Ok(()) }
    }
}
