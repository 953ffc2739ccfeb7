//! The worker threads of a group: each takes the next batch, reads and judges it.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::Builder;
use std::time::Duration;

use creamery_base::Result;
use creamery_base::lock::{RankedMutex, rank};
use creamery_device::AlignedBuffer;
use creamery_txn::DurableTrees;
use creamery_volume::{Chunk, FullStripes};

use super::counts::Tally;
use super::finding::Sink;
use super::group::{Batch, GroupWalk};
use super::mend::Mending;
use super::rows::{RowBatch, RowWalk};
use super::together::Part;
use super::used::Position;

/// Batches in flight for each device. With two, a device that takes 5 ms for each request gets half the requests that it gets with four;
/// four cost nothing on a device that answers at once.
pub(super) const IN_FLIGHT: usize = 4;

/// The reason why a group's scrub stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Went {
    Through,
    Cancelled,
    /// A thread waits for space that the guard keeps, or the step has read its maximum.
    Pauses,
}

/// The result of the workers.
pub(super) struct WorkersResult {
    /// Bytes of each device that were requested.
    pub(super) asked: u64,
    /// The total processor time.
    pub(super) worked: Duration,
    /// The progress of the group.
    pub(super) position: Position,
    /// The reason for the end.
    pub(super) went: Result<Went>,
}

/// The walk over a group.
pub(super) enum Walk<'t> {
    OneDevice(GroupWalk<'t>),
    Rows(RowWalk<'t>),
}

enum Task {
    Batch(Batch),
    Rows(RowBatch),
}

impl Walk<'_> {
    fn next(&mut self) -> Result<Option<Task>> {
        Ok(match self {
            Self::OneDevice(walk) => walk.next()?.map(Task::Batch),
            Self::Rows(walk) => walk.next()?.map(Task::Rows),
        })
    }

    fn position(&self) -> Position {
        match self {
            Self::OneDevice(walk) => walk.position(),
            Self::Rows(walk) => walk.position(),
        }
    }
}

/// The state that the workers of a group share.
pub(super) struct Workers<'w, 't> {
    chunk: &'w Chunk,
    mending: &'w Mending<'w>,
    durable: &'w DurableTrees<'w>,
    sink: &'w dyn Sink,
    /// The initial tally of a task, for each of the parts.
    tallies: Vec<Tally>,
    walk: RankedMutex<Walk<'t>, { rank::SCRUB }>,
    progress: RankedMutex<Progress<'w>, { rank::LEAF }>,
}

/// The progress of a group's stripes. Places are relative to their beginning.
struct Progress<'w> {
    parts: &'w mut [Part],
    /// The beginnings of the batches in flight.
    in_flight: BTreeSet<u64>,
    /// The end of the last batch that was begun.
    begun: u64,
    /// The maximum bytes to request of each device, and those requested so far.
    most: u64,
    asked: u64,
    /// The total processor time.
    worked: Duration,
    /// Tallies of batches behind one that is in flight, by their beginning: only tallies before the reached place count.
    ahead: BTreeMap<u64, Vec<Tally>>,
    /// The reason for taking no further batch.
    end: Option<Result<Went>>,
}

