//! Giving chunks back.

use std::sync::atomic::Ordering;

use creamery_base::{Generation, Logical, Result};
use creamery_tree::CowHost;

use super::ChunkAllocator;
use super::queues::DeviceExtent;
use super::record::{chunk_key, device_extent_key};
use crate::space_info::Space;

impl ChunkAllocator {
    /// Makes the next commit remove empty groups, even when there is nothing else to commit.
    pub(crate) fn want_removal(&self) {
        self.state.lock().removal_wanted = true;
    }

    /// Takes the request for removal: the commit looks for empty groups.
    pub(crate) fn begin_removal(&self) {
        self.state.lock().removal_wanted = false;
    }

    /// Whether the chunk tree has room for removing one more chunk.
    pub(crate) fn may_remove(&self, space: &Space) -> bool {
        self.has_system_room(space, &self.state.lock())
    }

    /// Whether the chunk at `start` waits for its items.
    pub(crate) fn is_pending(&self, start: Logical) -> bool {
        self.state.lock().pending.contains(start)
    }

    /// Removes the chunk at `start`, whose group is gone. Its device extents are given back after the commit.
    ///
    /// # Errors
    /// Those of the trees. The caller aborts.
    pub(crate) fn remove(&self, host: &dyn CowHost, start: Logical) -> Result<()> {
        let chunk = self.volume.chunk_at(start).expect("a group has its chunk");
        self.chunk_tree.remove(host, &chunk_key(&chunk))?;
        for stripe in &chunk.stripes {
            self.dev_tree.remove(host, &device_extent_key(stripe.dev, stripe.offset))?;
        }
        let generation = host.generation();
        let mut state = self.state.lock();
        for stripe in &chunk.stripes {
            let device = state.devices.iter().position(|device| device.dev == stripe.dev);
            let device = device.expect("a chunk's device is there");
            let len = chunk.stripe_bytes();
            state.leaving.push(generation, DeviceExtent { device, start: stripe.offset, len });
        }
        drop(state);
        self.volume.remove_chunk(start);
        self.removed.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Makes the device extents of chunks that transaction `durable` removed available again, since it is durable (CHUNK-3).
    pub(crate) fn release_device_extents(&self, durable: Generation) {
        let mut state = self.state.lock();
        for DeviceExtent { device, start, .. } in state.leaving.take(durable) {
            state.devices[device].give_back(start);
        }
        self.recount_unallocated(&state);
    }
}
