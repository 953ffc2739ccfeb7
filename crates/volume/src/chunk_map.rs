//! The chunks by logical address. Every block read looks a chunk up, but changes are rare: the table is
//! immutable and is replaced as a whole.
//!
//! The table has pages, and a new table shares the unchanged pages with the old one: there may be a hundred thousand chunks,
//! and a device fills with one after the other.

use std::sync::Arc;

use arc_swap::ArcSwap;
use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Logical, Result, memory};

use crate::{Chunk, Stripe};

/// The largest number of chunks in a page.
const PAGE: usize = 512;

/// Chunks sorted by address, none overlapping (VOL-4).
#[derive(Default)]
pub(crate) struct ChunkMap {
    table: ArcSwap<Table>,
    /// Held while the table is replaced.
    changing: RankedMutex<(), { rank::LEAF }>,
}

/// Pages in order of address, none of them empty.
#[derive(Clone, Default)]
struct Table(Vec<Arc<Vec<Arc<Chunk>>>>);

impl Table {
    /// Returns the memory of the table, bytes.
    fn memory(&self) -> u64 {
        let of_chunk =
            |chunk: &Arc<Chunk>| memory::shared::<Chunk>() + memory::vec::<Stripe>(chunk.stripes.capacity());
        let of_page = |page: &Arc<Vec<Arc<Chunk>>>| {
            let chunks: u64 = page.iter().map(of_chunk).sum();
            memory::shared::<Vec<Arc<Chunk>>>() + memory::vec::<Arc<Chunk>>(page.capacity()) + chunks
        };
        memory::vec::<Arc<Vec<Arc<Chunk>>>>(self.0.capacity()) + self.0.iter().map(of_page).sum::<u64>()
    }

    /// Returns the page for a chunk that begins at `at`, and its place there.
    fn place(&self, at: Logical) -> (usize, usize) {
        let page = self.0.partition_point(|page| page[0].start <= at).saturating_sub(1);
        (page, self.0.get(page).map_or(0, |page| page.partition_point(|chunk| chunk.start <= at)))
    }

    /// Returns the last chunk that begins at `at` or before.
    fn at_or_before(&self, at: Logical) -> Option<&Arc<Chunk>> {
        let (page, behind) = self.place(at);
        self.0.get(page)?.get(behind.checked_sub(1)?)
    }

    /// Returns the first chunk that begins behind `at`.
    fn behind(&self, at: Logical) -> Option<&Arc<Chunk>> {
        let (page, place) = self.place(at);
        self.0.get(page)?.get(place).or_else(|| self.0.get(page + 1)?.first())
    }

    /// Adds a chunk, unless an equal one is there.
    fn insert(&mut self, chunk: Chunk) -> Result<()> {
        let before = self.at_or_before(chunk.start);
        if before.is_some_and(|before| before.is_as(&chunk)) {
            return Ok(());
        }
        if let Some(before) = before.filter(|before| chunk.start < before.end()) {
            return Err(overlap(before, &chunk));
        }
        if let Some(behind) = self.behind(chunk.start).filter(|behind| behind.start < chunk.end()) {
            return Err(overlap(&chunk, behind));
        }
        let (number, place) = self.place(chunk.start);
        if self.0.is_empty() {
            self.0.push(Arc::default());
        }
        let page = Arc::make_mut(&mut self.0[number]);
        page.insert(place, Arc::new(chunk));
        if page.len() > PAGE {
            // Chunks mostly come in order: the pages before stay full.
            let rest = page.split_off(if place == PAGE { PAGE } else { PAGE / 2 });
            self.0.insert(number + 1, Arc::new(rest));
        }
        Ok(())
    }

    fn remove(&mut self, start: Logical) -> Option<Arc<Chunk>> {
        self.at_or_before(start).filter(|chunk| chunk.start == start)?;
        let (number, behind) = self.place(start);
        let page = Arc::make_mut(&mut self.0[number]);
        let removed = page.remove(behind - 1);
        if page.is_empty() {
            self.0.remove(number);
        }
        Some(removed)
    }
}

fn overlap(first: &Chunk, second: &Chunk) -> Error {
    let what = format!(
        "corrupt chunk map: chunk [{}, {}) overlaps chunk [{}, {})",
        second.start,
        second.end(),
        first.start,
        first.end()
    );
    Error::new(ErrorKind::Corrupt, what)
}

