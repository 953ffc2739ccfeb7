//! What of a block group lies on a device: batches of what is in use, in the order in which it lies there.

use std::ops::Range;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Logical, Physical, Result};
use creamery_tree::{ReadAhead, Tree};
use creamery_txn::DurableTrees;
use creamery_volume::{Chunk, Holds};

use super::extents::{Extent, ExtentWalk, Used};
use super::sums::{SumWalk, index};

/// Bytes of a device that one request reads: eight units of 64 KiB.
pub(super) const BATCH: u64 = 8 * (64 << 10);
/// What is not in use is read along up to this length, rather than that there are two requests.
const GAP: u64 = 64 << 10;

/// What a run of sectors is in use for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// A tree block that begins at `block`; some of it, where it goes on elsewhere on the device.
    Tree { block: Logical, generation: Generation, level: u8 },
    /// Data, with its checksums in [`Batch::sums`], if it has any.
    Data(Option<Range<usize>>),
}

/// Sectors that follow one another and are of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) at: Logical,
    /// Where in what is read.
    pub(super) bytes: Range<usize>,
    pub(super) content: Content,
}

/// Bytes of the device to be read by one request.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) at: Physical,
    pub(super) len: u64,
    pub(super) used: InUse,
    /// Which copy it is of what it holds.
    pub(super) copy: usize,
}

/// What is in use of something that is read.
#[derive(Default, Debug)]
pub(super) struct InUse {
    pub(super) runs: Vec<Run>,
    pub(super) sums: Vec<u8>,
    /// Extents that begin there: of data, and tree blocks.
    pub(super) extents: (u64, u64),
}

/// A row of which the device has parity, and what is in use of its data.
#[derive(Debug)]
pub(super) struct ParityRow {
    pub(super) row: u64,
    pub(super) at: Physical,
    pub(super) used: InUse,
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Task {
    Read(Batch),
    Parity(ParityRow),
}

/// Goes over the part of a chunk that lies in one of its stripes.
pub(super) struct GroupWalk<'t> {
    chunk: Arc<Chunk>,
    stripe: usize,
    extents: ExtentWalk<'t>,
    sums: Option<SumWalk<'t>>,
    /// What lies before is done.
    next: Logical,
    /// Which copy the stripe is of what it holds.
    copy: usize,
    /// Where the device ends, whatever the chunk claims.
    device_end: u64,
}

impl<'t> GroupWalk<'t> {
    /// `csum_tree` is none where data has no checksums that can be read.
    /// Errors: device errors; damage.
    pub(super) fn new(
        durable: &DurableTrees<'_>,
        (extent_tree, csum_tree): (&'t Tree, Option<&'t Tree>),
        (chunk, stripe, device_end): (&Arc<Chunk>, usize, u64),
        from: Logical,
        ahead: ReadAhead,
    ) -> Result<Self> {
        let range = (chunk.start, chunk.end());
        let sums = csum_tree.map(|tree| SumWalk::new(durable, tree, chunk.start, ahead)).transpose()?;
        Ok(Self {
            chunk: Arc::clone(chunk),
            stripe,
            extents: ExtentWalk::new(durable, extent_tree, range, ahead)?,
            sums,
            next: from.max(chunk.start),
            copy: chunk.copy_of_stripe(stripe),
            device_end,
        })
    }

    /// What lies before this address is done, or was taken.
    pub(super) const fn reached(&self) -> Logical {
        self.next
    }

    /// What to do next; none behind the end.
    /// Errors: device errors; damage.
    pub(super) fn next(&mut self) -> Result<Option<Task>> {
        let mut batch: Option<Batch> = None;
        while let Some(extent) = self.extents.ending_behind(self.next)? {
            let from = self.next.max(extent.start);
            let Some(span) = self.chunk.span_from(self.stripe, from) else { break };
            let start = match span.holds {
                Holds::Data(at) => at,
                Holds::Parity(row) => self.chunk.row_range(row).expect("the chunk has that row").0,
            };
            if extent.end <= start {
                self.next = start; // that one lies in other stripes
                continue;
            }
            let first = start.max(from);
            let within = if matches!(span.holds, Holds::Data(_)) { between(start, first) } else { 0 };
            if span.at.offset + within >= self.device_end {
                return batch.map(|batch| Some(Task::Read(batch))).ok_or_else(|| self.cut_short(from));
            }
            if let Holds::Parity(row) = span.holds {
                return if batch.is_some() {
                    Ok(batch.map(Task::Read))
                } else {
                    self.parity(row, span.at).map(Some)
                };
            }
            let (place, end) = (span.at.offset + within, start + span.len);
            let batch = match &mut batch {
                Some(batch) if !batch.takes(place) => break,
                Some(batch) => batch,
                none => none.insert(Batch::at(Physical { offset: place, ..span.at }, self.copy)),
            };
            let begin = place - batch.at.offset;
            let window = Window { from: first, to: end.min(first + (BATCH - begin)), whole: end, gap: GAP };
            let (done, used) = self.take(window, index(begin), &mut batch.used)?;
            if done == first {
                break; // a tree block, which the next batch has whole
            }
            batch.len = batch.len.max(begin + between(first, used));
            self.next = done;
        }
        Ok(batch.map(Task::Read))
    }

