//! Writes of many ranges at once: map, requests for each device, submit, one completion.
//!
//! ```text
//! WriteBatch --plan--> requests, each device's in order --submit, all of them--> answers, in any order
//!                                                                                 the last one: done(WriteReport)
//! ```
//! The submitter waits for nothing. The completion may run on any thread, and on the submitter's own before `submit_write`
//! returns if devices answer at once. All answers share a [`BatchFlight`]: each answer drops its reference, and the drop of the last one
//! is the completion. A device that loses a request drops the reference, too, so nobody waits for ever.
//!
//! # Invariants
//! - BATCH-3: every request of a batch answers once: with the device's answer, or, if it was dropped, as failed.
//!   Shown by `requests_that_are_dropped_unanswered_have_failed`, `a_device_that_panics_leaves_no_request_without_an_answer`.
//! - BATCH-4: the completion runs exactly once: when the last request has answered, or at once if nothing was submitted.
//!   Shown by `the_completion_runs_once_when_the_last_of_the_requests_has_answered_out_of_order_and_elsewhere`,
//!   `a_batch_that_is_refused_is_told_of_at_once_and_writes_nothing`.

use std::sync::Arc;

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedCondvar, RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Logical, Result, Wait};
use creamery_device::{Parts, Reply, Request, SharedBytes};

use crate::ask::ByDevice;
use crate::counters::AtomicCounters;
use crate::durable::Written;
use crate::plan::{BlockKind, CopyPart, Plan, place};
use crate::report::WriteReport;
use crate::volume::Volume;

/// Called exactly once with the outcome of a batch, on any thread, or with the reason why nothing was submitted. It must be short, must
/// not wait, and must not need a lock that the submitter holds.
pub type WriteDone = Box<dyn FnOnce(Result<WriteReport>) + Send>;

/// Ranges to write together, no two of them overlapping, with their new content.
///
/// ```
/// use creamery_base::Logical;
/// use creamery_device::{AlignedBuffer, Parts};
/// use creamery_volume::WriteBatch;
/// let mut batch = WriteBatch::default();
/// let halves = [AlignedBuffer::zeroed(4096), AlignedBuffer::zeroed(4096)];
/// batch.add_data(Logical::new(1 << 30), Parts::from_iter(halves));
/// assert_eq!(batch.len(), 1);
/// ```
#[derive(Default, Debug)]
pub struct WriteBatch {
    ranges: Vec<(Logical, Contents)>,
}

#[derive(Debug)]
enum Contents {
    TreeBlock(SharedBytes),
    Data(Parts),
}

impl WriteBatch {
    /// Adds a tree block. It is checked before anything is written.
    pub fn add_tree_block(&mut self, at: Logical, bytes: SharedBytes) {
        self.ranges.push((at, Contents::TreeBlock(bytes)));
    }

