//! The memory of an open file's last search, so that the next one goes on there.
//!
//! Of the dirty pages it has a batch: the first few ranges behind the place of the search, and the version of the set that they are of
//! ([`Pages::version`]). The batch is as good as the map while the version is the same; making a page dirty, or taking one to write it
//! back, changes that. A range that goes on behind a batch is kept from its beginning: a search within it for its end has an answer
//! at once. Batches begin with one range and double while a scan uses them up. So beside a writer, which spoils each of them, no more
//! ranges are copied than are used.
//!
//! Of the tree it has the leaf in which the last search ended ([`creamery_tree::Bookmark`]). That is as good as a search as long as
//! no extent of the file has changed, which the inode counts. It is no copy of the leaf's items.
//!
//! [`Pages::version`]: crate::delalloc::Pages::version

use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_tree::Bookmark;
use smallvec::SmallVec;

use crate::counters::{SeekCounters, Seeks, Untold};
use crate::delalloc::Pages;
use crate::inode::file_state::ExtentsSeen;

/// Upper bound of the ranges of a batch.
const RANGES_MAX: usize = 64;
/// Upper bound of the pieces that are visited for each of them: adjacent ones become one range.
const PIECES_PER_RANGE: usize = 4;

/// A range of a file.
pub(super) type Range = (u64, u64);

/// The memory of one open file. One search at a time uses it; a concurrent one does without. Most files are open without a search:
/// the memory takes its room with the first one.
#[derive(Default)]
pub(crate) struct SeekCursor {
    kept: RankedMutex<Option<Box<Kept>>, { rank::SEEK_CURSOR }>,
}

/// The state that an open file keeps of its searches.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) remembered: Remembered,
    pub(super) untold: Untold,
}

/// The remembered places.
#[derive(Default)]
pub(super) struct Remembered {
    pub(super) dirty: DirtyBatch,
    /// The leaf, and the state of the extents when it was visited.
    pub(super) leaf: Option<(ExtentsSeen, Bookmark)>,
    /// The last answer: a search that begins there goes through the file.
    pub(super) answer: Option<u64>,
}

impl SeekCursor {
    /// Lends the memory to one search; `None` while another one has it.
    pub(super) fn try_use(&self) -> Option<RankedGuard<'_, Option<Box<Kept>>, { rank::SEEK_CURSOR }>> {
        self.kept.try_lock()
    }

    /// Adds the cost of its searches to the filesystem's counters.
    pub(crate) fn tell(&self, all: &Seeks) {
        if let Some(kept) = &mut *self.kept.lock() {
            kept.untold.tell(all);
        }
    }
}

/// Dirty ranges that were copied ahead: all that end in `from..to`.
#[derive(Default)]
pub(super) struct DirtyBatch {
    /// The version of the set of ranges; 0 is that of none.
    version: u64,
    from: u64,
    to: u64,
    ranges: SmallVec<[Range; 4]>,
    /// The number of ranges that the batch was to have.
    wanted: usize,
}

/// The answer of a batch.
enum KnownBatch {
    /// The first range that ends behind a place, if there is any.
    Range(Option<Range>),
    /// The batch does not cover that place.
    Miss,
    /// The batch is out of date.
    Stale,
}

impl DirtyBatch {
    /// The first dirty range that ends behind `at`; the next one may touch it. Looks into the map only when the batch does not know.
    pub(super) fn first(&mut self, pages: &Pages, at: u64, cost: &mut SeekCounters) -> Option<Range> {
        match self.look(pages.version(), at) {
            KnownBatch::Range(range) => {
                let is_so = || covered(range, at) == covered(pages.pieces_from(at).next(), at);
                debug_assert!(is_so(), "SEEK-4: what is remembered is what the map says");
                cost.cursor_hits += 1;
                return range;
            }
            KnownBatch::Miss => {
                cost.cursor_misses += 1;
                self.wanted = if at >= self.to { (2 * self.wanted).clamp(1, RANGES_MAX) } else { 1 };
            }
            KnownBatch::Stale => {
                cost.cursor_stale += 1;
                self.wanted = 1;
            }
        }
        self.fill(pages, at, cost)
    }

    fn look(&self, version: u64, at: u64) -> KnownBatch {
        if self.version != version {
            return if self.version == 0 { KnownBatch::Miss } else { KnownBatch::Stale };
        }
        if at < self.from || at >= self.to {
            return KnownBatch::Miss;
        }
        let index = self.ranges.partition_point(|range| range.1 <= at);
        KnownBatch::Range(self.ranges.get(index).copied())
    }

