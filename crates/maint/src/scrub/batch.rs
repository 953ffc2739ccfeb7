//! Reads and judges one batch, and settles its bad parts.

use std::ops::Range;

use creamery_base::{Logical, Physical, is_same};
use creamery_device::AlignedBuffer;

use super::Counts;
use super::counts::Class;
use super::finding::{Finding, FindingKind, Outcome, Sink};
use super::group::Batch;
use super::judge::Bad;
use super::mend::{Mending, Settled};
use super::sums::index;
use super::used::{Content, InUse, UsedRun};

/// The largest number of comparisons of copies that are being overwritten.
const LOOKS: usize = 16;

impl Mending<'_> {
    /// Reads and judges a batch, and repairs bad parts.
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
            // A read error concerns only a part, so the rest is read by itself.
            false => self.read_by_block(&batch.used, batch.at, read, counts),
        };
        for bad in &bad {
            self.settle(&batch.used, bad, batch.at, counts, sink);
        }
        self.compare(batch, (&buffer[..len], &bad), counts, sink);
    }

    /// Repairs, counts and reports a bad part of the bytes at `at`.
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
        // A tree block counts once, as in Linux.
        count(outcome, 1, counts);
        let what = match used.runs[bad.run].content {
            Content::Tree { .. } => FindingKind::Tree,
            Content::Data(_) => FindingKind::Data,
        };
        sink.found(&Finding { what, at, logical: Some(bad.at), why, outcome });
        settled
    }

    /// Reads the used parts at `at`, tree block by tree block and sector by sector. Returns the bad ones.
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

    /// Compares data without checksums with its other copies, if this is the first copy. `bad` has the parts that could not be read.
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
                    what: FindingKind::Differing,
                    at: within(batch.at, &(from..from + self.judge.sector)),
                    logical: Some(logical),
                    why: "another copy differs, and there is no checksum".to_owned(),
                    outcome: Outcome::Undecided,
                });
            }
        }
    }

    /// The result of [`differing`](Self::differing) for copies that are not overwritten meanwhile; for copies that always are, it is empty.
    fn differ_at_one_moment(&self, run: &UsedRun, at: Physical) -> Vec<Logical> {
        let mut own = AlignedBuffer::zeroed(run.bytes.len());
        for _ in 0..LOOKS {
            let before = self.engine.data().writes_in_place(run.at);
            if before.is_some() {
                let unread = self.read_sectors(at, run.at, &mut own);
                let differing = self.differing(run, &own, &unread);
                if differing.is_empty() || self.engine.data().writes_in_place(run.at) == before {
                    return differing;
                }
            }
            std::thread::yield_now();
        }
        Vec::new()
    }

    /// The sectors of a run that differ from another copy, once for each such copy. `own` has the run's bytes except for the `unread`
    /// sectors.
    fn differing(&self, run: &UsedRun, own: &[u8], unread: &[Logical]) -> Vec<Logical> {
        let judge = &self.judge;
        let mut differing = Vec::new();
        let Ok(copies) = judge.volume.map(run.at, own.len() as u64) else { return differing };
        for mirror in copies.mirrors().iter().skip(1) {
            let mut other = AlignedBuffer::zeroed(own.len());
            // The scrub of its own device reports an unreadable copy.
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

    /// Reads the bytes of `logical` at `at`, sector by sector if they cannot be read at once. Returns the sectors that cannot be read.
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

/// Counts the extents that begin in the bytes read.
pub(super) fn count_extents(used: &InUse, counts: &mut Counts) {
    let (data, trees) = used.extents;
    counts.data_extents_scrubbed += data;
    counts.tree_extents_scrubbed += trees;
}

/// Counts errors by their outcome.
pub(super) fn count(outcome: Outcome, errors: u64, counts: &mut Counts) {
    match outcome {
        Outcome::Mended => counts.corrected_errors += errors,
        Outcome::Mendable | Outcome::Undecided => counts.unverified_errors += errors,
        Outcome::Unwritten | Outcome::Lost => counts.uncorrectable_errors += errors,
    }
}

/// The device offset of a range of the bytes read at `at`.
fn within(at: Physical, bytes: &Range<usize>) -> Physical {
    Physical { offset: at.offset + bytes.start as u64, ..at }
}
