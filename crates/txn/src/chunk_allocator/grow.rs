//! Devices that become larger: what is new of them is a place for chunks.

use creamery_base::{DevId, Error, ErrorKind, Result};
use creamery_format::RawDevItem;
use zerocopy::FromBytes;

use super::ChunkAllocator;
use super::record::{damaged, device_item_key};
use crate::handle::Handle;

impl ChunkAllocator {
    /// Has a device be `total` bytes long, as its item says with the handle's transaction. Chunks may lie in what is new from now
    /// on: they are of that transaction or of a later one. Gives by how many bytes it grew; none where it is as long already.
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
            // Of two that make it longer beside each other the longer one counts, whoever comes last.
            let longer = |item: &mut RawDevItem| item.total_bytes = item.total_bytes.get().max(total).into();
            RawDevItem::mut_from_bytes(data).map(longer).is_ok()
        })?;
        if updated == Some(true) { Ok(more) } else { Err(damaged(&key)) }
    }
}
