//! The simulated device: it keeps every promise of the sheet, records its requests, and fails on demand.
//!
//! # Log
//! While it records, it notes every write and every successful flush in order. [`SimDevice::take_log`] returns this log, and
//! [`PowerCut`](crate::PowerCut) makes from it the states that a power cut can leave.
//!
//! # Faults
//! A [`Fault`] names a kind of request and a number: that request fails, or that one and all later ones. A failed write has put a part of
//! its sectors in place (sheet 9). After a failed flush all flushes fail (sheet 11). Ranges can be made unreadable until they are written
//! (sheet 3).
//!
//! # Canaries
//! A harness that finds nothing proves little. [`Canary`] makes the device break one promise; a harness that does not notice is broken
//! itself.

use std::ops::Range;
use std::sync::Arc;

use creamery_base::gate::{self, Chance};
use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{BlockDevice, Completion, DeviceId, MemoryDevice, Reply, Request};
use parking_lot::Mutex;

use crate::image::{Image, PAGE, Page};

/// The offset of the first superblock copy, bytes.
pub(crate) const FIRST_SUPERBLOCK: u64 = 64 << 10;
/// The byte that reads of discarded ranges return.
const DISCARDED: u8 = 0xd5;
/// The page numbers of all superblock copies.
pub(crate) const SUPERBLOCK_PAGES: [u64; 3] =
    [FIRST_SUPERBLOCK / PAGE as u64, (64 << 20) / PAGE as u64, (256 << 30) / PAGE as u64];

/// A recorded event.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Write { first: u64, pages: Vec<Arc<Page>> },
    Flush,
}

impl Event {
    /// Whether it writes a superblock copy.
    pub(crate) fn is_superblock(&self) -> bool {
        matches!(self, Self::Write { first, .. } if SUPERBLOCK_PAGES.contains(first))
    }

    /// Whether it writes the first superblock copy, which decides what is committed.
    pub(crate) fn is_first_superblock(&self) -> bool {
        matches!(self, Self::Write { first, .. } if *first == SUPERBLOCK_PAGES[0])
    }
}

/// A kind of request, for counting and failing.
///
/// ```
/// assert_ne!(creamery_sim::Kind::Read, creamery_sim::Kind::Flush);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Every request.
    Any,
}

/// A failure to come.
///
/// ```
/// use creamery_sim::{Fault, Kind};
/// // The device disappears with its tenth request.
/// let gone = Fault { kind: Kind::Any, nth: 10, lasting: true };
/// # assert!(gone.lasting);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The kind of request that fails.
    pub kind: Kind,
    /// The index of the failing request among those of its kind from now on; 0 is the next one.
    pub nth: u64,
    /// Whether all later requests of that kind fail as well.
    pub lasting: bool,
}

/// A promise that the device breaks, to test whether a harness notices.
///
/// ```
/// assert_ne!(creamery_sim::Canary::NoFlushBeforeSuperblock, creamery_sim::Canary::NoFlushAfterSuperblock);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Canary {
    /// The flush before each first superblock copy does nothing.
    NoFlushBeforeSuperblock,
    /// The flush after each first superblock copy does nothing.
    NoFlushAfterSuperblock,
}

#[derive(Default)]
struct Counts {
    reads: u64,
    writes: u64,
    flushes: u64,
    all: u64,
}

struct DeviceState {
    image: Image,
    recording: bool,
    log: Vec<Event>,
    canary: Option<Canary>,
    fault: Option<Fault>,
    counts: Counts,
    struck: bool,
    flush_failed: bool,
    unreadable: Vec<Range<u64>>,
}

/// A device in memory that implements `docs/internals/media-assumptions.md`.
///
/// ```
/// use creamery_device::BlockDevice;
/// use creamery_sim::{Fault, Image, Kind, SimDevice};
/// let device = SimDevice::new(Image::new(1 << 20));
/// device.write_at(4096, &[7; 4096])?;
/// device.fail(Fault { kind: Kind::Read, nth: 0, lasting: false });
/// let mut bytes = [0; 4096];
/// assert!(device.read_at(4096, &mut bytes).is_err());
/// device.read_at(4096, &mut bytes)?;
/// assert_eq!(bytes, [7; 4096]);
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub struct SimDevice {
    /// Provides the identity, which only the device crate can make.
    identity: MemoryDevice,
    state: Mutex<DeviceState>, // innermost: nothing is called while it is held
}

