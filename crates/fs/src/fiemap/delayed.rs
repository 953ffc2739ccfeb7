//! What of a file is delayed, as a listing looks at it.

use crate::delalloc::Delalloc;

/// The delayed ranges behind a place, as they were in one moment.
pub(super) struct Delayed(Vec<(u64, u64)>);

impl Delayed {
    /// Those that end behind `from`.
    pub(super) fn at(delalloc: &Delalloc, from: u64) -> Self {
        Self(if delalloc.any() { delalloc.ranges(from) } else { Vec::new() })
    }

    /// The first part of `[start, end)` that is delayed, as far as it goes there.
    pub(super) fn first_in(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let index = self.0.partition_point(|range| range.1 <= start);
        let (first, last) = *self.0.get(index)?;
        (first < end && start < end).then(|| (first.max(start), last.min(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_is_cut_at_both_ends() {
        let delayed = Delayed(vec![(10, 20), (30, 40)]);
        for (range, found) in [
            ((0, 10), None),
            ((0, 11), Some((10, 11))),
            ((12, 15), Some((12, 15))),
            ((19, 35), Some((19, 20))),
            ((20, 30), None),
            ((20, 31), Some((30, 31))),
            ((40, u64::MAX), None),
            ((0, 0), None),
            ((35, 35), None),
        ] {
            assert_eq!(delayed.first_in(range.0, range.1), found, "{range:?}");
        }
    }
}