    /// Adds data, whole sectors.
    pub fn add_data(&mut self, at: Logical, data: Parts) {
        self.ranges.push((at, Contents::Data(data)));
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

/// A batch under way. Each open answer holds a reference; the drop is the completion (BATCH-4).
struct BatchFlight {
    volume: u64,
    counters: Arc<AtomicCounters>,
    failed: RankedMutex<Vec<(usize, Error)>, { rank::LEAF }>,
    /// Taken at the drop, by one thread. The lock only lets threads share the other fields.
    ending: RankedMutex<Option<(Plan, WriteDone)>, { rank::LEAF }>,
}

impl Drop for BatchFlight {
    fn drop(&mut self) {
        let failed = std::mem::take(&mut *self.failed.lock());
        self.counters.write_failures.add(failed.len() as u64);
        let (plan, done) = self.ending.lock().take().expect("BATCH-4: it ends once");
        done(Ok(WriteReport::new(self.volume, plan, failed)));
    }
}

/// The open answer of a request.
struct Answer {
    flight: Arc<BatchFlight>,
    run: usize,
    owed: bool,
}

impl Answer {
    fn give(mut self, outcome: Result<Reply>) {
        self.owed = false;
        if let Err(error) = outcome {
            self.flight.failed.lock().push((self.run, error));
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.owed {
            let error = Error::new(ErrorKind::Io, "a write was dropped unanswered");
            self.flight.failed.lock().push((self.run, error)); // BATCH-3
        }
    }
}

/// The place where a waiting thread finds the outcome of a batch.
#[derive(Default)]
struct Slot {
    outcome: RankedMutex<Option<Result<WriteReport>>, { rank::LEAF }>,
    filled: RankedCondvar,
}

impl Slot {
    fn fill(&self, outcome: Result<WriteReport>) {
        let before = self.outcome.lock().replace(outcome);
        assert!(before.is_none(), "BATCH-4: a batch ends once");
        self.filled.notify_all();
    }

    fn wait(&self) -> Result<WriteReport> {
        let outcome = self.outcome.lock();
        let mut outcome = self.filled.pass_while(Reason::Device, outcome, |outcome| outcome.is_none());
        outcome.take().expect("waited for")
    }
}

impl Volume {
    /// Writes a batch to all copies. `done` gets the outcome of each. A [`flush`](Self::flush) makes the batch durable; it needs
    /// the token that the report turns into. The completion gets an error, and nothing is written, if the volume is open
    /// for reading, a reader would not accept a tree block, or no chunk covers a range.
    ///
    /// Without `wait` this thread sends no request to a device itself, for a caller that has seen that the volume
    /// [takes requests at once](Self::takes_at_once).
    pub fn submit_write(&self, batch: WriteBatch, wait: Wait, done: WriteDone) {
        self.requests_of(batch, done).submit(wait);
    }

    /// Returns the requests of a batch, by device. Requests to a missing device are answered here.
    fn requests_of(&self, batch: WriteBatch, done: WriteDone) -> ByDevice<'_> {
        let plan = match self.plan_of(&batch) {
            Ok(plan) => plan,
            Err(error) => {
                done(Err(error));
                return ByDevice::default();
            }
        };
        let contents: Vec<Parts> = batch.ranges.into_iter().map(|(_, contents)| contents.into()).collect();
        let gathered = |run: &[CopyPart]| {
            let mut data = Parts::default();
            run.iter().for_each(|part| data.extend_from(&contents[part.target], part.bytes()));
            (place(run).at, data)
        };
        let requests: Vec<_> = plan.runs().map(gathered).collect();
        drop(contents); // the owner may use them again once the requests are over
        let flight = Arc::new(BatchFlight {
            volume: self.number(),
            counters: Arc::clone(&self.counters),
            failed: RankedMutex::new(Vec::new()),
            ending: RankedMutex::new(Some((plan, done))),
        });
        // Before the first one is submitted: if a device panics, the other answers are still given.
        let answers: Vec<Answer> =
            (0..requests.len()).map(|run| Answer { flight: Arc::clone(&flight), run, owed: true }).collect();
        drop(flight);
        let mut by_device = ByDevice::default();
        for ((at, data), answer) in requests.into_iter().zip(answers) {
            self.count_write(data.len() as u64);
            match self.member(at.dev) {
                Ok(member) => {
                    let request = Request::Write { offset: at.offset, data };
                    by_device.add(member, request, Box::new(move |outcome| answer.give(outcome)));
                }
                Err(error) => {
                    drop(data);
                    answer.give(Err(error));
                }
            }
        }
        by_device
    }

    /// Writes a batch to all copies and waits for them.
    ///
    /// # Errors
    /// Those of [`submit_write`](Self::submit_write); a range has reached none of its copies.
    pub fn write(&self, batch: WriteBatch) -> Result<Written> {
        let slot = Arc::new(Slot::default());
        let filled = Arc::clone(&slot);
        self.requests_of(batch, Box::new(move |outcome| filled.fill(outcome))).carry_out();
        slot.wait()?.into_written()
    }

    fn plan_of(&self, batch: &WriteBatch) -> Result<Plan> {
        self.check_writable()?;
        let mut plan = Plan::with_capacity(batch.len());
        for (at, contents) in &batch.ranges {
            match contents {
                Contents::TreeBlock(bytes) => {
                    self.verify_before_write(*at, bytes)?; // VOL-6
                    self.plan_write(&mut plan, *at, bytes.len() as u64, BlockKind::TreeBlock)?;
                }
                Contents::Data(data) => {
                    self.plan_write(&mut plan, *at, data.len() as u64, BlockKind::Data)?
                }
            }
        }
        let blocks = plan.targets.iter().filter(|target| target.what == BlockKind::TreeBlock).count();
        let plan = plan.cut()?;
        self.begin_writing()?;
        self.counters.tree_block_writes.add(blocks as u64);
        Ok(plan)
    }
}

impl From<Contents> for Parts {
    fn from(contents: Contents) -> Self {
        match contents {
            Contents::TreeBlock(bytes) => bytes.into(),
            Contents::Data(data) => data,
        }
    }
}
