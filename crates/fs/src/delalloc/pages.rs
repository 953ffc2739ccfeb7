//! Dirty pages: data of one file that is in memory and not yet on its way to a device.
//!
//! Pages are whole sectors, in pieces of up to 64 KiB that lie anywhere in the file and never overlap. The size of a piece is a
//! size that the allocator hands out without waste. Sequential writes make adjacent pieces, and a run of adjacent pieces becomes
//! one extent.

use std::collections::BTreeMap;
use std::sync::Arc;

use creamery_base::memory;
use creamery_device::AlignedBuffer;
use smallvec::SmallVec;

/// The largest piece in bytes, unless a sector is larger.
const PIECE_MAX: u64 = 64 << 10;

/// Ranges of a file, in order.
pub(crate) type PageRanges = SmallVec<[(u64, u64); 4]>;

/// Some adjacent sectors.
struct AdjacentSectors {
    data: Arc<AlignedBuffer>,
    /// Bytes of it that have no space on a device yet.
    new: u64,
}

/// The dirty pages of a file.
#[derive(Default)]
pub(crate) struct Pages {
    pieces: BTreeMap<u64, AdjacentSectors>,
    bytes: u64,
    /// Changes whenever the set of pages does.
    version: u64,
}

/// Adjacent pages that were taken out for writeback.
pub(crate) struct Taken {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) pieces: Vec<Arc<AlignedBuffer>>,
    /// Bytes that have no space on a device yet.
    pub(crate) new: u64,
}

impl AdjacentSectors {
    /// Splits it into the first `len` bytes and the rest.
    fn split(&self, len: u64) -> (Self, Self) {
        let (front, back) = self.data.split_at(as_len(len));
        let part = |bytes, new| Self { data: Arc::new(AlignedBuffer::from_slice(bytes)), new };
        let new = self.new.min(len);
        (part(front, new), part(back, self.new - new))
    }
}

fn end_of((start, piece): (&u64, &AdjacentSectors)) -> u64 {
    start + piece.data.len() as u64
}

