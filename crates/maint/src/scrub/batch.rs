//! Reading and judging one batch, and settling what is bad of it.

use std::ops::Range;

use creamery_base::{Logical, Physical, is_same};
use creamery_device::AlignedBuffer;

use super::Counts;
use super::counts::Class;
use super::finding::{Finding, Outcome, Sink, What};
use super::group::Batch;
use super::judge::Bad;
use super::mend::{Mending, Settled};
use super::sums::index;
use super::used::{Content, InUse, Run};

/// How often copies are compared while they are overwritten.
const LOOKS: usize = 16;

impl Mending<'_> {
    /// Reads and judges a batch, and mends what is bad.
    pub(super) fn batch(
        &self,
        batch: &Batch,
        buffer: &mut AlignedBuffer,
        counts: &mut Counts,
        sink: &dyn Sink,
    ) {
        count_extents(&batch.used, counts);
        let len = index(batch.len);
        if buffer.len() < len {
            *buffer = AlignedBuffer::zeroed(len);
        }
        let read = &mut buffer[..len];
        let is_read = self.judge.volume.read_physical(batch.at, read).is_ok();
        let bad = match is_read {
            true => self.judge.judge(&batch.used, read, counts),
            // What is bad of it, the rest need not be.
            false => self.read_by_block(&batch.used, batch.at, read, counts),
        };
        for bad in &bad {
            self.settle(&batch.used, bad, batch.at, counts, sink);
        }
        self.compare(batch, (&buffer[..len], &bad), counts, sink);
    }

    /// Mends something bad of what lies at `at`, counts it, and reports it.
    pub(super) fn settle(
        &self,
        used: &InUse,
        bad: &Bad,
        at: Physical,
        counts: &mut Counts,
        sink: &dyn Sink,
    ) -> Settled {
        let at = within(at, &bad.bytes);
        let settled = self.mend(used, bad, at);
        let (why, outcome) = (settled.rewritten.why(&bad.why), settled.rewritten.outcome);
        // A tree block counts once, as Linux counts.
        count(outcome, 1, counts);
        let what = match used.runs[bad.run].content {
            Content::Tree { .. } => What::Tree,
            Content::Data(_) => What::Data,
        };
        sink.found(&Finding { what, at, logical: Some(bad.at), why, outcome });
        settled
    }

    /// Reads what is in use at `at`, tree block by tree block and sector by sector. Gives what is bad.
    pub(super) fn read_by_block(
        &self,
        used: &InUse,
        at: Physical,
        read: &mut [u8],
        counts: &mut Counts,
    ) -> Vec<Bad> {
        let judge = &self.judge;
        let mut all_bad = Vec::new();
        for (number, run) in used.runs.iter().enumerate() {
            let step = match run.content {
                Content::Tree { .. } => run.bytes.len(),
                Content::Data(_) => judge.sector,
            };
            for begin in run.bytes.clone().step_by(step) {
                let bytes = begin..begin + step;
                let outcome = judge.volume.read_physical(within(at, &bytes), &mut read[bytes.clone()]);
                let Err(error) = outcome else {
                    judge.judge_part(used, (number, run), bytes.clone(), &read[bytes], counts, &mut all_bad);
                    continue;
                };
                let class = Class::Unread;
                counts.count(class);
                let logical = run.at + (begin - run.bytes.start) as u64;
                all_bad.push(Bad { run: number, bytes, at: logical, class, why: error.to_string() });
            }
        }
        all_bad
    }

    /// Compares data without checksums with its other copies, where this is the first one. What is bad of it could not be read.
    fn compare(&self, batch: &Batch, (read, bad): (&[u8], &[Bad]), counts: &mut Counts, sink: &dyn Sink) {
        if batch.copy > 0 {
            return;
        }
        let sector = self.judge.sector as u64;
        for (number, run) in batch.used.runs.iter().enumerate() {
            if run.content != Content::Data(None) {
                continue;
            }
            let unread: Vec<Logical> = bad.iter().filter(|bad| bad.run == number).map(|bad| bad.at).collect();
            let mut differing = self.differing(run, &read[run.bytes.clone()], &unread);
            if !differing.is_empty() {
                differing = self.differ_at_one_moment(run, within(batch.at, &run.bytes));
            }
            if differing.is_empty() {
                continue;
            }
            let written = self.written(run.at, run.at + run.bytes.len() as u64);
            let is_written =
                |at: &Logical| written.iter().any(|range| range.start < *at + sector && *at < range.end);
            for logical in differing.into_iter().filter(is_written) {
                counts.differing += 1;
                counts.unverified_errors += 1;
                let from = run.bytes.start + index(logical.get() - run.at.get());
                sink.found(&Finding {
                    what: What::Differing,
                    at: within(batch.at, &(from..from + self.judge.sector)),
                    logical: Some(logical),
                    why: "another copy differs, and there is no checksum".to_owned(),
                    outcome: Outcome::Undecided,
                });
            }
        }
    }

    /// As [`differing`](Self::differing), of copies that are not overwritten meanwhile. Of copies that always are, nothing is known.
    fn differ_at_one_moment(&self, run: &Run, at: Physical) -> Vec<Logical> {
        let mut own = AlignedBuffer::zeroed(run.bytes.len());
        for _ in 0..LOOKS {
            let before = self.engine.writes_in_place(run.at);
            if before.is_some() {
                let unread = self.read_sectors(at, run.at, &mut own);
                let differing = self.differing(run, &own, &unread);
                if differing.is_empty() || self.engine.writes_in_place(run.at) == before {
                    return differing;
                }
            }
            std::thread::yield_now();
        }
        Vec::new()
    }

    /// Sectors of a run, which `own` has but for those that are `unread`, of which another copy differs: once for each such copy.
    fn differing(&self, run: &Run, own: &[u8], unread: &[Logical]) -> Vec<Logical> {
        let judge = &self.judge;
        let mut differing = Vec::new();
        let Ok(copies) = judge.volume.map(run.at, own.len() as u64) else { return differing };
        for mirror in copies.mirrors().iter().skip(1) {
            let mut other = AlignedBuffer::zeroed(own.len());
            // The scrub of its device tells of what cannot be read.
            let (mut begin, mut gone) = (0, unread.to_vec());
            for piece in mirror {
                let bytes = begin..begin + index(piece.len);
                begin = bytes.end;
                let at = run.at + bytes.start as u64;
                gone.extend(self.read_sectors(piece.at, at, &mut other[bytes]));
            }
            let sectors = own.chunks(judge.sector).zip(other.chunks(judge.sector)).enumerate();
            let differ = sectors.filter(|(_, (own, other))| !is_same(own, other));
            let places = differ.map(|(number, _)| run.at + (number * judge.sector) as u64);
            differing.extend(places.filter(|at| !gone.contains(at)));
        }
        differing
    }

    /// Reads what begins at `logical` and lies at `at`, sector by sector where it cannot be read whole. Gives the sectors that cannot be read.
    fn read_sectors(&self, at: Physical, logical: Logical, out: &mut [u8]) -> Vec<Logical> {
        let judge = &self.judge;
        if judge.volume.read_physical(at, out).is_ok() {
            return Vec::new();
        }
        let mut unread = Vec::new();
        for (number, sector) in out.chunks_mut(judge.sector).enumerate() {
            let from = (number * judge.sector) as u64;
            if judge.volume.read_physical(Physical { offset: at.offset + from, ..at }, sector).is_err() {
                unread.push(logical + from);
            }
        }
        unread
    }
}

/// Counts the extents that begin in what is read.
pub(super) fn count_extents(used: &InUse, counts: &mut Counts) {
    let (data, trees) = used.extents;
    counts.data_extents_scrubbed += data;
    counts.tree_extents_scrubbed += trees;
}

/// Counts errors by what became of them.
pub(super) fn count(outcome: Outcome, errors: u64, counts: &mut Counts) {
    match outcome {
        Outcome::Mended => counts.corrected_errors += errors,
        Outcome::Mendable | Outcome::Undecided => counts.unverified_errors += errors,
        Outcome::Unwritten | Outcome::Lost => counts.uncorrectable_errors += errors,
    }
}

/// Where bytes of what was read at `at` lie.
fn within(at: Physical, bytes: &Range<usize>) -> Physical {
    Physical { offset: at.offset + bytes.start as u64, ..at }
}
