//! Sets of address ranges, sorted and merged: adjacent ranges become one, so a device filled from end to end costs one entry.
//!
//! An entry is two offsets of 32 bits from the base of its run; only the end of a run's last range may be farther away. So a gap costs 8
//! bytes, and a claimed length costs nothing, however absurd it is.

/// Maximum entries of a run, which bounds the memory allocated in excess.
const RUN_MAX: usize = 4096;

/// Neighbouring ranges.
#[derive(Clone, Debug)]
struct Run {
    base: u64,
    /// Start and end of each range, from the base; `end` has the end of the last range.
    offsets: Vec<(u32, u32)>,
    end: u64,
}

impl Run {
    fn new(start: u64, end: u64) -> Self {
        Self { base: start, offsets: vec![(0, 0)], end }
    }

    fn get(&self, index: usize) -> (u64, u64) {
        let (start, end) = self.offsets[index];
        let last = index + 1 == self.offsets.len();
        (self.base + u64::from(start), if last { self.end } else { self.base + u64::from(end) })
    }

    /// Appends a range. Returns false if it does not fit into the run.
    fn push(&mut self, start: u64, end: u64) -> bool {
        let offset = |at: u64| u32::try_from(at - self.base).ok();
        let (Some(start), Some(old_end)) = (offset(start), offset(self.end)) else { return false };
        if self.offsets.len() == RUN_MAX {
            return false;
        }
        if let Some(last) = self.offsets.last_mut() {
            last.1 = old_end;
        }
        self.offsets.push((start, 0));
        self.end = end;
        true
    }

    /// The first range that ends behind `at`.
    fn first_behind(&self, at: u64) -> usize {
        // All entries but the last have their ends here. The caller chose a run whose last range ends behind `at`.
        let offset = at.saturating_sub(self.base);
        let all_but_last = &self.offsets[..self.offsets.len() - 1];
        all_but_last.partition_point(|range| u64::from(range.1) <= offset)
    }
}

/// Ranges `[start, end)`, ascending, with a gap between any two.
#[derive(Clone, Default, Debug)]
pub(crate) struct Ranges(Vec<Run>);

impl Ranges {
    /// Adds a range that does not begin before the last one that was added; overlap is merged.
    pub(crate) fn push(&mut self, start: u64, end: u64) {
        if let Some(last) = self.0.last_mut() {
            if start <= last.end {
                last.end = last.end.max(end);
                return;
            }
            if start >= end || last.push(start, end) {
                return;
            }
            last.offsets.shrink_to_fit();
        }
        if start < end {
            self.0.push(Run::new(start, end));
        }
    }

    /// The ranges that touch `[start, end)`, cut to it.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let from = self.0.partition_point(|run| run.end <= start);
        let first = self.0.get(from).map_or(0, |run| run.first_behind(start));
        self.from(from, first)
            .take_while(move |range| range.0 < end)
            .map(move |range| (range.0.max(start), range.1.min(end)))
    }

    /// The ranges from `entry` of `run` on.
    fn from(&self, run: usize, entry: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0[run..].iter().enumerate().flat_map(move |(number, run)| {
            let first = if number == 0 { entry } else { 0 };
            (first..run.offsets.len()).map(|index| run.get(index))
        })
    }

    /// Bytes of `[start, end)` that are in the set.
    pub(crate) fn covered(&self, start: u64, end: u64) -> u64 {
        self.within(start, end).map(|(start, end)| end - start).sum()
    }

    /// The first part of `[start, end)` that is not in the set.
    pub(crate) fn first_gap(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        self.gaps(start, end).next()
    }

    /// The parts of `[start, end)` that are not in the set.
    pub(crate) fn gaps(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = start;
        let tail = std::iter::once((end, end));
        self.within(start, end).chain(tail).filter_map(move |(from, to)| {
            let gap = (at < from).then_some((at, from));
            at = to;
            gap
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.from(0, 0)
    }

    /// Builds the set from ranges in any order.
    pub(crate) fn from_unsorted(mut ranges: Vec<(u64, u64)>) -> Self {
        ranges.sort_unstable();
        let mut set = Self::default();
        ranges.into_iter().for_each(|(start, end)| set.push(start, end));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_cover_add_up_to_the_whole() {
        let set = Ranges::from_unsorted(vec![(40, 50), (10, 20), (20, 30), (45, 60)]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [(10, 30), (40, 60)]);
        assert_eq!(set.gaps(0, 100).collect::<Vec<_>>(), [(0, 10), (30, 40), (60, 100)]);
        assert_eq!(set.gaps(15, 45).collect::<Vec<_>>(), [(30, 40)]);
        assert_eq!(set.covered(15, 45), 20);
        assert_eq!(set.first_gap(12, 28), None);
        assert_eq!(set.first_gap(70, 80), Some((70, 80)));
    }

    #[test]
    fn ranges_far_apart_and_longer_than_a_run_are_found() {
        const TERA: u64 = 1 << 40;
        let mut wanted = vec![(0, 3 * TERA), (3 * TERA + 1, 3 * TERA + 2), (9 * TERA, u64::MAX - 5)];
        let many = (0..3 * RUN_MAX as u64).map(|number| 4 * TERA + number * 4096);
        wanted.splice(2..2, many.map(|at| (at, at + 17)));
        let set = Ranges::from_unsorted(wanted.clone());
        assert_eq!(set.iter().collect::<Vec<_>>(), wanted);
        for (start, end) in &wanted {
            assert_eq!(set.first_gap(*start, *end), None);
            assert_eq!(set.within(start + 1, *end).next(), Some((*start + 1, *end)).filter(|it| it.0 < it.1));
            assert_eq!(set.covered(*end, end + 1), 0, "behind [{start}, {end})");
        }
        let between = 4 * TERA + 4096 * (RUN_MAX as u64 - 1);
        assert_eq!(set.within(between, between + 5000).count(), 2, "over the seam of two runs");
    }
}