/// The bytes that two ranges have in common.
fn overlap(one: (u64, u64), other: (u64, u64)) -> u64 {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

impl Pages {
    /// An empty set; its versions begin at `version`.
    pub(crate) fn new(version: u64) -> Self {
        Self { version, ..Self::default() }
    }

    /// The version of the set of pages: while it is equal, the same sectors are dirty.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// The ranges of the pieces that end behind `from`, in order and apart; they may touch.
    pub(crate) fn pieces_from(&self, from: u64) -> impl Iterator<Item = (u64, u64)> {
        self.touched(from, u64::MAX).map(|piece| (*piece.0, end_of(piece)))
    }

    /// How many bytes are dirty.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The memory the pages take besides their bytes.
    pub(crate) fn overhead(&self) -> u64 {
        memory::btree::<u64, AdjacentSectors>(self.pieces.len())
    }

    /// The pieces that overlap `[start, end)`.
    fn touched(&self, start: u64, end: u64) -> impl Iterator<Item = (&u64, &AdjacentSectors)> {
        let before = self.pieces.range(..start).next_back().filter(|piece| end_of(*piece) > start);
        before.into_iter().chain(self.pieces.range(start..end.max(start)))
    }

    /// The parts of `[start, end)` that are not dirty.
    pub(crate) fn missing(&self, start: u64, end: u64) -> PageRanges {
        let mut missing = PageRanges::new();
        let mut at = start;
        for piece in self.touched(start, end) {
            if *piece.0 > at {
                missing.push((at, *piece.0));
            }
            at = end_of(piece);
        }
        if at < end {
            missing.push((at, end));
        }
        missing
    }

    /// Whether all of `[start, end)` is dirty.
    pub(crate) fn has(&self, start: u64, end: u64) -> bool {
        self.missing(start, end).is_empty()
    }

    /// Whether a piece begins at or behind `from`.
    pub(crate) fn any_from(&self, from: u64) -> bool {
        self.pieces.range(from..).next().is_some()
    }

    /// The start of the run with the first page of `[start, end)`: adjacent pages in front of the range belong to the run.
    pub(crate) fn run_in(&self, start: u64, end: u64) -> Option<u64> {
        let mut first = *self.touched(start, end).next()?.0;
        for piece in self.pieces.range(..first).rev() {
            if end_of(piece) != first {
                break;
            }
            first = *piece.0;
        }
        Some(first)
    }

    /// Whether `[start, end)` has an adjacent page in front or behind.
    pub(crate) fn adjoins(&self, start: u64, end: u64) -> bool {
        let before = self.pieces.range(..start).next_back();
        before.is_some_and(|piece| end_of(piece) == start) || self.pieces.contains_key(&end)
    }

    /// Makes the whole clean sectors `data` dirty at `start`. `new` are the parts without space on a device; returns how many
    /// bytes of the data these are.
    pub(crate) fn insert(&mut self, start: u64, data: &[u8], new: &PageRanges) -> u64 {
        let (mut at, end, mut all_new) = (start, start + data.len() as u64, 0);
        assert!(self.missing(start, end).as_slice() == [(start, end)], "DIRTY-1: pages do not overlap");
        while at < end {
            let len = piece_len(end - at);
            let from = as_len(at - start);
            let bytes = &data[from..from + as_len(len)];
            let new = new.iter().map(|range| overlap(*range, (at, at + len))).sum();
            let piece = AdjacentSectors { data: Arc::new(AlignedBuffer::from_slice(bytes)), new };
            self.pieces.insert(at, piece);
            at += len;
            all_new += new;
        }
        self.bytes += end - start;
        self.version += 1;
        all_new
    }

    /// Copies the bytes from `offset` on over the dirty bytes there.
    pub(crate) fn overwrite(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let first = self.touched(offset, end).next().map_or(end, |(start, _)| *start);
        for (start, piece) in self.pieces.range_mut(first..end.max(first)) {
            let bytes = Arc::get_mut(&mut piece.data).expect("DIRTY-2: what is dirty is nobody else's");
            copy(data, offset, bytes, *start);
        }
    }

    /// Copies the dirty bytes from `offset` on into `out`.
    pub(crate) fn copy_out(&self, offset: u64, out: &mut [u8]) {
        for (start, piece) in self.touched(offset, offset + out.len() as u64) {
            copy(&piece.data, *start, out, offset);
        }
    }

    /// The first run of adjacent pages at or behind `from`, cut to `most` bytes.
    fn first_run(&self, from: u64, most: u64) -> Option<(u64, u64)> {
        let mut pieces = self.pieces.range(from..).map(|piece| (*piece.0, end_of(piece)));
        let (start, mut end) = pieces.next()?;
        for (next, next_end) in pieces {
            if next != end || next_end - start > most {
                break;
            }
            end = next_end;
        }
        Some((start, end))
    }

    /// Takes out the first run at or behind `from`, at most `most` bytes of it.
    pub(crate) fn take_run(&mut self, from: u64, most: u64) -> Option<Taken> {
        let (start, end) = self.first_run(from, most)?;
        // One by one: splitting the map in three and joining it again takes time in proportion to all pieces.
        let places: Vec<u64> = self.pieces.range(start..end).map(|(place, _)| *place).collect();
        let (mut pieces, mut new) = (Vec::with_capacity(places.len()), 0);
        for piece in places.iter().filter_map(|place| self.pieces.remove(place)) {
            new += piece.new;
            pieces.push(piece.data);
        }
        self.bytes -= end - start;
        self.version += 1;
        Some(Taken { start, end, pieces, new })
    }

    /// Forgets everything from the sector `from` on. Returns how many bytes that were, and how many of them were new.
    pub(crate) fn discard(&mut self, from: u64) -> (u64, u64) {
        let mut gone = self.pieces.split_off(&from);
        let across = self.pieces.last_key_value().filter(|piece| end_of(*piece) > from).map(|(at, _)| *at);
        if let Some(at) = across {
            let piece = self.pieces.remove(&at).expect("it was just there");
            let (front, back) = piece.split(from - at);
            self.pieces.insert(at, front);
            gone.insert(from, back);
        }
        let bytes = gone.values().map(|piece| piece.data.len() as u64).sum();
        self.bytes -= bytes;
        self.version += 1;
        (bytes, gone.values().map(|piece| piece.new).sum())
    }
}

/// The size of a piece when `len` bytes are left: a size that the allocator hands out without waste.
fn piece_len(len: u64) -> u64 {
    if len.is_power_of_two() { len.min(PIECE_MAX) } else { (len.next_power_of_two() / 2).min(PIECE_MAX) }
}

/// Copies the bytes that two buffers share, which begin at `from_at` and `to_at` of one file.
pub(crate) fn copy(from: &[u8], from_at: u64, to: &mut [u8], to_at: u64) {
    let start = from_at.max(to_at);
    let end = (from_at + from.len() as u64).min(to_at + to.len() as u64);
    if start < end {
        to[as_len(start - to_at)..as_len(end - to_at)]
            .copy_from_slice(&from[as_len(start - from_at)..as_len(end - from_at)]);
    }
}

/// A length that is bounded by a buffer's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer")
}

#[cfg(test)]
mod tests {
    use creamery_testkit::Random;

    use super::*;

    const SECTOR: u64 = 4096;

    fn all(start: u64, end: u64) -> PageRanges {
        PageRanges::from_slice(&[(start, end)])
    }

