//! The delayed data of a file, for one search: dirty pages and the run in flight, as one list of ranges that is asked in order.

use super::cursor::{DirtyBatch, Range};
use crate::counters::SeekCounters;
use crate::delalloc::{Delalloc, DelayedData};

/// The delayed ranges of a file whose extents are held.
pub(super) struct DelayedRanges<'a> {
    delalloc: &'a Delalloc,
    /// The last range found: no range that ends behind the place of that search lies before it.
    last: Option<Option<Range>>,
}

/// The memory of the dirty ranges.
pub(super) struct DirtyMemory<'m> {
    pub(super) batch: &'m mut DirtyBatch,
    /// Whether the memory is the open file's, or this search's alone: then its content does not count as a cursor's.
    pub(super) is_cursor: bool,
}

impl<'a> DelayedRanges<'a> {
    /// The delayed ranges of the file that has `delalloc`.
    pub(super) fn new(delalloc: &'a Delalloc) -> Self {
        Self { delalloc, last: if delalloc.any() { None } else { Some(None) } }
    }

    /// The first range that ends behind `at`, for a search in `[at, end)`; the next range may touch it. The places of the calls
    /// come in order.
    pub(super) fn first(
        &mut self,
        memory: &mut DirtyMemory<'_>,
        (at, end): Range,
        cost: &mut SeekCounters,
    ) -> Option<Range> {
        match self.last {
            Some(None) => return None,
            Some(Some(range)) if range.1 > at => return Some(range),
            _ => {}
        }
        let found = self.delalloc.look(|state| of_state(state?, memory, (at, end), cost));
        self.last = Some(found);
        found
    }
}

fn of_state(
    state: &DelayedData,
    memory: &mut DirtyMemory<'_>,
    (at, end): Range,
    cost: &mut SeekCounters,
) -> Option<Range> {
    let dirty = if memory.is_cursor {
        memory.batch.first(state.pages(), at, cost)
    } else {
        let mut own = SeekCounters::default();
        let dirty = memory.batch.first(state.pages(), at, &mut own);
        cost.map_descents += own.map_descents;
        cost.pieces += own.pieces;
        dirty
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