impl ChunkMap {
    /// Returns the chunk that covers `at`.
    pub(crate) fn at(&self, at: Logical) -> Option<Arc<Chunk>> {
        let table = self.table.load();
        let chunk = table.at_or_before(at)?;
        (at < chunk.end()).then(|| Arc::clone(chunk))
    }

    /// Returns all chunks, by address.
    pub(crate) fn all(&self) -> Vec<Arc<Chunk>> {
        self.table.load().0.iter().flat_map(|page| page.iter().cloned()).collect()
    }

    /// Returns the memory of the map, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.table.load().memory()
    }

    /// Returns the chunk at the highest address.
    pub(crate) fn last(&self) -> Option<Arc<Chunk>> {
        self.table.load().0.last().and_then(|page| page.last()).cloned()
    }

    /// Adds chunks, all of them or none. An equal chunk that is already there is no error: system chunks come from the
    /// superblock and again from the chunk tree.
    pub(crate) fn push(&self, chunks: impl IntoIterator<Item = Chunk>) -> Result<()> {
        let _changing = self.changing.lock();
        let mut table = self.table.load().as_ref().clone();
        chunks.into_iter().try_for_each(|chunk| table.insert(chunk))?;
        self.table.store(Arc::new(table));
        Ok(())
    }

    /// Removes the chunk that begins at `start`, and returns it.
    pub(crate) fn remove(&self, start: Logical) -> Option<Arc<Chunk>> {
        let _changing = self.changing.lock();
        let mut table = self.table.load().as_ref().clone();
        let removed = table.remove(start)?;
        self.table.store(Arc::new(table));
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use creamery_base::{DevId, Uuid};
    use creamery_format::BlockGroupFlags;

    use crate::Stripe;

    const MIB: u64 = 1 << 20;

    fn chunk(start: u64, len: u64) -> Chunk {
        let stripe = Stripe { dev: DevId::new(1), offset: start, dev_uuid: Uuid::nil() };
        Chunk::new(Logical::new(start), len, BlockGroupFlags::DATA, 4096, vec![stripe])
    }

    fn starts(map: &ChunkMap) -> Vec<u64> {
        map.all().iter().map(|chunk| chunk.start.get() / MIB).collect()
    }

    #[test]
    fn many_chunks_are_found_in_whatever_order_they_come_and_go() {
        const CHUNKS: u64 = 3_000;
        let map = ChunkMap::default();
        let shuffled = (0..CHUNKS).map(|number| number * 1_009 % CHUNKS);
        for number in shuffled {
            map.push([chunk(2 * number * MIB, MIB)]).expect("no overlap");
        }
        assert_eq!(starts(&map), (0..CHUNKS).map(|number| 2 * number).collect::<Vec<_>>());
        for number in 0..CHUNKS {
            let start = Logical::new(2 * number * MIB);
            assert_eq!(map.at(start + (MIB - 1)).expect("covered").start, start);
            assert!(map.at(start + MIB).is_none());
            assert!(map.push([chunk(start.get() + MIB / 2, MIB)]).is_err());
            assert!(map.push([chunk(start.get() + MIB, 2 * MIB)]).is_err() || number + 1 == CHUNKS);
            if number % 3 > 0 {
                assert_eq!(map.remove(start).expect("it is there").start, start);
                assert!(map.remove(start).is_none() && map.remove(start + 1).is_none());
            }
        }
        map.remove(Logical::new(2 * (CHUNKS - 1) * MIB + MIB));
        assert_eq!(starts(&map), (0..CHUNKS).step_by(3).map(|number| 2 * number).collect::<Vec<_>>());
    }

    #[test]
    fn all_chunks_are_added_or_none() {
        let map = ChunkMap::default();
        map.push([chunk(0, MIB), chunk(8 * MIB, MIB)]).expect("no overlap");
        map.push([chunk(0, MIB)]).expect("the same once more");
        for wrong in [chunk(0, 2 * MIB), chunk(7 * MIB, 2 * MIB), chunk(MIB / 2, MIB / 2)] {
            assert!(map.push([chunk(4 * MIB, MIB), wrong]).is_err());
            assert_eq!(starts(&map), [0, 8]);
        }
        assert_eq!(map.last().expect("two").start, Logical::new(8 * MIB));
    }
}