    #[test]
    fn a_piece_is_a_power_of_two() {
        for (len, piece) in [(4096, 4096), (8192, 8192), (12288, 8192), (65536, 65536), (1 << 20, 65536)] {
            assert_eq!(piece_len(len), piece, "{len}");
        }
    }

    #[test]
    fn a_run_goes_as_far_as_pages_lie_side_by_side() {
        let mut pages = Pages::default();
        for (start, sectors) in [(0, 3), (3, 20), (40, 1)] {
            let data = vec![7; (sectors * SECTOR) as usize];
            pages.insert(start * SECTOR, &data, &all(0, 2 * SECTOR));
        }
        assert!(pages.adjoins(41 * SECTOR, 42 * SECTOR) && !pages.adjoins(30 * SECTOR, 31 * SECTOR));
        let run = pages.take_run(0, 1 << 30).expect("a run");
        assert_eq!((run.start, run.end, run.new), (0, 23 * SECTOR, 2 * SECTOR));
        assert_eq!(run.pieces.iter().map(|piece| piece.len() as u64).sum::<u64>(), 23 * SECTOR);
        assert_eq!(pages.pieces_from(0).collect::<Vec<_>>(), [(40 * SECTOR, 41 * SECTOR)]);
        assert!(pages.take_run(41 * SECTOR, 1 << 30).is_none());
    }

    #[test]
    #[should_panic(expected = "DIRTY-1")]
    fn pages_that_overlap_are_a_bug() {
        let mut pages = Pages::default();
        for _ in 0..2 {
            pages.insert(0, &[0; SECTOR as usize], &PageRanges::new());
        }
    }

    #[test]
    #[should_panic(expected = "DIRTY-2")]
    fn a_page_that_somebody_else_has_does_not_change() {
        let mut pages = Pages::default();
        pages.insert(0, &[0; SECTOR as usize], &PageRanges::new());
        let _other = Arc::clone(&pages.pieces[&0].data);
        pages.overwrite(0, &[1]);
    }

    /// The bytes of a page, and whether it is new.
    type Model = BTreeMap<u64, (Vec<u8>, bool)>;

    fn compare(pages: &Pages, model: &Model, sectors: u64) {
        assert_eq!(pages.bytes(), model.len() as u64 * SECTOR);
        for number in 0..sectors {
            let at = number * SECTOR;
            let mut out = vec![0xaa; SECTOR as usize];
            pages.copy_out(at, &mut out);
            match model.get(&at) {
                Some((bytes, _)) => assert_eq!(&out, bytes),
                None => assert!(out.iter().all(|byte| *byte == 0xaa)),
            }
            assert_eq!(pages.has(at, at + SECTOR), model.contains_key(&at));
        }
    }

    #[test]
    fn random_changes_are_those_of_single_sectors() {
        const SECTORS: u64 = 80;
        let mut random = Random::new(5);
        let (mut pages, mut model) = (Pages::default(), Model::new());
        for _ in 0..2000 {
            let start = random.below(SECTORS) * SECTOR;
            let end = (start + (1 + random.below(30)) * SECTOR).min(SECTORS * SECTOR);
            match random.below(8) {
                0 => {
                    let (bytes, new) = pages.discard(start);
                    let gone = model.split_off(&start);
                    assert_eq!(bytes, gone.len() as u64 * SECTOR);
                    assert_eq!(new, gone.values().filter(|page| page.1).count() as u64 * SECTOR);
                }
                1 => {
                    let Some(run) = pages.take_run(start, 16 * SECTOR) else { continue };
                    assert!(run.start >= start && run.end - run.start <= 16 * SECTOR);
                    let bytes: Vec<u8> = run.pieces.iter().flat_map(|piece| piece.to_vec()).collect();
                    let mut new = 0;
                    for (index, chunk) in bytes.chunks(SECTOR as usize).enumerate() {
                        let (want, is_new) =
                            model.remove(&(run.start + index as u64 * SECTOR)).expect("dirty");
                        assert_eq!(chunk, want);
                        new += u64::from(is_new) * SECTOR;
                    }
                    assert_eq!(run.new, new);
                }
                _ => {
                    let byte = random.next_u64() as u8;
                    let data = vec![byte; (end - start) as usize];
                    pages.overwrite(start, &data);
                    let is_new = random.below(2) == 0;
                    let new = if is_new { all(start, end) } else { PageRanges::new() };
                    for (from, to) in pages.missing(start, end) {
                        pages.insert(from, &data[(from - start) as usize..(to - start) as usize], &new);
                    }
                    for at in (start..end).step_by(SECTOR as usize) {
                        let page = model.entry(at).or_insert((Vec::new(), is_new));
                        page.0 = vec![byte; SECTOR as usize];
                    }
                }
            }
            compare(&pages, &model, SECTORS);
        }
    }
}
