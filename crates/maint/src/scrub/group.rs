//! What of a block group lies on a device: batches of what is in use, in the order in which it lies there.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Logical, Physical, Result};
use creamery_txn::DurableTrees;
use creamery_volume::{Chunk, Holds};

use super::searches::Trees;
use super::sums::index;
use super::used::{InUse, Position, UsedWalk, Window, between};

/// A unit: one in which nothing is in use is not read.
const UNIT: u64 = 64 << 10;
/// Bytes of a device that one request reads: eight units.
pub(super) const BATCH: u64 = 8 * UNIT;
/// What is not in use is read along up to this length, rather than that there are two requests: less than a unit.
const GAP: u64 = UNIT - 1;

/// Bytes of the device to be read by one request.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) at: Physical,
    pub(super) len: u64,
    pub(super) used: InUse,
    /// Which copy it is of what it holds.
    pub(super) copy: usize,
}

/// Goes over the part of a chunk without parity that lies in one of its stripes.
pub(super) struct GroupWalk<'t> {
    chunk: Arc<Chunk>,
    stripe: usize,
    used: UsedWalk<'t>,
    /// What lies before is done.
    next: Logical,
    /// Which copy the stripe is of what it holds.
    copy: usize,
    /// Where the device ends, whatever the chunk claims.
    device_end: u64,
}

impl<'t> GroupWalk<'t> {
    /// Errors: device errors; damage.
    pub(super) fn new(
        durable: &DurableTrees<'_>,
        trees: Trees<'t>,
        (chunk, stripe, device_end): (&Arc<Chunk>, usize, u64),
        position: &Position,
    ) -> Result<Self> {
        Ok(Self {
            chunk: Arc::clone(chunk),
            stripe,
            used: UsedWalk::new(durable, trees, chunk, position)?,
            next: position.next,
            copy: chunk.copy_of_stripe(stripe),
            device_end,
        })
    }

    /// What was handed out so far.
    pub(super) fn position(&self) -> Position {
        self.used.position(self.next)
    }

    /// What to read next; none behind the end.
    /// Errors: device errors; damage.
    pub(super) fn next(&mut self) -> Result<Option<Batch>> {
        let mut batch: Option<Batch> = None;
        while let Some(extent) = self.used.ending_behind(self.next)? {
            let from = self.next.max(extent.start);
            let Some(span) = self.chunk.span_from(self.stripe, from) else { break };
            let Holds::Data(start) = span.holds else { break };
            if extent.end <= start {
                self.next = start; // that one lies in other stripes
                continue;
            }
            let first = start.max(from);
            let (place, end) = (span.at.offset + between(start, first), start + span.len);
            if place >= self.device_end {
                return batch.map(Some).ok_or_else(|| self.cut_short(from));
            }
            let batch = match &mut batch {
                Some(batch) if !batch.takes(place) => break,
                Some(batch) => batch,
                none => none.insert(Batch::at(Physical { offset: place, ..span.at }, self.copy)),
            };
            let begin = place - batch.at.offset;
            let most = Logical::new(first.get().saturating_add(BATCH - begin));
            let window = Window { from: first, to: end.min(most), whole: end, gap: GAP };
            let (done, used) = self.used.take(window, index(begin), &mut batch.used)?;
            if done == first {
                break; // a tree block, which the next batch has whole
            }
            batch.len = batch.len.max(begin + between(first, used));
            self.next = done;
        }
        Ok(batch)
    }

    fn cut_short(&self, at: Logical) -> Error {
        let what = format!(
            "logical {at} and what follows lie behind the end of the device, {} bytes",
            self.device_end
        );
        Error::new(ErrorKind::Corrupt, what)
    }
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