impl SimDevice {
    /// A device with the content `image`.
    #[must_use]
    pub fn new(image: Image) -> Self {
        Self {
            identity: MemoryDevice::new(0),
            state: Mutex::new(DeviceState {
                image,
                recording: false,
                log: Vec::new(),
                canary: None,
                fault: None,
                counts: Counts::default(),
                struck: false,
                flush_failed: false,
                unreadable: Vec::new(),
            }),
        }
    }

    /// A device with the content `image` that records every write and flush from now on.
    #[must_use]
    pub fn recording(image: Image, canary: Option<Canary>) -> Self {
        let device = Self::new(image);
        {
            let mut state = device.state.lock();
            (state.recording, state.canary) = (true, canary);
        }
        device
    }

    /// The current content, flushed or not.
    #[must_use]
    pub fn image(&self) -> Image {
        self.state.lock().image.clone()
    }

    /// The number of writes and flushes recorded so far.
    #[must_use]
    pub fn log_len(&self) -> usize {
        self.state.lock().log.len()
    }

    /// The first write of a first superblock copy among the events from `start` on, and the number of such writes.
    pub(crate) fn superblock_since(&self, start: usize) -> (Option<usize>, usize) {
        let found = self.superblocks_since(start);
        (found.first().copied(), found.len())
    }

    /// The writes of first superblock copies among the events from `start` on.
    pub(crate) fn superblocks_since(&self, start: usize) -> Vec<usize> {
        let state = self.state.lock();
        (start..state.log.len()).filter(|&at| state.log[at].is_first_superblock()).collect()
    }

    pub(crate) fn take_log(&self) -> Vec<Event> {
        std::mem::take(&mut self.state.lock().log)
    }

    /// Arms a failure and starts counting requests anew.
    pub fn fail(&self, fault: Fault) {
        let mut state = self.state.lock();
        state.counts = Counts::default();
        state.fault = Some(fault);
        state.struck = false;
    }

    /// Whether a failure is armed.
    #[must_use]
    pub fn may_fail(&self) -> bool {
        self.state.lock().fault.is_some()
    }

    /// Whether the armed failure has happened.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state.lock().struck
    }

    /// The number of requests of this kind since the failure was armed, or since the start.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        let counts = &self.state.lock().counts;
        match kind {
            Kind::Read => counts.reads,
            Kind::Write => counts.writes,
            Kind::Flush => counts.flushes,
            Kind::Any => counts.all,
        }
    }

    /// Changes bytes without a request, as bit rot does.
    pub fn rot(&self, range: Range<u64>) {
        let mut state = self.state.lock();
        let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("a small range")];
        state.image.read(range.start, &mut bytes);
        bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
        state.image.write(range.start, &bytes);
    }

    /// Makes sectors unreadable until they are written.
    pub fn make_unreadable(&self, range: Range<u64>) {
        self.state.lock().unreadable.push(range);
    }
}

impl DeviceState {
    /// Counts a request; returns true if it has to fail.
    fn strikes(&mut self, kind: Kind) -> bool {
        let count = match kind {
            Kind::Read => &mut self.counts.reads,
            Kind::Write => &mut self.counts.writes,
            Kind::Flush | Kind::Any => &mut self.counts.flushes,
        };
        let (number, all) = (*count, self.counts.all);
        *count += 1;
        self.counts.all += 1;
        let Some(fault) = self.fault else { return false };
        let number = match fault.kind {
            Kind::Any => all,
            same if same == kind => number,
            _ => return false,
        };
        let strikes = number == fault.nth || fault.lasting && number > fault.nth;
        self.struck |= strikes;
        strikes
    }

