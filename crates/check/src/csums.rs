//! The checksum tree: checks which data has checksums, that none has two, and, on request, that the data matches them.

use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::{Logical, ObjectId, PieceBuffer, TreeId};
use creamery_format::KeyType;

use crate::bad_data::BadSector;
use crate::options::Progress;
use crate::problem::Problem;
use crate::ranges::Ranges;
use crate::reader::Reader;
use crate::report::ProblemSite;
use crate::walk::{Leaf, Meta, Sequence};

/// Bytes of data per read.
const READ_BYTES: u64 = 1 << 20;

/// The ranges of data in a leaf of the checksum tree, each with the place of its slot for findings.
pub(crate) struct SumsOfLeaf {
    ranges: Vec<(u64, u64, usize)>,
    keys: Vec<creamery_format::Key>,
    bad: Vec<BadSector>,
}

/// Digests leaves of the checksum tree; reads the data on request.
pub(crate) struct SumsContext<'a> {
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) read_data: bool,
    pub(crate) progress: &'a dyn Progress,
    pub(crate) verified: &'a AtomicU64,
}

impl SumsContext<'_> {
    pub(crate) fn digest(&self, leaf: &Leaf<'_>) -> SumsOfLeaf {
        let mut found = SumsOfLeaf { ranges: Vec::new(), keys: Vec::new(), bad: Vec::new() };
        let size = self.reader.checksum.size() as u64;
        for slot in 0..leaf.block.count() {
            let (key, data) = (leaf.block.key(slot), leaf.block.data(slot));
            if key.kind != KeyType::EXTENT_CSUM || key.objectid != ObjectId::EXTENT_CSUM {
                continue;
            }
            let sums = data.len() as u64;
            let end = (sums / size)
                .checked_mul(self.reader.sector_size)
                .and_then(|len| key.offset.checked_add(len));
            let whole = sums.is_multiple_of(size) && key.offset.is_multiple_of(self.reader.sector_size);
            let Some(end) = end.filter(|_| whole && sums > 0) else {
                let message = format!("{sums} bytes of sums, expected a multiple of {size}");
                self.reader.sink.add(Problem::ChecksumItem, leaf.place(slot), message);
                continue;
            };
            found.ranges.push((key.offset, end, slot));
            found.keys.push(key);
            if self.read_data {
                self.verify(key.offset, end, data, &mut found.bad);
            }
        }
        found
    }

    fn verify(&self, start: u64, end: u64, sums: &[u8], bad: &mut Vec<BadSector>) {
        let (size, sector) = (self.reader.checksum.size(), self.reader.sector_size);
        let mut buffer = PieceBuffer::default();
        let mut at = start;
        while at < end {
            // An item may cross from one chunk into the next.
            let chunk = self.reader.volume.chunk_at(Logical::new(at));
            let inside = chunk.map_or(READ_BYTES, |chunk| chunk.end().get() - at);
            let len = (end - at).min(READ_BYTES).min(inside);
            let from = usize::try_from((at - start) / sector).unwrap_or(usize::MAX) * size;
            let buffer = buffer.of(usize::try_from(len).unwrap_or(usize::MAX));
            bad.extend(self.reader.verify_data(Logical::new(at), &sums[from..], buffer));
            at += len;
            let done = self.verified.fetch_add(len, Ordering::Relaxed) + len;
            self.progress.data_bytes(done);
        }
    }
}

/// Joins the ranges and compares them with the data extents.
pub(crate) struct SumsSequence<'a> {
    pub(crate) reader: &'a Reader<'a>,
    /// All data extents; `None` if the extent tree could not be read completely.
    pub(crate) data: Option<&'a Ranges>,
    /// Data in logs: it may have checksums already, and gets its extent items when the log is replayed.
    pub(crate) logged: &'a Ranges,
    pub(crate) ranges: Ranges,
    pub(crate) bytes: u64,
    pub(crate) end: u64,
    /// Sectors that do not match their checksums, up to the limit of findings; further ones are only counted.
    pub(crate) bad: Vec<BadSector>,
    pub(crate) bad_limit: usize,
}

impl Sequence<SumsOfLeaf> for SumsSequence<'_> {
    fn leaf(&mut self, meta: &Meta, found: SumsOfLeaf) {
        for ((start, end, slot), key) in found.ranges.into_iter().zip(found.keys) {
            let place = || ProblemSite::slot(TreeId::CSUM, meta.logical, slot, key);
            if start < self.end {
                let message = format!("begins at {start}, the one before ends at {}", self.end);
                self.reader.sink.add(Problem::ChecksumOverlap, place(), message);
            }
            self.end = self.end.max(end);
            self.bytes = self.bytes.saturating_add(end - start);
            let logged = |gap: (u64, u64)| self.logged.first_gap(gap.0, gap.1);
            if let Some(gap) = self.data.and_then(|data| data.gaps(start, end).find_map(logged)) {
                let message = format!("[{}, {}) of [{start}, {end})", gap.0, gap.1);
                self.reader.sink.add(Problem::ChecksumStale, place(), message);
            }
            self.ranges.push(start, end);
        }
        for sector in found.bad {
            if self.bad.len() < self.bad_limit {
                self.bad.push(sector);
            } else {
                self.reader.sink.add(sector.problem, ProblemSite::default(), sector.why);
            }
        }
    }
}
