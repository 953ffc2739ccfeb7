//! From logical ranges to requests for devices.
//!
//! Every copy of every range is mapped to its pieces, the pieces are sorted by place, and adjacent ones on a
//! device become one run, which is one request. A plan has no bytes: the caller gathers them,
//! borrowed or shared, or spreads the bytes that were read.
//!
//! # Invariants
//! - BATCH-1: no two parts of a plan overlap on a device. Shown by `parts_that_overlap_are_refused`.
//! - BATCH-2: no run has parts of two copies of the same range, so that a failed request affects only one of them.
//!   Shown by `two_copies_of_a_range_are_two_requests_wherever_they_lie`.

use std::ops::Range;

use creamery_base::{Error, ErrorKind, Logical, Physical, Result};

use crate::device_range::DeviceRange;
use crate::index::index;
use crate::mapping::MirrorSet;

/// Adjacent parts are merged into one request up to this many bytes.
const REQUEST_MAX: u64 = 2 << 20;

/// The content of a range, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockKind {
    TreeBlock,
    Data,
}

/// A range of the plan.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) at: Logical,
    pub(crate) what: BlockKind,
    pub(crate) copies: usize,
}

/// Part of one copy of a range, at its place on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyPart {
    pub(crate) at: Physical,
    pub(crate) len: u64,
    /// Index of the range, and the offset in it where this part begins.
    pub(crate) target: usize,
    pub(crate) from: u64,
    pub(crate) copy: usize,
}

impl CopyPart {
    /// Returns the bytes of the range that this part covers.
    pub(crate) fn bytes(&self) -> Range<usize> {
        index(self.from)..index(self.from + self.len)
    }

    const fn end(&self) -> u64 {
        self.at.offset + self.len
    }
}

/// The requests for a set of ranges, see the [module](self).
#[derive(Default, Debug)]
pub(crate) struct Plan {
    pub(crate) targets: Vec<Target>,
    /// Sorted by place.
    parts: Vec<CopyPart>,
    /// Ranges of `parts`.
    runs: Vec<Range<usize>>,
}

impl Plan {
    /// Creates an empty plan with room for about `count` ranges.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { targets: Vec::with_capacity(count), parts: Vec::with_capacity(count * 2), runs: Vec::new() }
    }

    /// Creates the plan for pieces of one range, each with the bytes of the range that it covers.
    ///
    /// # Errors
    /// Those of [`cut`](Self::cut).
    pub(crate) fn of_pieces(pieces: impl IntoIterator<Item = (DeviceRange, Range<usize>)>) -> Result<Self> {
        let mut plan = Self::default();
        let part = |(piece, bytes): (DeviceRange, Range<usize>)| {
            assert_eq!(piece.len, bytes.len() as u64, "a piece is the bytes of the range that it is");
            CopyPart { at: piece.at, len: piece.len, target: 0, from: bytes.start as u64, copy: 0 }
        };
        plan.parts.extend(pieces.into_iter().map(part));
        plan.cut()
    }

    /// Adds all copies of a range.
    pub(crate) fn add(&mut self, at: Logical, what: BlockKind, copies: &MirrorSet) {
        let target = self.targets.len();
        self.targets.push(Target { at, what, copies: copies.copies() });
        for (copy, mirror) in copies.mirrors().iter().enumerate() {
            self.add_copy(target, copy, mirror);
        }
    }

    fn add_copy(&mut self, target: usize, copy: usize, pieces: &[DeviceRange]) {
        let mut from = 0;
        for piece in pieces {
            self.parts.push(CopyPart { at: piece.at, len: piece.len, target, from, copy });
            from += piece.len;
        }
    }

    /// Sorts the added parts, and cuts them into runs.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if two parts overlap: two ranges do, or the map has them in one place (BATCH-1).
    pub(crate) fn cut(mut self) -> Result<Self> {
        self.parts.sort_unstable_by_key(|part| part.at);
        let mut bytes = 0;
        for (number, part) in self.parts.iter().enumerate() {
            let before = number.checked_sub(1).map(|before| &self.parts[before]);
            let before = before.filter(|before| before.at.dev == part.at.dev);
            if before.is_some_and(|before| before.end() > part.at.offset) {
                let what = format!("two parts of a batch overlap at {}", part.at);
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
            let follows =
                before.is_some_and(|before| before.end() == part.at.offset && before.copy == part.copy);
            match self.runs.last_mut() {
                Some(run) if follows && bytes + part.len <= REQUEST_MAX => {
                    run.end += 1;
                    bytes += part.len;
                }
                _ => {
                    self.runs.push(number..number + 1);
                    bytes = part.len;
                }
            }
        }
        Ok(self)
    }

    /// Returns the parts of each request, in order of place.
    pub(crate) fn runs(&self) -> impl ExactSizeIterator<Item = &[CopyPart]> {
        self.runs.iter().map(|run| &self.parts[run.clone()])
    }

    /// Returns the parts of a request.
    pub(crate) fn run(&self, number: usize) -> &[CopyPart] {
        &self.parts[self.runs[number].clone()]
    }
}

