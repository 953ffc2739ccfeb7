//! The mix of requests of a fio job of Btrfs' developers (`rw=randrw`, `bssplit` as below), at random over a file.

use creamery_testkit::Random;

const KIB: usize = 1 << 10;
/// Sizes, and the percentage of requests with each.
const SIZES: [(usize, u64); 9] = [
    (4 * KIB, 20),
    (8 * KIB, 20),
    (16 * KIB, 20),
    (32 * KIB, 10),
    (64 * KIB, 10),
    (128 * KIB, 5),
    (256 * KIB, 5),
    (512 * KIB, 5),
    (1024 * KIB, 5),
];
/// The largest size.
pub(super) const SIZE_MAX: usize = 1024 * KIB;
/// The alignment of each request's offset, bytes.
const ALIGNMENT: u64 = 4 * KIB as u64;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Drawn {
    pub(super) is_write: bool,
    pub(super) offset: u64,
    pub(super) len: usize,
}

/// Requests for a file, in order; half of them are reads.
pub(super) struct Mix {
    random: Random,
    bytes: u64,
}

impl Mix {
    /// The mix for a file of `bytes` bytes, at least those of the largest request.
    pub(super) fn new(seed: u64, bytes: u64) -> Self {
        assert!(bytes >= SIZE_MAX as u64, "the largest request fits");
        Self { random: Random::new(seed), bytes }
    }

    pub(super) fn draw(&mut self) -> Drawn {
        let is_write = self.random.below(2) == 1;
        let mut place = self.random.below(100);
        let size = SIZES.iter().find(|(_, share)| {
            let is_here = place < *share;
            place = place.saturating_sub(*share);
            is_here
        });
        let len = size.expect("the shares are a hundred together").0;
        let places = (self.bytes - len as u64) / ALIGNMENT + 1;
        Drawn { is_write, offset: self.random.below(places) * ALIGNMENT, len }
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIGNMENT, Mix, SIZE_MAX, SIZES};

    #[test]
    fn requests_are_as_often_and_as_large_as_they_are_to_be() {
        const COUNT: u64 = 100_000;
        let bytes = SIZE_MAX as u64 + 3 * ALIGNMENT;
        let mut mix = Mix::new(1, bytes);
        let drawn: Vec<_> = (0..COUNT).map(|_| mix.draw()).collect();
        for (size, share) in SIZES {
            let found = drawn.iter().filter(|drawn| drawn.len == size).count() as u64;
            assert!(found.abs_diff(COUNT * share / 100) < COUNT / 100, "{size}: {found}");
        }
        assert!(drawn.iter().all(|drawn| drawn.offset + drawn.len as u64 <= bytes));
        assert!(drawn.iter().all(|drawn| drawn.offset % ALIGNMENT == 0));
        let writes = drawn.iter().filter(|drawn| drawn.is_write).count() as u64;
        assert!(writes.abs_diff(COUNT / 2) < COUNT / 100);
        let last =
            drawn.iter().any(|drawn| drawn.offset + drawn.len as u64 == bytes && drawn.len == SIZE_MAX);
        assert!(last, "the last place is one");
    }
}
