//! The checksums of a range of addresses: read forward only.

use std::ops::Range;

use creamery_base::{Logical, ObjectId, Result, Wait};
use creamery_format::{Key, KeyType};
use creamery_tree::{CommitCursor, Walk};
use creamery_txn::DurableTrees;

use super::searches::Trees;

/// Goes over the checksums from an address on.
pub(super) struct SumWalk<'t> {
    cursor: CommitCursor<'t>,
    /// Bytes of a checksum, and of a sector.
    size: u64,
    sector: u64,
}

impl<'t> SumWalk<'t> {
    /// Begins at `start`; `None` if the group has no data. Errors: device errors; damage.
    pub(super) fn new(durable: &DurableTrees<'_>, trees: &Trees<'t>, start: Logical) -> Result<Option<Self>> {
        let Some(tree) = trees.sums else { return Ok(None) };
        let superblock = durable.superblock();
        let (size, sector) = (superblock.checksum_type().size() as u64, u64::from(superblock.sector_size()));
        // An item may begin before the range, by as much as one item can cover.
        let reach = u64::from(superblock.node_size()) / size * sector;
        let first = Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, start.get().saturating_sub(reach));
        trees.searches.count_of_sums();
        let cursor = durable.cursor(tree, &first, Walk::new(Wait::Yes, trees.ahead))?;
        Ok(Some(Self { cursor, size, sector }))
    }

    /// Bytes of a sector.
    pub(super) const fn sector(&self) -> u64 {
        self.sector
    }

    /// Appends the checksums of whole sectors from `from` to `to` to `sums`. Calls `each` for each run: its sectors, and the place in
    /// `sums` of their checksums, if they have any.
    /// Errors: device errors; damage.
    pub(super) fn read(
        &mut self,
        (from, to): (Logical, Logical),
        sums: &mut Vec<u8>,
        mut each: impl FnMut(Logical, u64, Option<Range<usize>>),
    ) -> Result<()> {
        let (size, sector) = (self.size, self.sector);
        let mut at = from;
        while at < to {
            let Some((start, bytes)) = self.item_ending_behind(at)? else {
                each(at, (to.get() - at.get()) / sector, None);
                break;
            };
            if start >= to {
                each(at, (to.get() - at.get()) / sector, None);
                break;
            }
            if start > at {
                each(at, (start.get() - at.get()) / sector, None);
                at = start;
            }
            let first = (at.get() - start.get()) / sector;
            let count = ((to.get() - at.get()) / sector).min(bytes.len() as u64 / size - first);
            let range = index(first * size)..index((first + count) * size);
            let place = sums.len()..sums.len() + range.len();
            sums.extend_from_slice(&bytes[range]);
            each(at, count, Some(place));
            at = at + count * sector;
        }
        Ok(())
    }

    /// The first item with a checksum for a sector at or behind `at`.
    fn item_ending_behind(&mut self, at: Logical) -> Result<Option<(Logical, &[u8])>> {
        let (size, sector) = (self.size, self.sector);
        let ends_behind = |key: &Key, data: &[u8]| {
            let covered = (data.len() as u64 / size) * sector;
            key.kind == KeyType::EXTENT_CSUM
                && key.offset.is_multiple_of(sector)
                && key.offset.saturating_add(covered) > at.get()
        };
        while let Some((key, data)) = self.cursor.item() {
            if key.objectid != ObjectId::EXTENT_CSUM || ends_behind(&key, data) {
                break;
            }
            self.cursor.advance()?;
        }
        let item = self.cursor.item().filter(|(key, _)| key.objectid == ObjectId::EXTENT_CSUM);
        Ok(item.map(|(key, data)| (Logical::new(key.offset), data)))
    }
}

/// A number as an index: it counts something in memory.
pub(super) fn index(number: u64) -> usize {
    usize::try_from(number).expect("it is in memory")
}
