//! Tree blocks that no way gives as a whole, because some of each cannot be read: sector by sector.
//!
//! Each way is taken once more, and what it does not give of the block comes from the first other way that can be read there. What is wrong in one column, and
//! cannot be read in another, is so brought back, as long as each sector has something good. The block's checksum says whether it is.

use creamery_base::Logical;
use creamery_device::AlignedBuffer;
use creamery_format::Expected;

use super::Way;
use crate::index::index;
use crate::volume::Volume;

/// Sectors of a block, each by the first way that can be read; asked for when one is needed.
struct Others<'v> {
    volume: &'v Volume,
    at: Logical,
    read: Vec<Option<Option<AlignedBuffer>>>,
}

impl Others<'_> {
    /// A sector, if it can be read at all.
    fn sector(&mut self, number: usize) -> Option<&AlignedBuffer> {
        let (volume, sector) = (self.volume, self.volume.sector_size());
        let at = self.at + number as u64 * u64::from(sector);
        let read = || {
            let mut out = AlignedBuffer::zeroed(index(sector));
            let mut ways = volume.ways(at, sector.into()).ok()?;
            ways.any(|way| volume.read_way(&way, at, &mut out).is_ok()).then_some(out)
        };
        self.read[number].get_or_insert_with(read).as_ref()
    }
}

impl Volume {
    /// Fills `block`, which begins at `at`, from one of these ways, with sectors of others where that cannot be read. Whether it is what is wanted.
    pub(super) fn read_by_sector(&self, ways: &[&Way], want: &Expected, block: &mut [u8]) -> bool {
        let sector = index(self.sector_size());
        let read = vec![None; block.len() / sector];
        let mut others = Others { volume: self, at: want.logical, read };
        let mut fills = |way: &Way| {
            let is_read = block.chunks_exact_mut(sector).enumerate().all(|(number, out)| {
                let from = (number * sector) as u64;
                let part = way.part(from, sector as u64);
                if self.read_way(&part, want.logical + from, out).is_ok() {
                    return true;
                }
                others.sector(number).map(|other| out.copy_from_slice(other)).is_some()
            });
            is_read && self.verify_read(block, want).is_ok()
        };
        ways.iter().any(|way| fills(way))
    }
}
