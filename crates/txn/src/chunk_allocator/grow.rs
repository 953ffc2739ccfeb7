//! Devices that become larger: their new part is a place for chunks.

use creamery_base::{DevId, Error, ErrorKind, Result};
use creamery_format::RawDevItem;
use zerocopy::FromBytes;

use super::ChunkAllocator;
use super::record::{damaged, device_item_key};
use crate::handle::Handle;

impl ChunkAllocator {
    /// Makes a device `total` bytes long, in its item with the handle's transaction. Chunks may lie in the new part from now
    /// on: they are of that transaction or of a later one. Returns by how many bytes it grew; 0 where it is as long already.
    ///
    /// # Errors
    /// Not found; damage; those of the tree. The caller aborts.
    pub(crate) fn grow_device(&self, handle: &Handle<'_>, dev: DevId, total: u64) -> Result<u64> {
        let more = {
            let mut state = self.state.lock();
            let device = state.devices.iter_mut().find(|device| device.dev == dev);
            let device = device.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("device {dev}")))?;
            let more = device.grow(total);
            self.recount_unallocated(&state);
            more
        };
        let key = device_item_key(dev);
        let updated = self.chunk_tree.update(handle, &key, |data| {
            // Of two concurrent calls the greater length counts, in any order.
            let longer = |item: &mut RawDevItem| item.total_bytes = item.total_bytes.get().max(total).into();
            RawDevItem::mut_from_bytes(data).map(longer).is_ok()
        })?;
        if updated == Some(true) { Ok(more) } else { Err(damaged(&key)) }
    }
}