    fn run(&mut self, request: Request) -> Result<Reply> {
        let failed = |request: &Request| Err(Error::new(ErrorKind::Io, request.to_string()));
        match request {
            Request::Read { offset, mut buffer } => {
                let end = self.check(offset, buffer.len() as u64)?;
                let bad = self.unreadable.iter().any(|range| range.start < end && offset < range.end);
                if self.strikes(Kind::Read) || bad {
                    return failed(&Request::Read { offset, buffer });
                }
                self.image.read(offset, &mut buffer);
                Ok(Reply::Read(buffer))
            }
            Request::Write { offset, data } => {
                let end = self.check(offset, data.len() as u64)?;
                // Regardless of its parts it is one request, and can tear anywhere.
                let bytes = data.contiguous();
                if self.strikes(Kind::Write) {
                    // A superblock copy arrives whole or not at all (sheet 6).
                    let part = if bytes.len() == PAGE { 0 } else { bytes.len() / 2 / 512 * 512 };
                    if part > 0 {
                        self.write(offset, &bytes[..part]);
                    }
                    drop(bytes);
                    return failed(&Request::Write { offset, data });
                }
                self.write(offset, &bytes);
                self.unreadable.retain(|range| !(offset <= range.start && range.end <= end));
                Ok(Reply::Done)
            }
            Request::Flush => {
                if self.strikes(Kind::Flush) || self.flush_failed {
                    self.flush_failed = true;
                    return failed(&request);
                }
                if self.recording {
                    self.note_flush();
                }
                Ok(Reply::Done)
            }
            Request::Discard { offset, len } => {
                self.check(offset, len)?;
                self.discard(offset, len);
                Ok(Reply::Done)
            }
        }
    }

    fn check(&self, offset: u64, len: u64) -> Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= self.image.len() => Ok(end),
            _ => Err(Error::new(ErrorKind::Io, format!("{len} bytes at {offset} lie beyond the end"))),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        if !self.recording {
            self.image.write(offset, data);
            return;
        }
        let whole = offset.is_multiple_of(PAGE as u64) && data.len().is_multiple_of(PAGE);
        let (first, pages) = if whole {
            (offset / PAGE as u64, Page::split(data))
        } else {
            // The write was cut off within a page: the new content of the whole page is recorded.
            let (first, end) = (offset / PAGE as u64, (offset + data.len() as u64).div_ceil(PAGE as u64));
            let mut bytes = vec![0; usize::try_from(end - first).expect("a write fits") * PAGE];
            self.image.read(first * PAGE as u64, &mut bytes);
            let at = usize::try_from(offset - first * PAGE as u64).expect("within a page");
            bytes[at..at + data.len()].copy_from_slice(data);
            (first, Page::split(&bytes))
        };
        for (number, page) in (first..).zip(&pages) {
            self.image.put(number, Arc::clone(page));
        }
        let event = Event::Write { first, pages };
        let before = self.canary == Some(Canary::NoFlushBeforeSuperblock);
        if before && event.is_first_superblock() && matches!(self.log.last(), Some(Event::Flush)) {
            self.log.pop();
        }
        self.log.push(event);
    }

    /// Discards a range. Later reads return arbitrary bytes, and after a power cut any part may be discarded, as with a write. The range
    /// consists of whole pages.
    fn discard(&mut self, offset: u64, len: u64) {
        assert!(offset.is_multiple_of(PAGE as u64) && len.is_multiple_of(PAGE as u64));
        let anything = Page::split(&[DISCARDED; PAGE]).remove(0);
        let (first, count) = (offset / PAGE as u64, len / PAGE as u64);
        (first..first + count).for_each(|number| self.image.put(number, Arc::clone(&anything)));
        if self.recording {
            let pages = vec![anything; usize::try_from(count).expect("an image fits in memory")];
            self.log.push(Event::Write { first, pages });
        }
    }

    fn note_flush(&mut self) {
        let after = self.canary == Some(Canary::NoFlushAfterSuperblock);
        if !(after && self.log.last().is_some_and(Event::is_first_superblock)) {
            self.log.push(Event::Flush);
        }
    }
}

impl BlockDevice for SimDevice {
    fn submit(&self, request: Request, done: Completion) {
        gate::may_turn(Chance::Request);
        let outcome = self.state.lock().run(request);
        done(outcome);
    }

    fn has_room(&self) -> bool {
        true
    }

    fn len(&self) -> u64 {
        self.state.lock().image.len()
    }

    fn id(&self) -> DeviceId {
        self.identity.id()
    }

    fn describe(&self) -> String {
        "simulated device".to_owned()
    }
}
