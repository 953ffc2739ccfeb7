//! The rows of a chunk with parity, and the used parts of their data.

use std::ops::Range;
use std::sync::Arc;

use creamery_base::{Logical, Result};
use creamery_txn::DurableTrees;
use creamery_volume::Chunk;

use super::group::BATCH;
use super::searches::Trees;
use super::used::{InUse, Position, UsedWalk, Window, between};

/// Maximum bytes of all devices in one batch of rows, except for a single row that is longer.
const ALL_DEVICES: u64 = 16 << 20;

/// The data of a row on one device, some of which is in use.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) row: u64,
    pub(super) column: usize,
    /// The used parts, relative to the beginning of the element.
    pub(super) used: InUse,
}

/// Consecutive rows, each with some space in use.
#[derive(Debug)]
pub(super) struct RowBatch {
    pub(super) rows: Range<u64>,
    pub(super) elements: Vec<Element>,
}

/// Goes over the rows of a chunk.
pub(super) struct RowWalk<'t> {
    chunk: Arc<Chunk>,
    used: UsedWalk<'t>,
    /// Everything before this row is done.
    next: u64,
    /// Maximum rows of one batch.
    most: u64,
}

impl<'t> RowWalk<'t> {
    /// Begins at a position. Errors: device errors; damage.
    pub(super) fn new(
        durable: &DurableTrees<'_>,
        trees: Trees<'t>,
        chunk: &Arc<Chunk>,
        position: &Position,
    ) -> Result<Self> {
        let next = between(chunk.start, position.next) / chunk.full_stripe_bytes();
        let begin = chunk.start + next * chunk.full_stripe_bytes();
        let used = UsedWalk::new(durable, trees, chunk, &Position { next: begin, ..*position })?;
        let by_all = ALL_DEVICES / (chunk.stripe_len * chunk.stripes.len() as u64);
        let most = (BATCH / chunk.stripe_len).min(by_all).max(1);
        Ok(Self { chunk: Arc::clone(chunk), used, next, most })
    }

    /// The position behind the rows handed out so far.
    pub(super) fn position(&self) -> Position {
        let next = self.chunk.row_range(self.next).map_or(self.chunk.end(), |(from, _)| from);
        self.used.position(next)
    }

    /// The next rows; `None` behind the last.
    /// Errors: device errors; damage.
    pub(super) fn next(&mut self) -> Result<Option<RowBatch>> {
        let mut batch: Option<RowBatch> = None;
        while let Some((mut from, end)) = self.chunk.row_range(self.next) {
            let Some(extent) = self.used.ending_behind(from)? else { break };
            if extent.start >= end {
                if batch.is_some() {
                    break;
                }
                self.next = between(self.chunk.start, extent.start) / self.chunk.full_stripe_bytes();
                continue;
            }
            let row = self.next;
            let batch = batch.get_or_insert_with(|| RowBatch { rows: row..row, elements: Vec::new() });
            for column in 0.. {
                if from >= end {
                    break;
                }
                let to = end.min(Logical::new(from.get().saturating_add(self.chunk.stripe_len)));
                let mut used = InUse::default();
                self.used.take(Window { from, to, whole: to, gap: between(from, to) }, 0, &mut used)?;
                if !used.runs.is_empty() {
                    batch.elements.push(Element { row, column, used });
                }
                from = to;
            }
            self.next += 1;
            batch.rows.end = self.next;
            if batch.rows.end - batch.rows.start >= self.most {
                break;
            }
        }
        Ok(batch)
    }
}