impl<'w, 't> Workers<'w, 't> {
    /// Workers that read up to `bytes` of each device, and count in `parts`: one for each stripe, or one for the stripe that is read.
    pub(super) fn new(
        (chunk, mending, durable): (&'w Chunk, &'w Mending<'w>, &'w DurableTrees<'w>),
        walk: Walk<'t>,
        (parts, bytes): (&'w mut [Part], u64),
        sink: &'w dyn Sink,
    ) -> Self {
        let in_flight = BTreeSet::new();
        let tallies = parts.iter().map(|part| Tally { from: part.from, ..Tally::default() }).collect();
        let progress = RankedMutex::new(Progress {
            parts,
            in_flight,
            begun: 0,
            most: bytes,
            asked: 0,
            worked: Duration::ZERO,
            ahead: BTreeMap::new(),
            end: None,
        });
        Self { chunk, mending, durable, sink, tallies, walk: RankedMutex::new(walk), progress }
    }

    /// Works on `workers` threads until everything is done, or a reason to end comes.
    pub(super) fn run(self, workers: usize) -> WorkersResult {
        std::thread::scope(|threads| {
            for _ in 1..workers {
                // This thread does everything if no other one can be started.
                let _ = Builder::new().name("scrub".to_owned()).spawn_scoped(threads, || self.work());
            }
            self.work();
        });
        let Progress { asked, worked, end, ahead, .. } = self.progress.into_inner();
        assert!(ahead.is_empty(), "all that was counted counts when nothing is in flight");
        let position = self.walk.into_inner().position();
        WorkersResult { asked, worked, position, went: end.unwrap_or(Ok(Went::Through)) }
    }

    /// Takes tasks until there is none.
    fn work(&self) {
        let (mut buffer, mut stripes) = (AlignedBuffer::zeroed(0), FullStripes::default());
        let begun = processor_time();
        while let Some((task, start)) = self.take() {
            let mut tallies = self.tallies.clone();
            match &task {
                Task::Batch(batch) => {
                    self.mending.batch(batch, &mut buffer, &mut tallies[0].counts, self.sink)
                }
                Task::Rows(rows) => {
                    self.mending.rows(self.chunk, rows, &mut stripes, &mut tallies, self.sink)
                }
            }
            self.done(start, tallies);
        }
        let worked = processor_time().saturating_sub(begun);
        self.progress.lock().worked += worked;
    }

    /// The next task and its beginning; `None` if there is none, or a reason to end has come.
    fn take(&self) -> Option<(Task, u64)> {
        let mut walk = self.walk.lock();
        let is_in_the_way = self.durable.is_in_the_way();
        let mut progress = self.progress.lock();
        if progress.end.is_some() {
            return None;
        }
        if progress.asked >= progress.most || is_in_the_way {
            progress.end = Some(Ok(Went::Pauses));
            return None;
        }
        drop(progress);
        let next = walk.next();
        let mut progress = self.progress.lock();
        let task = match next {
            Ok(task) => task?,
            Err(error) => {
                progress.end = Some(Err(error));
                return None;
            }
        };
        let (start, end) = match &task {
            Task::Batch(batch) => {
                let start = batch.at.offset - progress.parts[0].offset;
                (start, start + batch.len)
            }
            Task::Rows(batch) => {
                let len = self.chunk.stripe_len;
                (batch.rows.start * len, batch.rows.end * len)
            }
        };
        progress.in_flight.insert(start);
        progress.begun = end;
        progress.asked = progress.asked.saturating_add(end - start);
        Some((task, start))
    }

    /// Counts the result of a task.
    fn done(&self, start: u64, tallies: Vec<Tally>) {
        let mut progress = self.progress.lock();
        progress.in_flight.remove(&start);
        progress.ahead.insert(start, tallies);
        let reached = progress.in_flight.first().copied().unwrap_or(progress.begun);
        let later = match progress.in_flight.is_empty() {
            true => BTreeMap::new(),
            false => progress.ahead.split_off(&reached),
        };
        let ended = std::mem::replace(&mut progress.ahead, later);
        for tallies in ended.into_values() {
            for (part, tally) in progress.parts.iter_mut().zip(tallies) {
                part.counts += tally.counts;
                part.mended += tally.mended;
            }
        }
        for part in progress.parts.iter_mut().filter(|part| part.offset + reached >= part.from) {
            part.counts.last_physical = part.offset + reached;
        }
        let now: Vec<_> = progress.parts.iter().filter_map(|part| Some((part.dev, part.all()?))).collect();
        drop(progress);
        if !now.iter().all(|(dev, counts)| self.sink.goes_on(*dev, counts)) {
            self.progress.lock().end.get_or_insert(Ok(Went::Cancelled));
        }
    }
}

/// The processor time of the calling thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}