    /// Copies the ranges from `at` on, joined with the range before if that goes on there; returns the first.
    fn fill(&mut self, pages: &Pages, at: u64, cost: &mut SeekCounters) -> Option<Range> {
        cost.map_descents += 1;
        let mut pieces = pages.pieces_from(at).peekable();
        let is_behind = self.version == pages.version() && self.to == at;
        let goes_on = |last: &Range| is_behind && pieces.peek().is_some_and(|piece| piece.0 == last.1);
        let passed = self.ranges.last().copied().filter(goes_on);
        self.ranges.clear();
        self.ranges.extend(passed);
        let from = passed.map_or(at, |passed| passed.0);
        (self.version, self.from, self.to) = (pages.version(), from, u64::MAX);
        for (seen, piece) in pieces.enumerate() {
            let behind = self.ranges.last().map(|last| last.1);
            let goes_on = behind == Some(piece.0);
            let is_full = seen >= PIECES_PER_RANGE * self.wanted;
            if is_full || !goes_on && self.ranges.len() == self.wanted {
                self.to = behind.unwrap_or(at);
                break;
            }
            cost.pieces += 1;
            match self.ranges.last_mut().filter(|_| goes_on) {
                Some(last) => last.1 = piece.1,
                None => self.ranges.push(piece),
            }
        }
        self.ranges.first().copied()
    }
}

/// The place from where on `at` is dirty, as far as one look shows.
fn covered(range: Option<Range>, at: u64) -> Option<u64> {
    range.map(|range| range.0.max(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delalloc::PageRanges;

    const SECTOR: u64 = 4096;

    /// Makes so many dirty sectors with as many clean ones between them.
    fn pages(count: u64) -> Pages {
        let mut pages = Pages::new(1);
        (0..count).for_each(|number| {
            pages.insert(2 * number * SECTOR, &[7; 4096], &PageRanges::new());
        });
        pages
    }

    #[test]
    fn batches_double_while_they_are_used_up_and_begin_anew_when_pages_change() {
        let (mut pages, mut batch, mut cost) = (pages(1000), DirtyBatch::default(), SeekCounters::default());
        for number in 0..1000 {
            let at = 2 * number * SECTOR;
            assert_eq!(batch.first(&pages, at, &mut cost), Some((at, at + SECTOR)));
        }
        assert_eq!(batch.first(&pages, 2000 * SECTOR, &mut cost), None);
        // 1, 2, 4 and so on up to 64, then fourteen full ones.
        assert_eq!((cost.map_descents, cost.cursor_misses, cost.cursor_hits), (21, 21, 980));
        pages.insert(3000 * SECTOR, &[7; 4096], &PageRanges::new());
        assert_eq!(batch.first(&pages, 0, &mut cost), Some((0, SECTOR)));
        assert_eq!((cost.cursor_stale, batch.ranges.len()), (1, 1));
    }

    #[test]
    fn who_goes_back_gets_what_is_there() {
        let (pages, mut batch, mut cost) = (pages(100), DirtyBatch::default(), SeekCounters::default());
        for at in [50_u64, 52, 54, 0, 198, 3, 199] {
            let first = (at.div_ceil(2) * 2 * SECTOR, (at.div_ceil(2) * 2 + 1) * SECTOR);
            let wanted = Some(first).filter(|range| range.0 < 200 * SECTOR);
            assert_eq!(batch.first(&pages, at * SECTOR, &mut cost), wanted, "{at}");
        }
    }

    #[test]
    fn what_lies_side_by_side_is_one_range_as_far_as_a_batch_goes() {
        let (mut pages, mut batch, mut cost) =
            (Pages::new(1), DirtyBatch::default(), SeekCounters::default());
        pages.insert(0, &vec![7; 1 << 20], &PageRanges::new());
        let (mut at, mut answers) = (0, 0);
        while let Some(range) = batch.first(&pages, at, &mut cost) {
            (at, answers) = (range.1, answers + 1);
        }
        assert_eq!((at, answers, cost.pieces), (1 << 20, 3, 16));
        // The ranges passed over before are known as one range.
        assert_eq!(batch.first(&pages, SECTOR, &mut cost), Some((0, 1 << 20)));
        assert_eq!((cost.pieces, cost.cursor_hits), (16, 2));
    }

    #[test]
    #[should_panic(expected = "SEEK-4")]
    fn a_memory_that_is_wrong_is_a_bug() {
        let pages = pages(1);
        let mut batch = DirtyBatch { version: pages.version(), to: u64::MAX, ..DirtyBatch::default() };
        batch.first(&pages, 0, &mut SeekCounters::default());
    }
}
