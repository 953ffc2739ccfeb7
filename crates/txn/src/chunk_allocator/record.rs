//! Writing the items of chunks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use creamery_base::{DevId, Error, ErrorKind, Generation, ObjectId, Result, TreeId, Wait};
use creamery_format::{BlockGroupFlags, Key, KeyType, RawDevExtent, RawDevItem};
use creamery_tree::CowHost;
use creamery_volume::Chunk;
use zerocopy::{FromBytes, IntoBytes};

use super::{ChunkAllocator, DeviceSpace};
use crate::commit::NextSuperblock;

pub(super) fn chunk_key(chunk: &Chunk) -> Key {
    Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, chunk.start.get())
}

pub(super) fn device_extent_key(dev: DevId, offset: u64) -> Key {
    Key::new(ObjectId::new(dev.get()), KeyType::DEV_EXTENT, offset)
}

pub(super) fn device_item_key(dev: DevId) -> Key {
    Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, dev.get())
}

pub(super) fn damaged(key: &Key) -> Error {
    Error::new(ErrorKind::Corrupt, format!("device item {key} is missing or damaged"))
}

impl ChunkAllocator {
    /// Whether chunks wait for their items, or a thread waits for groups to be removed.
    pub(crate) fn has_work(&self) -> bool {
        let state = self.state.lock();
        state.pending.len() > 0 || state.removal_wanted
    }

    /// Takes the chunks whose items are to be written in transaction `generation`.
    pub(crate) fn take_pending(&self, generation: Generation) -> Vec<Arc<Chunk>> {
        let mut state = self.state.lock();
        let pending = state.pending.take(generation);
        state.recording += pending.len() as u64;
        // With the lock: other threads make chunks beside a step that records them.
        self.pending.store(0, Ordering::Release);
        pending
    }

    /// Notes that all [taken](Self::take_pending) chunks are recorded.
    pub(crate) fn recorded(&self) {
        self.state.lock().recording = 0;
    }

    /// Writes a chunk's item and those of its device extents.
    ///
    /// # Errors
    /// No space in the superblock's array of system chunks; those of the trees. The caller aborts.
    pub(crate) fn record(
        &self,
        host: &dyn CowHost,
        chunk: &Chunk,
        superblock: &NextSuperblock,
    ) -> Result<()> {
        let (key, item) = (chunk_key(chunk), chunk.to_item());
        self.chunk_tree.insert(host, &key, &item)?;
        if chunk.flags.contains(BlockGroupFlags::SYSTEM) && !superblock.push_system_chunk(&key, &item) {
            let message = format!("no room for chunk {} in the superblock's system chunk array", chunk.start);
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        for stripe in &chunk.stripes {
            let extent = RawDevExtent {
                chunk_tree: TreeId::CHUNK.get().into(),
                chunk_objectid: ObjectId::FIRST_CHUNK_TREE.get().into(),
                chunk_offset: chunk.start.get().into(),
                length: chunk.stripe_bytes().into(),
                chunk_tree_uuid: self.chunk_tree.store().chunk_tree_uuid().into_bytes(),
            };
            self.dev_tree.insert(host, &device_extent_key(stripe.dev, stripe.offset), extent.as_bytes())?;
        }
        Ok(())
    }

    /// Writes the bytes in chunks of each device into the device items.
    ///
    /// # Errors
    /// Damage; those of the tree.
    pub(crate) fn record_device_use(&self, host: &dyn CowHost) -> Result<()> {
        let used: Vec<_> = {
            let state = self.state.lock();
            let used_bytes = |(index, device): (usize, &DeviceSpace)| {
                (device.dev, device.used_bytes() - state.leaving.bytes(index))
            };
            state.devices.iter().enumerate().map(used_bytes).collect()
        };
        for (dev, used) in used {
            let key = device_item_key(dev);
            let updated = self.chunk_tree.update(host, &key, |data| {
                RawDevItem::mut_from_bytes(data).map(|item| item.bytes_used = used.into()).is_ok()
            })?;
            if updated != Some(true) {
                return Err(damaged(&key));
            }
        }
        Ok(())
    }

    /// The chunk tree's item of a device.
    ///
    /// # Errors
    /// Damage; those of the tree.
    pub(crate) fn recorded_device(&self, dev: DevId) -> Result<RawDevItem> {
        let key = device_item_key(dev);
        let item = self.chunk_tree.get(&key, Wait::Yes, |data| RawDevItem::read_from_bytes(data).ok())?;
        item.flatten().ok_or_else(|| damaged(&key))
    }
}
