//! What is delayed of a file, for one search: dirty pages and the run in flight, as one list of ranges that is asked in order.

use creamery_base::lock::{RankedGuard, rank};

use super::counters::SeekCounters;
use super::cursor::{Batch, Range, Remembered, SeekCursor};
use crate::delalloc::State;
use crate::inode::Inode;

/// The delayed ranges of a file whose extents are held.
pub(super) struct DelayedRanges<'a> {
    inode: &'a Inode,
    memory: Memory<'a>,
    /// What was found last: nothing that ends behind the place that was asked for then lies before it.
    last: Option<Option<Range>>,
    pub(super) cost: SeekCounters,
}

/// Where the dirty ranges are remembered.
enum Memory<'a> {
    /// In the open file.
    Handle(RankedGuard<'a, Remembered, { rank::SEEK_CURSOR }>),
    /// For this search alone.
    Own(Batch),
}

impl<'a> DelayedRanges<'a> {
    /// Those of `inode`, with the memory of an open file, if it has one.
    pub(super) fn new(inode: &'a Inode, cursor: Option<&'a SeekCursor>) -> Self {
        let mut cost = SeekCounters { calls: 1, ..SeekCounters::default() };
        if !inode.delalloc().any() {
            return Self { inode, memory: Memory::Own(Batch::default()), last: Some(None), cost };
        }
        let lent = cursor.map(SeekCursor::try_use);
        cost.cursor_contended += u64::from(matches!(lent, Some(None)));
        let memory = lent.flatten().map_or_else(|| Memory::Own(Batch::default()), Memory::Handle);
        Self { inode, memory, last: None, cost }
    }

    /// The first range that ends behind `at`, for who wants to know of `[at, end)`; what follows may touch it. Places are
    /// asked for in order.
    pub(super) fn first(&mut self, at: u64, end: u64) -> Option<Range> {
        match self.last {
            Some(None) => return None,
            Some(Some(range)) if range.1 > at => return Some(range),
            _ => {}
        }
        let Self { inode, memory, cost, .. } = self;
        let found = inode.delalloc().look(|state| of_state(state?, memory, (at, end), cost));
        self.last = Some(found);
        found
    }
}

impl Drop for DelayedRanges<'_> {
    fn drop(&mut self) {
        self.inode.shared().seeks.add(&self.cost);
    }
}

fn of_state(
    state: &State,
    memory: &mut Memory<'_>,
    (at, end): Range,
    cost: &mut SeekCounters,
) -> Option<Range> {
    let dirty = match memory {
        Memory::Handle(remembered) => remembered.dirty.first(state.pages(), at, cost),
        Memory::Own(batch) => {
            // What only this search remembers is no cursor's.
            let mut own = SeekCounters::default();
            let dirty = batch.first(state.pages(), at, &mut own);
            cost.map_descents += own.map_descents;
            cost.pieces += own.pieces;
            dirty
        }
    };
    if dirty.is_some_and(|dirty| dirty.0 <= at && dirty.1 >= end) {
        return dirty;
    }
    cost.in_flight_lookups += 1;
    let flying = Some(state.in_flight_range()).filter(|flying| flying.1 > at);
    match (dirty, flying) {
        (Some(dirty), Some(flying)) => {
            let (first, second) = if dirty.0 <= flying.0 { (dirty, flying) } else { (flying, dirty) };
            Some(if second.0 <= first.1 { (first.0, first.1.max(second.1)) } else { first })
        }
        (one, other) => one.or(other),
    }
}
