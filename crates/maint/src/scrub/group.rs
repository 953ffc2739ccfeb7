//! The part of a block group on one device: batches of space in use, in the order of device offsets.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Logical, Physical, Result};
use creamery_txn::DurableTrees;
use creamery_volume::{Chunk, SpanContent};

use super::searches::Trees;
use super::sums::index;
use super::used::{InUse, Position, UsedWalk, Window, between};

/// Bytes of a unit: a unit without space in use is not read.
const UNIT: u64 = 64 << 10;
/// Maximum bytes of a device that one request reads: eight units.
pub(super) const BATCH: u64 = 8 * UNIT;
/// Maximum length of unused space that is read along instead of splitting the request: less than a unit.
const GAP: u64 = UNIT - 1;

/// Bytes of the device to read by one request.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) at: Physical,
    pub(super) len: u64,
    pub(super) used: InUse,
    /// The number of the copy that it reads.
    pub(super) copy: usize,
}

/// Goes over the part of a chunk without parity in one of its stripes.
pub(super) struct GroupWalk<'t> {
    chunk: Arc<Chunk>,
    stripe: usize,
    used: UsedWalk<'t>,
    /// Everything before this address is done.
    next: Logical,
    /// The number of the copy in the stripe.
    copy: usize,
    /// The end of the device, regardless of the chunk's length.
    device_end: u64,
}

impl<'t> GroupWalk<'t> {
    /// Begins at a position. Errors: device errors; damage.
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

    /// The position behind the batches handed out so far.
    pub(super) fn position(&self) -> Position {
        self.used.position(self.next)
    }

    /// The next batch; `None` behind the end.
    /// Errors: device errors; damage.
    pub(super) fn next(&mut self) -> Result<Option<Batch>> {
        let mut batch: Option<Batch> = None;
        while let Some(extent) = self.used.ending_behind(self.next)? {
            let from = self.next.max(extent.start);
            let Some(span) = self.chunk.span_from(self.stripe, from) else { break };
            let SpanContent::Data(start) = span.holds else { break };
            if extent.end <= start {
                self.next = start; // that extent lies in other stripes
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
                break; // a tree block, which the next batch contains completely
            }
            batch.len = batch.len.max(begin + between(first, used));
            self.next = done;
        }
        Ok(batch)
    }

    fn cut_short(&self, at: Logical) -> Error {
        let what =
            format!("logical {at} and later lie beyond the end of the device, {} bytes", self.device_end);
        Error::new(ErrorKind::Corrupt, what)
    }
}

impl Batch {
    fn at(at: Physical, copy: usize) -> Self {
        Self { at, len: 0, used: InUse::default(), copy }
    }

    /// Whether one request can also read the bytes at `place`.
    const fn takes(&self, place: u64) -> bool {
        place - (self.at.offset + self.len) <= GAP && place - self.at.offset < BATCH
    }
}
