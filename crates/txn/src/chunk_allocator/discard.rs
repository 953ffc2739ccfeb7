//! Discarding the unallocated space of devices.

use creamery_base::{Physical, Result};
use creamery_format::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS};
use creamery_volume::DeviceRange;

use super::ChunkAllocator;

/// Most bytes discarded at once: a thread that wants a chunk waits for that long.
const AT_ONCE: u64 = 1 << 30;

impl ChunkAllocator {
    /// Discards all unallocated places of at least `min` bytes. Returns their bytes, and the bytes that the devices discarded.
    ///
    /// # Errors
    /// Those of the devices.
    pub(crate) fn discard_unallocated(&self, min: u64) -> Result<(u64, u64)> {
        let (mut found, mut told) = (0, 0);
        let devices = self.state.lock().devices.len();
        for index in 0..devices {
            // Up to `until`, the rest of a hole is long enough together with the part discarded before.
            let (mut from, mut until) = (0, 0);
            loop {
                // With the lock held no thread makes a chunk of it.
                let state = self.state.lock();
                let device = &state.devices[index];
                let Some((start, len)) = device.first_hole(from) else { break };
                let mut parts = beside_superblocks(start, len);
                let Some((offset, len)) = parts.find(|(at, len)| *len >= min || at + len <= until) else {
                    from = start + len;
                    continue;
                };
                (until, from) = (offset + len, offset + len.min(AT_ONCE));
                let piece = DeviceRange { at: Physical { dev: device.dev, offset }, len: from - offset };
                found += piece.len;
                told += self.volume.discard_piece(&piece)?;
            }
        }
        Ok((found, told))
    }
}

/// The parts of a range that hold no copy of the superblock.
fn beside_superblocks(start: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = start + len;
    let copies = SUPERBLOCK_OFFSETS.map(|at| (at, at + SUPERBLOCK_LEN as u64));
    let starts = std::iter::once(start).chain(copies.map(|(_, behind)| behind));
    let ends = copies.map(|(at, _)| at).into_iter().chain([u64::MAX]);
    starts.zip(ends).filter_map(move |(from, to)| {
        let (from, to) = (from.max(start), to.min(end));
        (from < to).then(|| (from, to - from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn copies_of_the_superblock_are_left_out() {
        let parts = |start, len| beside_superblocks(start, len).collect::<Vec<_>>();
        assert_eq!(parts(MIB, 10), [(MIB, 10)]);
        assert_eq!(parts(64 * MIB, 4096), []);
        assert_eq!(parts(64 * MIB - 1, 4098), [(64 * MIB - 1, 1), (64 * MIB + 4096, 1)]);
        assert_eq!(parts(MIB, 128 * MIB), [(MIB, 63 * MIB), (64 * MIB + 4096, 65 * MIB - 4096)]);
    }
}