    fn cut_short(&self, at: Logical) -> Error {
        let what = format!(
            "logical {at} and what follows lie behind the end of the device, {} bytes",
            self.device_end
        );
        Error::new(ErrorKind::Corrupt, what)
    }

    fn parity(&mut self, row: u64, at: Physical) -> Result<Task> {
        let (from, to) = self.chunk.row_range(row).expect("the chunk has that row");
        let mut used = InUse::default();
        self.take(Window { from, to, whole: to, gap: between(from, to) }, 0, &mut used)?;
        self.next = to;
        Ok(Task::Parity(ParityRow { row, at, used }))
    }

    /// Takes what is in use of a window; it is read to `place` on. Gives where what was looked at ends, and where what was taken does.
    fn take(&mut self, window: Window, place: usize, used: &mut InUse) -> Result<(Logical, Logical)> {
        let Window { from, to, whole, gap } = window;
        let mut end = from;
        while let Some(extent) = self.extents.ending_behind(end)?.filter(|extent| extent.start < to) {
            if extent.start > end + gap {
                return Ok((extent.start, end));
            }
            let (first, last) = (extent.start.max(end), extent.end.min(to));
            let is_tree = matches!(extent.used, Used::Tree { .. });
            if is_tree && extent.end > to && extent.end <= whole {
                return Ok((first, end));
            }
            if extent.start >= from {
                let (data, trees) = &mut used.extents;
                *if is_tree { trees } else { data } += 1;
            }
            self.push(extent, (first, last), place + index(between(from, first)), used)?;
            end = last;
            if last == to {
                break;
            }
        }
        Ok((to, end))
    }

    fn push(
        &mut self,
        extent: Extent,
        (first, last): (Logical, Logical),
        place: usize,
        used: &mut InUse,
    ) -> Result<()> {
        let InUse { runs, sums: taken, .. } = used;
        let bytes = |at: Logical, len: u64| {
            let begin = place + index(between(first, at));
            begin..begin + index(len)
        };
        match (extent.used, &mut self.sums) {
            (Used::Tree { generation, level }, _) => {
                let content = Content::Tree { block: extent.start, generation, level };
                runs.push(Run { at: first, bytes: bytes(first, between(first, last)), content });
            }
            (Used::Data, None) => {
                runs.push(Run {
                    at: first,
                    bytes: bytes(first, between(first, last)),
                    content: Content::Data(None),
                });
            }
            (Used::Data, Some(sums)) => {
                let sector = sums.sector();
                sums.read((first, last), taken, |at, sectors, place| {
                    let content = Content::Data(place);
                    runs.push(Run { at, bytes: bytes(at, sectors * sector), content });
                })?;
            }
        }
        Ok(())
    }
}

/// Bytes from one address to a later one.
fn between(from: Logical, to: Logical) -> u64 {
    to.get() - from.get()
}

/// Addresses that are looked at.
#[derive(Clone, Copy)]
struct Window {
    from: Logical,
    to: Logical,
    /// Up to here they lie on the device without a break.
    whole: Logical,
    /// Behind more that is not in use it ends.
    gap: u64,
}

impl Batch {
    fn at(at: Physical, copy: usize) -> Self {
        Self { at, len: 0, used: InUse::default(), copy }
    }

    /// Whether what lies at `place` is read by the same request.
    const fn takes(&self, place: u64) -> bool {
        place - (self.at.offset + self.len) <= GAP && place - self.at.offset < BATCH
    }
}
