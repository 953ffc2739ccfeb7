//! Queues for the commit: chunks to record, and device extents to reuse.

use std::sync::Arc;

use creamery_base::{Generation, Logical};
use creamery_volume::Chunk;

/// Chunks whose items are still to be written, each with the transaction that made it.
#[derive(Default)]
pub(super) struct Pending(Vec<(Generation, Arc<Chunk>)>);

impl Pending {
    pub(super) fn push(&mut self, made_in: Generation, chunk: Chunk) {
        self.0.push((made_in, Arc::new(chunk)));
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, start: Logical) -> bool {
        self.0.iter().any(|(_, chunk)| chunk.start == start)
    }

    /// Takes all chunks, to be written in transaction `generation`.
    pub(super) fn take(&mut self, generation: Generation) -> Vec<Arc<Chunk>> {
        let of_this = |(made_in, chunk): (Generation, Arc<Chunk>)| {
            assert_eq!(
                made_in, generation,
                "CHUNK-1: chunk {} was made behind its commit's back",
                chunk.start
            );
            chunk
        };
        std::mem::take(&mut self.0).into_iter().map(of_this).collect()
    }
}

/// A device extent of a chunk that was removed.
pub(super) struct DeviceExtent {
    pub(super) device: usize,
    pub(super) start: u64,
    pub(super) len: u64,
}

/// Device extents that can be used again once a transaction is durable.
#[derive(Default)]
pub(super) struct Leaving(Vec<(Generation, DeviceExtent)>);

impl Leaving {
    pub(super) fn push(&mut self, removed_in: Generation, extent: DeviceExtent) {
        self.0.push((removed_in, extent));
    }

    /// Bytes of the extents on one device.
    pub(super) fn bytes(&self, device: usize) -> u64 {
        self.0.iter().filter(|(_, extent)| extent.device == device).map(|(_, extent)| extent.len).sum()
    }

    /// Takes the extents that can be reused after transaction `durable` is durable.
    pub(super) fn take(&mut self, durable: Generation) -> Vec<DeviceExtent> {
        let of_this = |(removed_in, extent): (Generation, DeviceExtent)| {
            let start = extent.start;
            assert!(
                removed_in <= durable,
                "CHUNK-3: device extent {start} goes with transaction {removed_in}, and {durable} is the last durable one"
            );
            extent
        };
        std::mem::take(&mut self.0).into_iter().map(of_this).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use creamery_base::{DevId, Uuid};
    use creamery_format::BlockGroupFlags;
    use creamery_volume::Stripe;

    const NOW: Generation = Generation::new(7);
    const NEXT: Generation = Generation::new(8);

    fn pending() -> Pending {
        let stripe = Stripe { dev: DevId::new(1), offset: 1 << 20, dev_uuid: Uuid::nil() };
        let mut pending = Pending::default();
        let flags = BlockGroupFlags::DATA;
        pending.push(NOW, Chunk::new(Logical::new(1 << 20), 1 << 20, flags, 4096, vec![stripe]));
        pending
    }

    fn leaving() -> Leaving {
        let mut leaving = Leaving::default();
        leaving.push(NEXT, DeviceExtent { device: 0, start: 1 << 20, len: 4096 });
        leaving
    }

    #[test]
    fn chunks_wait_for_the_commit_of_their_transaction() {
        let mut pending = pending();
        assert!(pending.contains(Logical::new(1 << 20)) && !pending.contains(Logical::new(0)));
        assert_eq!(pending.take(NOW).len(), 1);
        assert_eq!(pending.len(), 0);
    }

    #[test]
    #[should_panic(expected = "CHUNK-1")]
    fn a_chunk_that_its_commit_has_missed_is_a_bug() {
        pending().take(NEXT);
    }

    #[test]
    fn device_extents_wait_until_their_commit_is_durable() {
        let mut leaving = leaving();
        assert_eq!((leaving.bytes(0), leaving.bytes(1)), (4096, 0));
        assert_eq!(leaving.take(NEXT).len(), 1);
        assert_eq!(leaving.bytes(0), 0);
    }

    #[test]
    #[should_panic(expected = "CHUNK-3")]
    fn a_device_extent_that_is_used_again_too_early_is_a_bug() {
        leaving().take(NOW);
    }
}
