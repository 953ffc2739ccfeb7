//! Reads of data for callers that do not wait.
//!
//! ```text
//! ReadBatch --a search each--> requests of the first ways, all of them --answers--> judged; what is bad in the next way, and so on
//!                                                                          the last range that is done: done(ReadReport)
//! ```
//! The bytes are in buffers that come with the batch and return with the report, so nobody else sees them before they are checked. The
//! thread that gives the last answer of a step goes on with the next one, and waits for nothing. Such a read repairs nothing: the report
//! says where a copy was bad, and a read that waits repairs it.
//!
//! Open answers of a device keep no volume alive, and so no device: any device may keep its requests for ever. If the volume is gone,
//! the report says so.
//!
//! # Invariants
//! - READ-BATCH-1: each range has one report, with its buffer, whatever devices do: a request that is dropped without an answer has failed,
//!   and so has one that is answered with too few bytes or too many. Shown by `a_batch_is_answered_once_whatever_the_devices_do`.
//! - READ-BATCH-2: the completion runs once, when all ranges are done.
//!   Shown by `a_batch_is_answered_once_whatever_the_devices_do`.
//! - READ-BATCH-3: a batch under way keeps no device. Shown by `a_volume_that_is_dropped_lets_go_of_devices_that_read`.

use std::ops::Range;
use std::sync::{Arc, Weak};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Error, ErrorKind, Logical, Result, Wait};
use creamery_device::{AlignedBuffer, Reply, Request};

use super::Verdict;
use super::attempt::Attempt;
use super::search::{Search, Step};
use crate::ask::ByDevice;
use crate::counters::AtomicCounters;
use crate::index::index;
use crate::volume::Volume;

/// Checks one sector of a range, by its index in it. Called from any thread.
pub type SharedVerifier = Arc<dyn Fn(usize, &[u8]) -> Verdict + Send + Sync>;

/// Called exactly once with the outcome of a batch, on any thread. It must be short, must not wait, and must not need a lock that the
/// submitter holds.
pub type ReadDone = Box<dyn FnOnce(Vec<ReadReport>) + Send>;

/// Ranges of data to read together.
///
/// ```
/// use creamery_base::Logical;
/// use creamery_device::AlignedBuffer;
/// use creamery_volume::{ReadBatch, Verdict};
/// let mut batch = ReadBatch::default();
/// batch.add(Logical::new(1 << 30), AlignedBuffer::zeroed(8192), |_, _| Verdict::Unknown);
/// assert_eq!(batch.len(), 1);
/// ```
#[derive(Default)]
pub struct ReadBatch {
    ranges: Vec<Wanted>,
}

struct Wanted {
    at: Logical,
    buffer: AlignedBuffer,
    verify: SharedVerifier,
}

impl ReadBatch {
    /// Adds a range, whole sectors, that fills `buffer`. `verify` gets each sector with its index in the range.
    pub fn add(
        &mut self,
        at: Logical,
        buffer: AlignedBuffer,
        verify: impl Fn(usize, &[u8]) -> Verdict + Send + Sync + 'static,
    ) {
        self.ranges.push(Wanted { at, buffer, verify: Arc::new(verify) });
    }

    /// Returns the number of ranges.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are no ranges.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// The outcome of one range.
///
/// ```
/// # fn example(report: creamery_volume::ReadReport) -> creamery_base::Result<()> {
/// if report.is_good() {
///     println!("{} bytes at {}", report.buffer.len(), report.at);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct ReadReport {
    /// Where it begins.
    pub at: Logical,
    /// Its bytes; those of bad sectors are unspecified.
    pub buffer: AlignedBuffer,
    /// Sectors that are good in no way.
    pub bad: Vec<Range<usize>>,
    /// The number of sectors that are good, but were bad in a way that was tried before.
    pub mended: u64,
    /// The reason if not all was read: no chunk covers the range, or the volume is gone.
    pub error: Option<Error>,
}

impl ReadReport {
    /// Whether all of it was read and is good.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.bad.is_empty() && self.error.is_none()
    }
}

/// The shared state of a batch. Its drop is the completion.
struct Batch {
    reports: RankedMutex<Vec<(usize, ReadReport)>, { rank::LEAF }>,
    done: RankedMutex<Option<ReadDone>, { rank::LEAF }>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        let mut reports = std::mem::take(&mut *self.reports.lock());
        reports.sort_by_key(|(number, _)| *number);
        let done = self.done.lock().take().expect("READ-BATCH-2: it ends once");
        done(reports.into_iter().map(|(_, report)| report).collect());
    }
}