/// Returns the place of a run.
pub(crate) fn place(run: &[CopyPart]) -> DeviceRange {
    let (first, last) = (run[0], run[run.len() - 1]);
    DeviceRange { at: first.at, len: last.end() - first.at.offset }
}

#[cfg(test)]
mod tests {
    use creamery_base::DevId;
    use smallvec::smallvec;

    use super::*;
    use crate::mapping::Mirror;

    fn piece(dev: u64, offset: u64, len: u64) -> DeviceRange {
        DeviceRange { at: Physical { dev: DevId::new(dev), offset }, len }
    }

    fn planned(ranges: &[Vec<Mirror>]) -> Result<Vec<(u64, u64, u64)>> {
        let mut plan = Plan::with_capacity(ranges.len());
        for mirrors in ranges {
            plan.add(Logical::new(0), BlockKind::Data, &MirrorSet::new(mirrors.clone()));
        }
        let shown = |run: &[CopyPart]| {
            let place = place(run);
            (place.at.dev.get(), place.at.offset, place.len)
        };
        Ok(plan.cut()?.runs().map(shown).collect())
    }

    #[test]
    fn neighbours_on_a_device_become_one_request() {
        let block = |at: u64| vec![smallvec![piece(1, at, 10)], smallvec![piece(2, at + 1000, 10)]];
        let runs = planned(&[block(20), block(0), block(10), block(40)]).unwrap();
        assert_eq!(runs, [(1, 0, 30), (1, 40, 10), (2, 1000, 30), (2, 1040, 10)]);
    }

    #[test]
    fn stripes_that_follow_one_another_on_their_device_become_one_request() {
        let pieces = smallvec![piece(1, 0, 64), piece(2, 0, 64), piece(1, 64, 64), piece(2, 64, 64)];
        assert_eq!(planned(&[vec![pieces]]).unwrap(), [(1, 0, 128), (2, 0, 128)]);
    }

    #[test]
    fn a_request_has_a_size_that_it_does_not_exceed() {
        let blocks: Vec<Vec<Mirror>> =
            (0..5).map(|number| vec![smallvec![piece(1, number << 20, 1 << 20)]]).collect();
        assert_eq!(
            planned(&blocks).unwrap(),
            [(1, 0, 2 << 20), (1, 2 << 20, 2 << 20), (1, 4 << 20, 1 << 20)]
        );
        // One piece is one request, however long.
        assert_eq!(planned(&[vec![smallvec![piece(1, 0, 9 << 20)]]]).unwrap(), [(1, 0, 9 << 20)]);
    }

    #[test]
    fn two_copies_of_a_range_are_two_requests_wherever_they_lie() {
        let both = vec![smallvec![piece(1, 0, 10)], smallvec![piece(1, 10, 10)]];
        assert_eq!(planned(&[both]).unwrap(), [(1, 0, 10), (1, 10, 10)]);
    }

    #[test]
    fn parts_that_overlap_are_refused() {
        let error =
            planned(&[vec![smallvec![piece(1, 0, 11)]], vec![smallvec![piece(1, 10, 10)]]]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let same = vec![smallvec![piece(1, 0, 10)], smallvec![piece(1, 0, 10)]];
        assert!(planned(&[same]).is_err());
    }
}
