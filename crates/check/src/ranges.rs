//! Sets of address ranges, sorted and merged: neighbours become one, so that a device filled from end to end costs
//! one entry.

/// Ranges `[start, end)`, ascending, with a gap between any two.
#[derive(Clone, Default, Debug)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds a range that does not begin before the last one that was added; overlap is merged.
    pub(crate) fn push(&mut self, start: u64, end: u64) {
        match self.0.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ if start < end => self.0.push((start, end)),
            _ => {}
        }
    }

    /// Those that touch `[start, end)`, cut to it.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let from = self.0.partition_point(|range| range.1 <= start);
        self.0[from..]
            .iter()
            .take_while(move |range| range.0 < end)
            .map(move |range| (range.0.max(start), range.1.min(end)))
    }

    /// Bytes of `[start, end)` that the set has.
    pub(crate) fn covered(&self, start: u64, end: u64) -> u64 {
        self.within(start, end).map(|(start, end)| end - start).sum()
    }

    /// The first part of `[start, end)` that the set lacks.
    pub(crate) fn first_gap(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        self.gaps(start, end).next()
    }

    /// The parts of `[start, end)` that the set lacks.
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
        self.0.iter().copied()
    }

    /// The set of any ranges in any order.
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
}