/// A range under way.
struct ReadFlight {
    /// Gone with its last user, whatever is under way (READ-BATCH-3).
    volume: Weak<Volume>,
    /// Whether a thread that comes here may send requests to a device itself.
    wait: Wait,
    counters: Arc<AtomicCounters>,
    batch: Arc<Batch>,
    number: usize,
    at: Logical,
    buffer: AlignedBuffer,
    /// The length of the buffer while a device has it.
    lent: Option<usize>,
    verify: SharedVerifier,
    search: Search,
    mended: u64,
    error: Option<Error>,
}

/// A step of a range with open answers.
struct Round {
    /// Taken by the thread with the last answer.
    flight: RankedMutex<Option<(ReadFlight, Step, Attempt)>, { rank::LEAF }>,
    answers: RankedMutex<Answers, { rank::LEAF }>,
}

struct Answers {
    read: Vec<Option<Result<AlignedBuffer>>>,
    /// The number of open answers, plus one for the submitter.
    owed: usize,
}

/// The open answer of a request.
struct Owed {
    round: Arc<Round>,
    number: usize,
    /// Bytes requested.
    len: usize,
    given: bool,
}

impl Owed {
    fn give(mut self, reply: Result<Reply>) {
        self.given = true;
        let read = reply.and_then(|reply| match reply {
            Reply::Read(buffer) if buffer.len() == self.len => Ok(buffer),
            Reply::Read(buffer) => {
                let text = format!("a read of {} bytes was answered with {}", self.len, buffer.len());
                Err(Error::new(ErrorKind::Io, text))
            }
            Reply::Done => Err(Error::new(ErrorKind::Io, "a read was answered without its bytes")),
        });
        if let Some(flight) = self.round.answer(Some((self.number, read))) {
            flight.go_on();
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if !self.given {
            let error = Error::new(ErrorKind::Io, "a read was dropped unanswered"); // READ-BATCH-1
            if let Some(flight) = self.round.answer(Some((self.number, Err(error)))) {
                flight.go_on();
            }
        }
    }
}

impl Round {
    /// Notes an answer, or that all requests are submitted. The last call returns the flight, which includes all answers.
    fn answer(&self, answer: Option<(usize, Result<AlignedBuffer>)>) -> Option<ReadFlight> {
        let mut answers = self.answers.lock();
        if let Some((number, read)) = answer {
            answers.read[number] = Some(read);
        }
        answers.owed -= 1;
        if answers.owed > 0 {
            return None;
        }
        let read = std::mem::take(&mut answers.read);
        drop(answers);
        let (mut flight, step, attempt) = self.flight.lock().take().expect("one comes last");
        let read = read.into_iter().map(|read| read.expect("all have answered")).collect();
        flight.took(step, &attempt, read);
        Some(flight)
    }
}

impl ReadFlight {
    /// Returns the volume, or notes that it is gone.
    fn volume(&mut self) -> Option<Arc<Volume>> {
        let volume = self.volume.upgrade();
        if volume.is_none() {
            let gone = || Error::new(ErrorKind::Stale, "the volume is gone");
            self.error.get_or_insert_with(gone);
        }
        volume
    }

    /// Begins steps until one waits for a device, or none is left.
    fn go_on(mut self) {
        let Some(volume) = self.volume() else { return self.end() };
        while let Some(step) = self.search.next() {
            let (at, bytes) = self.search.target(&step);
            let attempt = Attempt::of(step.way(), at, bytes.len() as u64);
            let whole = self.buffer.len();
            let requests = attempt.and_then(|attempt| {
                // The whole range is in one place: the device fills the range's own buffer.
                let lends = bytes.len() == whole && attempt.single().is_some();
                self.lent = lends.then_some(whole);
                let own = lends.then(|| std::mem::take(&mut self.buffer));
                requests(&volume, &attempt, own).map(|requests| (requests, attempt))
            });
            let (devices, attempt) = match requests {
                Ok(both) => both,
                Err(error) => {
                    self.take_back(Vec::new());
                    self.judge(&volume, step, &Err(error));
                    continue;
                }
            };
            let wait = self.wait;
            let answers = Answers { read: devices.iter().map(|_| None).collect(), owed: devices.len() + 1 };
            let round = Arc::new(Round {
                flight: RankedMutex::new(Some((self, step, attempt))),
                answers: RankedMutex::new(answers),
            });
            let mut by_device = ByDevice::default();
            for (number, (dev, request)) in devices.into_iter().enumerate() {
                let len = bytes_of(&request);
                let owed = Owed { round: Arc::clone(&round), number, len, given: false };
                let member = volume.member(dev).expect("it was there a moment ago, and members stay");
                by_device.add(member, request, Box::new(move |reply| owed.give(reply)));
            }
            by_device.submit(wait);
            // If devices have answered already, this thread goes on in its loop: no recursion.
            match round.answer(None) {
                Some(flight) => self = flight,
                None => return,
            }
        }
        self.end();
    }

