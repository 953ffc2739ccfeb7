//! The used parts of a range of addresses, and the checksums of its data.

use std::ops::Range;
use std::sync::Arc;

use creamery_base::{Generation, Logical, Result};
use creamery_txn::DurableTrees;
use creamery_volume::Chunk;

use super::extents::{Extent, ExtentWalk, Used};
use super::searches::Trees;
use super::sums::{SumWalk, index};

/// The use of a run of sectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// A tree block that begins at `block`; a part of it, if it goes on elsewhere on the device.
    Tree { block: Logical, generation: Generation, level: u8 },
    /// Data, with the place of its checksums in [`InUse::sums`], if it has any.
    Data(Option<Range<usize>>),
}

/// Consecutive sectors of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UsedRun {
    pub(super) at: Logical,
    /// Their range in the bytes that are read.
    pub(super) bytes: Range<usize>,
    pub(super) content: Content,
}

/// The used parts of bytes that are read.
#[derive(Default, Debug)]
pub(super) struct InUse {
    pub(super) runs: Vec<UsedRun>,
    pub(super) sums: Vec<u8>,
    /// The number of extents that begin there: of data, and tree blocks.
    pub(super) extents: (u64, u64),
}

/// The progress of a walk over a group: everything before `next` is done, and the extent at `next`, or the next one, begins at `extent` or
/// behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    pub(super) next: Logical,
    pub(super) extent: Logical,
    /// The commit for which this holds.
    pub(super) commit: Generation,
}

impl Position {
    /// The longest extent that Linux makes, bytes.
    const EXTENT_MAX: u64 = 128 << 20;

    /// The beginning of a group, or a later address in it.
    pub(super) fn at(chunk: &Chunk, next: Logical) -> Self {
        Self { next: next.max(chunk.start), extent: chunk.start, commit: Generation::new(0) }
    }

    /// The address from which on extents are read, by this commit.
    fn first_extent(&self, chunk: &Chunk, commit: Generation) -> Logical {
        match self.commit == commit {
            true => self.extent,
            // An extent that was made since then may begin earlier.
            false => Logical::new(self.next.get().saturating_sub(Self::EXTENT_MAX)).max(chunk.start),
        }
    }
}

/// Goes over the used parts of a group, forward only.
pub(super) struct UsedWalk<'t> {
    extents: ExtentWalk<'t>,
    sums: Option<SumWalk<'t>>,
    commit: Generation,
}

/// A range of addresses to read.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) from: Logical,
    pub(super) to: Logical,
    /// Up to this address the range is contiguous on the device.
    pub(super) whole: Logical,
    /// The window ends at a longer unused gap.
    pub(super) gap: u64,
}

impl<'t> UsedWalk<'t> {
    /// Begins at a position. Errors: device errors; damage.
    pub(super) fn new(
        durable: &DurableTrees<'_>,
        trees: Trees<'t>,
        chunk: &Arc<Chunk>,
        position: &Position,
    ) -> Result<Self> {
        let commit = durable.generation();
        let range = (position.first_extent(chunk, commit), chunk.end());
        let sums = SumWalk::new(durable, &trees, position.next)?;
        let extents = ExtentWalk::new(durable, &trees, range)?;
        Ok(Self { extents, sums, commit })
    }

    /// The position of a walk that goes on behind `next`.
    pub(super) fn position(&self, next: Logical) -> Position {
        Position { next, extent: self.extents.reached().min(next), commit: self.commit }
    }

    /// The first extent that ends behind `at`, which must never decrease; `None` behind the last.
    /// Errors: device errors; damage.
    pub(super) fn ending_behind(&mut self, at: Logical) -> Result<Option<Extent>> {
        self.extents.ending_behind(at)
    }

    /// Takes the used parts of a window, which is read to `place` on. Returns the end of the visited range, and the end of the used parts
    /// taken.
    /// Errors: device errors; damage.
    pub(super) fn take(
        &mut self,
        window: Window,
        place: usize,
        used: &mut InUse,
    ) -> Result<(Logical, Logical)> {
        let Window { from, to, whole, gap } = window;
        let mut end = from;
        while let Some(extent) = self.ending_behind(end)?.filter(|extent| extent.start < to) {
            if extent.start.get().saturating_sub(end.get()) > gap {
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
        let whole = bytes(first, between(first, last));
        match (extent.used, &mut self.sums) {
            (Used::Tree { generation, level }, _) => {
                let content = Content::Tree { block: extent.start, generation, level };
                runs.push(UsedRun { at: first, bytes: whole, content });
            }
            (Used::Data, None) => {
                runs.push(UsedRun { at: first, bytes: whole, content: Content::Data(None) })
            }
            (Used::Data, Some(sums)) => {
                let sector = sums.sector();
                sums.read((first, last), taken, |at, sectors, place| {
                    let content = Content::Data(place);
                    runs.push(UsedRun { at, bytes: bytes(at, sectors * sector), content });
                })?;
            }
        }
        Ok(())
    }
}

/// Bytes from one address to a later one.
pub(super) fn between(from: Logical, to: Logical) -> u64 {
    to.get() - from.get()
}
