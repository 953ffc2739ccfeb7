//! Reads of data for callers that do not wait.
//!
//! ```text
//! ReadBatch --a search each--> requests of the first ways, all of them --answers--> judged; what is bad in the next way, and so on
//!                                                                          the last range that is done: done(ReadReport)
//! ```
//! The bytes lie in buffers that come along and go back with the report, so nobody else sees them before they are judged. Whoever gives the last
//! answer of a step goes on with the next one, and waits for nothing. Nothing is repaired on the way: the report says where a copy was bad, and a read
//! that waits repairs it.
//!
//! What a device has yet to answer keeps no volume alive, and so no device: each of them may keep its requests for ever. Of a volume that is gone
//! the report says that.
//!
//! # Invariants
//! - READ-BATCH-1: each range has one report, with its buffer, whatever devices do: a request that is dropped without an answer has failed, and
//!   so has one that is answered with too few bytes or too many.
//! - READ-BATCH-2: the completion runs once, when all ranges are done.
//!   Both shown by `a_batch_is_answered_once_whatever_the_devices_do`.
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

/// Judges one sector of a range, by its index in it; it may be asked from any thread.
pub type SharedVerifier = Arc<dyn Fn(usize, &[u8]) -> Verdict + Send + Sync>;

/// Called exactly once with what became of a batch, on any thread. It must be short, must not wait, and must not need a lock that the submitter
/// holds.
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

    /// How many ranges there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// What became of a range.
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
    /// Sectors that are good, and were not in a way that was tried before.
    pub mended: u64,
    /// Why not all was read: the range lies nowhere, or the volume is gone.
    pub error: Option<Error>,
}

impl ReadReport {
    /// Whether all of it is there.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.bad.is_empty() && self.error.is_none()
    }
}

/// What the ranges of a batch share. Its end is the completion.
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
struct Flight {
    /// Gone with its last user, whatever is under way (READ-BATCH-3).
    volume: Weak<Volume>,
    /// Whether a thread that comes here may ask a device by itself.
    wait: Wait,
    counters: Arc<AtomicCounters>,
    batch: Arc<Batch>,
    number: usize,
    at: Logical,
    buffer: AlignedBuffer,
    /// A device has the buffer, which is so long.
    lent: Option<usize>,
    verify: SharedVerifier,
    search: Search,
    mended: u64,
    error: Option<Error>,
}

/// A step of a range, of which devices have yet to answer.
struct Round {
    /// Taken by whoever answers last.
    flight: RankedMutex<Option<(Flight, Step, Attempt)>, { rank::LEAF }>,
    answers: RankedMutex<Answers, { rank::LEAF }>,
}

struct Answers {
    read: Vec<Option<Result<AlignedBuffer>>>,
    /// Those that are owed, and one of whoever submits.
    owed: usize,
}

/// An answer that a request owes.
struct Owed {
    round: Arc<Round>,
    number: usize,
    /// Bytes that were asked for.
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
    /// Notes an answer, or that all requests are submitted. Whoever comes last gets the flight, which has taken them.
    fn answer(&self, answer: Option<(usize, Result<AlignedBuffer>)>) -> Option<Flight> {
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

impl Flight {
    /// The volume. Notes where it is gone.
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
                // All of the range in one place: the device fills the range's own buffer.
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
            // Where devices have answered already, this thread goes on: no step stands on the one before.
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

    /// Has the range's own buffer again, if it was lent: as a device has `read` it, or with zeros where that failed, and keeps the buffer. A device
    /// fills all of a range only where nothing of that was good before.
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

/// How many bytes a read asks for.
fn bytes_of(request: &Request) -> usize {
    match request {
        Request::Read { buffer, .. } => buffer.len(),
        _ => unreachable!("a batch of reads has reads"),
    }
}

/// What devices are asked for. The first one fills `own`, if that is there.
fn requests(
    volume: &Volume,
    attempt: &Attempt,
    mut own: Option<AlignedBuffer>,
) -> Result<Vec<(DevId, Request)>> {
    let request = |piece: crate::Piece| {
        volume.member(piece.at.dev)?;
        let buffer = own.take().unwrap_or_else(|| AlignedBuffer::zeroed(index(piece.len)));
        Ok((piece.at.dev, Request::Read { offset: piece.at.offset, buffer }))
    };
    attempt.places().map(request).collect()
}

impl Volume {
    /// Reads a batch of data; `done` gets a report of each range, in their order. All first requests are submitted before this returns, and
    /// it waits for none. Without `wait` this thread asks no device by itself, for a caller that has seen that the volume
    /// [takes requests at once](Self::takes_at_once).
    ///
    /// # Panics
    /// A range is not whole sectors.
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
                    Flight {
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
