//! A set of address ranges.

use std::collections::BTreeMap;

/// Ranges that do not overlap, by their starts.
#[derive(Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// The parts of `[start, end)` that are in no range.
    pub(super) fn missing(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let (mut missing, mut from) = (Vec::new(), start);
        let before = self.0.range(..=start).next_back().map(|(_, &end)| end);
        from = from.max(before.unwrap_or(0));
        for (&next, &next_end) in self.0.range(start.saturating_add(1)..end) {
            if from < next {
                missing.push((from, next));
            }
            from = from.max(next_end);
        }
        if from < end {
            missing.push((from, end));
        }
        missing
    }

    /// Adds a range that is missing.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        self.0.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_not_missing() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.missing(10, 20), [(10, 20)]);
        ranges.add(12, 14);
        ranges.add(16, 18);
        assert_eq!(ranges.missing(10, 20), [(10, 12), (14, 16), (18, 20)]);
        assert_eq!(ranges.missing(12, 18), [(14, 16)]);
        assert_eq!(ranges.missing(13, 17), [(14, 16)]);
        assert!(ranges.missing(12, 14).is_empty() && ranges.missing(13, 14).is_empty());
        assert_eq!(ranges.missing(0, 12), [(0, 12)]);
        assert_eq!(ranges.missing(18, 19), [(18, 19)]);
    }
}
