//! Free space as extents: indexed by address and by length.

use std::collections::{BTreeMap, BTreeSet};

use creamery_base::memory;

/// Free extents by address and by length.
#[derive(Default, Debug)]
pub(super) struct FreeExtents {
    by_start: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
    total: u64,
}

impl FreeExtents {
    /// Free bytes.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Number of extents.
    pub(super) fn count(&self) -> usize {
        self.by_start.len()
    }

    /// Memory on the heap, bytes.
    pub(super) fn memory(&self) -> u64 {
        memory::btree::<u64, u64>(self.count()) + memory::btree::<(u64, u64), ()>(self.count())
    }

    /// All extents, in order of address.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_start.iter().map(|(&start, &len)| (start, len))
    }

    /// The longest free extent's length.
    pub(super) fn longest(&self) -> u64 {
        self.by_len.last().map_or(0, |&(len, _)| len)
    }

    /// Gives space back; joins it with its neighbours. Returns false, and does nothing, when a part of it is free already:
    /// in a damaged filesystem two extents may claim the same space.
    #[must_use]
    pub(super) fn add(&mut self, start: u64, len: u64) -> bool {
        assert!(len > 0, "an empty extent was given back at {start}");
        if self.overlaps(start, len) {
            return false;
        }
        let (mut from, mut to) = (start, start + len);
        if let Some((&before, &before_len)) = self.by_start.range(..=start).next_back()
            && before + before_len == start
        {
            self.take_extent(before, before_len);
            from = before;
        }
        if let Some((&behind, &behind_len)) = self.by_start.range(start..).next()
            && behind == start + len
        {
            self.take_extent(behind, behind_len);
            to = behind + behind_len;
        }
        self.put_extent(from, to - from);
        true
    }

    /// Whether any of it is free.
    pub(super) fn overlaps(&self, start: u64, len: u64) -> bool {
        let last = self.by_start.range(..start + len).next_back();
        last.is_some_and(|(&at, &at_len)| at + at_len > start)
    }

    /// Hands out `len` bytes aligned to `len`, the first such place at or behind `cursor`, else from the start.
    pub(super) fn allocate_aligned(&mut self, len: u64, cursor: u64) -> Option<u64> {
        let fits = |(&start, &extent): (&u64, &u64)| {
            let at = start.checked_next_multiple_of(len)?;
            let fits = at.checked_add(len).is_some_and(|end| end <= start + extent);
            fits.then_some((at, start, extent))
        };
        let place = self
            .by_start
            .range(cursor..)
            .find_map(fits)
            .or_else(|| self.by_start.range(..cursor).find_map(fits));
        let (at, start, extent) = place?;
        self.carve(start, extent, at, len);
        Some(at)
    }

    /// Hands out `len` bytes from the shortest extent that has them, else the longest extent if it has `min`.
    pub(super) fn allocate_best(&mut self, len: u64, min: u64) -> Option<(u64, u64)> {
        let &(extent, start) = self.by_len.range((len, 0)..).next().or_else(|| self.by_len.last())?;
        if extent < min {
            return None;
        }
        let len = len.min(extent);
        self.carve(start, extent, start, len);
        Some((start, len))
    }

    /// The first free part of `[from, to)`: its start and its length.
    pub(super) fn first_part(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let before = self.by_start.range(..from).next_back().filter(|(start, len)| *start + *len > from);
        let (&start, &len) = before.or_else(|| self.by_start.range(from..to).next())?;
        let (first, last) = (start.max(from), (start + len).min(to));
        Some((first, last - first))
    }

    /// Takes `len` bytes from `at` on, all of which are free.
    pub(super) fn take(&mut self, at: u64, len: u64) {
        let (&start, &extent) = self.by_start.range(..=at).next_back().expect("it is free");
        assert!(at + len <= start + extent, "{at} of {len} bytes is not free");
        self.carve(start, extent, at, len);
    }

    fn carve(&mut self, start: u64, extent: u64, at: u64, len: u64) {
        self.take_extent(start, extent);
        if at > start {
            self.put_extent(start, at - start);
        }
        if at + len < start + extent {
            self.put_extent(at + len, start + extent - at - len);
        }
    }

    fn take_extent(&mut self, start: u64, len: u64) {
        let known = self.by_start.remove(&start) == Some(len) && self.by_len.remove(&(len, start));
        assert!(known, "the two indexes of free space disagree at {start}");
        self.total -= len;
    }

    fn put_extent(&mut self, start: u64, len: u64) {
        self.by_start.insert(start, len);
        self.by_len.insert((len, start));
        self.total += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(space: &FreeExtents) -> Vec<(u64, u64)> {
        space.iter().collect()
    }

    #[test]
    fn neighbours_join_when_space_comes_back() {
        let mut space = FreeExtents::default();
        assert!(space.add(100, 10));
        assert!(space.add(120, 10));
        assert!(space.add(110, 10));
        assert_eq!(extents(&space), [(100, 30)]);
        assert_eq!(space.total(), 30);
        assert_eq!(space.longest(), 30);
    }

    #[test]
    fn aligned_allocation_starts_at_the_cursor_and_wraps() {
        let mut space = FreeExtents::default();
        assert!(space.add(8, 100));
        assert_eq!(space.allocate_aligned(16, 0), Some(16));
        assert!(space.add(200, 64));
        assert_eq!(space.allocate_aligned(16, 150), Some(208));
        assert_eq!(space.allocate_aligned(16, 1000), Some(32));
        assert_eq!(extents(&space), [(8, 8), (48, 60), (200, 8), (224, 40)]);
    }

    #[test]
    fn best_fit_takes_the_shortest_that_has_it_else_the_longest() {
        let mut space = FreeExtents::default();
        assert!(space.add(0, 100));
        assert!(space.add(200, 20));
        assert_eq!(space.allocate_best(20, 4), Some((200, 20)));
        assert_eq!(space.allocate_best(500, 4), Some((0, 100)));
        assert_eq!(space.allocate_best(4, 4), None);
    }

    #[test]
    fn what_is_free_already_is_not_given_back() {
        let mut space = FreeExtents::default();
        assert!(space.add(100, 100));
        for (start, len) in [(150, 10), (50, 51), (199, 100), (50, 300), (100, 100)] {
            assert!(!space.add(start, len), "{start} of {len} bytes");
        }
        assert_eq!(extents(&space), [(100, 100)]);
        assert!(space.add(50, 50) && space.add(200, 50));
        assert_eq!(extents(&space), [(50, 200)]);
    }

    #[test]
    fn places_behind_the_last_address_are_none() {
        let mut space = FreeExtents::default();
        let last = u64::MAX - 8191; // a chunk may end one sector before the addresses do
        assert!(space.add(last, 4096));
        assert_eq!(space.allocate_aligned(16384, 0), None);
        assert_eq!(space.allocate_aligned(4096, 0), Some(last));
    }
}
