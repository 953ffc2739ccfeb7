//! The outcome of a write, copy by copy.

use creamery_base::{Error, ErrorKind, Result};

use crate::durable::{CopyFailure, Written};
use crate::plan::{BlockKind, CopyPart, Plan, place};

/// The outcome of each copy of each range of a write.
///
/// ```
/// fn was_lost(report: &creamery_volume::WriteReport, range: usize) -> bool {
///     (0..report.copies(range)).all(|copy| report.outcome(range, copy).is_err())
/// }
/// ```
#[must_use = "a range may have reached no copy"]
#[derive(Debug)]
pub struct WriteReport {
    volume: u64,
    plan: Plan,
    /// By request, in order.
    failed: Vec<(usize, Error)>,
}

impl WriteReport {
    /// Creates a report. `failed` lists requests by their number in the plan, each once, with their errors.
    pub(crate) fn new(volume: u64, plan: Plan, mut failed: Vec<(usize, Error)>) -> Self {
        failed.sort_unstable_by_key(|&(run, _)| run);
        assert!(failed.is_sorted_by(|a, b| a.0 < b.0), "BATCH-3: a request answers once");
        Self { volume, plan, failed }
    }

    /// Returns the number of ranges.
    #[must_use]
    pub const fn ranges(&self) -> usize {
        self.plan.targets.len()
    }

    /// Returns the number of copies of a range. They are numbered in the order in which readers try them.
    ///
    /// # Panics
    /// If there is no such range.
    #[must_use]
    pub fn copies(&self, range: usize) -> usize {
        self.plan.targets[range].copies
    }

    /// Whether a copy of a range was written whole.
    ///
    /// # Errors
    /// The error of the first failed request that had a part of it.
    ///
    /// # Panics
    /// If there is no such copy.
    pub fn outcome(&self, range: usize, copy: usize) -> Result<(), &Error> {
        assert!(copy < self.copies(range), "a range has so many copies");
        self.failure(range, copy).map_or(Ok(()), |at| Err(&self.failed[at].1))
    }

    /// Returns the first failed request with a part of the copy.
    fn failure(&self, range: usize, copy: usize) -> Option<usize> {
        let is_its = |part: &CopyPart| (part.target, part.copy) == (range, copy);
        self.failed.iter().position(|&(run, _)| self.plan.run(run).iter().any(is_its))
    }

    /// Returns the token for this write, with the copies that were missed.
    ///
    /// # Errors
    /// A range has reached no copy.
    pub fn into_written(mut self) -> Result<Written> {
        if self.failed.is_empty() {
            return Ok(Written::new(self.volume, Vec::new()));
        }
        let is_lost = |&range: &usize| (0..self.copies(range)).all(|copy| self.outcome(range, copy).is_err());
        if let Some(range) = (0..self.ranges()).find(is_lost) {
            let why = self.failure(range, 0).expect("its first copy was missed, too");
            let (_, error) = self.failed.swap_remove(why);
            let target = &self.plan.targets[range];
            return Err(match target.what {
                BlockKind::Data => error.context(format!("writing data at logical {}", target.at)),
                // A full host is not a full filesystem: only the source of the error mentions it.
                BlockKind::TreeBlock => {
                    let lost = format!("the tree block at logical {} reached no device", target.at);
                    Error::with_source(ErrorKind::Io, lost, error)
                }
            });
        }
        let plan = &self.plan;
        let failure = |(run, error)| CopyFailure { piece: place(plan.run(run)), error };
        Ok(Written::new(self.volume, self.failed.into_iter().map(failure).collect()))
    }
}
