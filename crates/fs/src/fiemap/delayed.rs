//! What of a file is delayed, as a listing looks at it.

use crate::delalloc::{Delalloc, DelayedData};

/// The delayed ranges of a file whose range is locked and whose extents are held, so that they stay what they are: what leaves the
/// dirty pages meanwhile is in flight.
#[derive(Clone, Copy)]
pub(super) struct DelayedInRange<'a>(pub(super) &'a Delalloc);

impl DelayedInRange<'_> {
    /// The first part of `[start, end)` that is delayed, as far as it goes there.
    pub(super) fn first_in(self, start: u64, end: u64) -> Option<(u64, u64)> {
        if start >= end || !self.0.any() {
            return None;
        }
        let (first, last) = self.0.look(|state| first_of(state?, start, end))?;
        Some((first.max(start), last.min(end)))
    }
}

/// The first range that ends behind `start` and begins before `end`; pieces that touch are one.
fn first_of(state: &DelayedData, start: u64, end: u64) -> Option<(u64, u64)> {
    let mut flying = Some(state.in_flight_range()).filter(|range| range.1 > start);
    let mut dirty = state.pages().pieces_from(start).peekable();
    let mut found: Option<(u64, u64)> = None;
    loop {
        let is_flying = match (dirty.peek(), &flying) {
            (Some(dirty), Some(flying)) => flying.0 <= dirty.0,
            (None, Some(_)) => true,
            _ => false,
        };
        let Some(next) = (if is_flying { flying.take() } else { dirty.next_if(|range| range.0 < end) })
        else {
            return found;
        };
        found = match found {
            Some((first, last)) if next.0 <= last => Some((first, last.max(next.1))),
            Some(found) => return Some(found),
            None if next.0 < end => Some(next),
            None => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::delalloc::PageRanges;

    const SECTOR: u64 = 4096;

    #[test]
    fn the_first_part_is_cut_at_both_ends_and_pieces_that_touch_are_one() {
        let delalloc = Delalloc::new();
        delalloc.begin(0, Duration::ZERO, |state| {
            for (start, sectors) in [(10, 6), (16, 4), (30, 10)] {
                state.insert(start * SECTOR, &vec![7; (sectors * SECTOR) as usize], &PageRanges::new());
            }
        });
        let delayed = DelayedInRange(&delalloc);
        let in_bytes = |(start, end): (u64, u64)| (start * SECTOR, end * SECTOR);
        for (range, found) in [
            ((0, 10), None),
            ((0, 11), Some((10, 11))),
            ((12, 15), Some((12, 15))),
            ((12, 25), Some((12, 20))),
            ((19, 35), Some((19, 20))),
            ((20, 30), None),
            ((20, 31), Some((30, 31))),
            ((40, 1 << 40), None),
            ((0, 0), None),
            ((35, 35), None),
        ] {
            let (start, end) = in_bytes(range);
            assert_eq!(delayed.first_in(start, end), found.map(in_bytes), "{range:?}");
        }
    }
}