    fn took(&mut self, step: Step, attempt: &Attempt, read: Vec<Result<AlignedBuffer>>) {
        let read = read.into_iter().collect::<Result<Vec<_>>>();
        let outcome = match self.lent {
            Some(_) => read.map(|read| self.take_back(read)).inspect_err(|_| self.take_back(Vec::new())),
            None => read.map(|read| {
                if let Some(volume) = self.volume() {
                    let (_, bytes) = self.search.target(&step);
                    attempt.finish(&volume, &read, &mut self.buffer[bytes]);
                }
            }),
        };
        if let Some(volume) = self.volume() {
            self.judge(&volume, step, &outcome);
        }
    }

    /// Takes the range's own buffer back, if it was lent: with the bytes that the device has `read`, or with zeros if that failed and the
    /// device kept the buffer. A device gets the buffer only while no byte in it was good before.
    fn take_back(&mut self, mut read: Vec<AlignedBuffer>) {
        if let Some(len) = self.lent.take() {
            self.buffer = read.pop().unwrap_or_else(|| AlignedBuffer::zeroed(len));
        }
    }

    fn judge(&mut self, volume: &Volume, step: Step, outcome: &Result<()>) {
        let mended = match self.search.took(volume, step, outcome, &self.buffer, &*self.verify) {
            Ok(mended) => mended,
            // The chunk was removed meanwhile.
            Err(error) => {
                self.error.get_or_insert(error);
                return;
            }
        };
        let others = mended.iter().filter(|mended| !mended.bad.is_empty());
        self.mended += others.map(|mended| mended.sectors.len() as u64).sum::<u64>();
    }

    fn end(self) {
        let Self { counters, batch, number, at, buffer, search, mended, error, .. } = self;
        let bad = search.into_bad();
        counters.mirror_fallbacks.add(mended);
        counters.unreadable.add(bad.iter().map(|run| run.len() as u64).sum());
        batch.reports.lock().push((number, ReadReport { at, buffer, bad, mended, error }));
    }
}

/// Returns how many bytes a read asks for.
fn bytes_of(request: &Request) -> usize {
    match request {
        Request::Read { buffer, .. } => buffer.len(),
        _ => unreachable!("a batch of reads has reads"),
    }
}

/// Returns the requests to devices. The first one fills `own`, if there is one.
fn requests(
    volume: &Volume,
    attempt: &Attempt,
    mut own: Option<AlignedBuffer>,
) -> Result<Vec<(DevId, Request)>> {
    let request = |piece: crate::DeviceRange| {
        volume.member(piece.at.dev)?;
        let buffer = own.take().unwrap_or_else(|| AlignedBuffer::zeroed(index(piece.len)));
        Ok((piece.at.dev, Request::Read { offset: piece.at.offset, buffer }))
    };
    attempt.places().map(request).collect()
}

impl Volume {
    /// Reads a batch of data; `done` gets a report of each range, in their order. All first requests are submitted before this returns, and
    /// it waits for none. Without `wait` this thread sends no request to a device itself, for a caller that has seen that the volume
    /// [takes requests at once](Self::takes_at_once).
    ///
    /// # Panics
    /// If a range is not whole sectors.
    pub fn submit_read(self: &Arc<Self>, batch: ReadBatch, wait: Wait, done: ReadDone) {
        let sector = u64::from(self.sector_size());
        let shared =
            Arc::new(Batch { reports: RankedMutex::new(Vec::new()), done: RankedMutex::new(Some(done)) });
        for (number, Wanted { at, buffer, verify }) in batch.ranges.into_iter().enumerate() {
            assert!((buffer.len() as u64).is_multiple_of(sector), "data is read in whole sectors");
            self.counters.data_reads.add(1);
            self.counters.data_read_bytes.add(buffer.len() as u64);
            let search = match at.is_aligned(sector) {
                true => Search::new(self, at, buffer.len()),
                false => {
                    Err(Error::new(ErrorKind::Corrupt, format!("logical {at}: the address is not aligned")))
                }
            };
            let (volume, batch) = (Arc::downgrade(self), Arc::clone(&shared));
            let (counters, mended, error) = (Arc::clone(&self.counters), 0, None);
            match search {
                Ok(search) => {
                    ReadFlight {
                        volume,
                        wait,
                        counters,
                        batch,
                        number,
                        at,
                        buffer,
                        lent: None,
                        verify,
                        search,
                        mended,
                        error,
                    }
                    .go_on();
                }
                Err(error) => {
                    let report = ReadReport { at, buffer, bad: Vec::new(), mended, error: Some(error) };
                    batch.reports.lock().push((number, report));
                }
            }
        }
    }
}
