//! The chunks by logical address. Looking up is on the path of every block read, changing is rare: the table is
//! immutable and is replaced as a whole.

use std::sync::Arc;

use arc_swap::ArcSwap;
use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Logical, Result};

use crate::Chunk;

/// Chunks sorted by address, none overlapping (VOL-4).
#[derive(Default)]
pub(crate) struct ChunkMap {
    table: ArcSwap<Vec<Arc<Chunk>>>,
    /// Held while the table is replaced.
    changing: RankedMutex<(), { rank::LEAF }>,
}

impl ChunkMap {
    /// The chunk that covers `at`.
    pub(crate) fn at(&self, at: Logical) -> Option<Arc<Chunk>> {
        let table = self.table.load();
        let after = table.partition_point(|chunk| chunk.start <= at);
        let chunk = table.get(after.checked_sub(1)?)?;
        (at < chunk.end()).then(|| Arc::clone(chunk))
    }

    /// All chunks, by address.
    pub(crate) fn all(&self) -> Vec<Arc<Chunk>> {
        self.table.load().as_ref().clone()
    }

    /// Adds chunks. One that is already there, equal in all fields, is no error: system chunks come from the
    /// superblock and again from the chunk tree.
    pub(crate) fn push(&self, chunks: impl IntoIterator<Item = Chunk>) -> Result<()> {
        let _changing = self.changing.lock();
        let mut table = self.table.load().as_ref().clone();
        let known = table.len();
        for chunk in chunks {
            let place = table[..known].binary_search_by_key(&chunk.start, |known| known.start);
            match place {
                Ok(same) if *table[same] == chunk => {}
                _ => table.push(Arc::new(chunk)),
            }
        }
        table.sort_by_key(|chunk| chunk.start); // stable, and nearly sorted already
        table.dedup();
        for pair in table.windows(2) {
            let (first, second) = (&pair[0], &pair[1]);
            if second.start < first.end() {
                let what = format!(
                    "corrupt chunk map: chunk [{}, {}) overlaps chunk [{}, {})",
                    second.start,
                    second.end(),
                    first.start,
                    first.end()
                );
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
        }
        self.table.store(Arc::new(table));
        Ok(())
    }

    /// Takes out the chunk that begins at `start`.
    pub(crate) fn remove(&self, start: Logical) -> Option<Arc<Chunk>> {
        let _changing = self.changing.lock();
        let mut table = self.table.load().as_ref().clone();
        let index = table.binary_search_by_key(&start, |chunk| chunk.start).ok()?;
        let removed = table.remove(index);
        self.table.store(Arc::new(table));
        Some(removed)
    }
}
