//! Reading the devices and their extents.

use std::collections::HashSet;

use creamery_base::{DevId, Error, ErrorKind, ObjectId, Result, Uuid, Wait};
use creamery_format::{Key, KeyType, RawDevExtent, RawDevItem};
use creamery_tree::Tree;
use creamery_volume::{Chunk, Volume};
use zerocopy::FromBytes;

use super::{ChunkAllocator, DeviceSpace};

/// Reads the list of devices, and checks the given devices against it.
pub(crate) fn read_devices(volume: &Volume, chunk_tree: &Tree) -> Result<Vec<DeviceSpace>> {
    let mut devices = Vec::new();
    let first = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, 0);
    let mut cursor = chunk_tree.cursor(&first, Wait::Yes)?;
    while let Some((key, data)) = cursor.item() {
        if key.objectid != ObjectId::DEV_ITEMS || key.kind != KeyType::DEV_ITEM {
            break;
        }
        let item = RawDevItem::read_from_bytes(data)
            .map_err(|_| Error::new(ErrorKind::Corrupt, format!("device item {key} has a wrong size")))?;
        let (dev, total) = (item.dev_id(), item.total_bytes.get());
        let damaged =
            |what: String| Err(Error::new(ErrorKind::Corrupt, format!("device item {key}: {what}")));
        if let Some(end) = volume.device_end(dev).filter(|end| total > *end) {
            return damaged(format!("expected at most {end} bytes, found {total}"));
        }
        if devices.iter().any(|other: &DeviceSpace| other.dev == dev) {
            return damaged("the device has another one".to_owned());
        }
        devices.push(DeviceSpace::new(dev, Uuid::from_bytes(item.uuid), total));
        cursor.advance()?;
    }
    let listed: Vec<DevId> = devices.iter().map(|device| device.dev).collect();
    let own = volume.superblock().dev_item().dev_id();
    if !listed.contains(&own) {
        let message = format!("the chunk tree has no item of the superblock's device {own}");
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    volume.judge_devices(&listed)?;
    Ok(devices)
}

/// Reads the device extents: the parts of the devices that belong to chunks.
pub(crate) fn read_device_extents(devices: &mut [DeviceSpace], dev_tree: &Tree) -> Result<()> {
    for device in devices {
        let first = Key::new(ObjectId::new(device.dev.get()), KeyType::DEV_EXTENT, 0);
        let mut cursor = dev_tree.cursor(&first, Wait::Yes)?;
        while let Some((key, data)) = cursor.item() {
            if key.objectid.get() != device.dev.get() || key.kind != KeyType::DEV_EXTENT {
                break;
            }
            let extent = RawDevExtent::read_from_bytes(data).ok().map(|extent| extent.length.get());
            let end = extent.and_then(|len| key.offset.checked_add(len));
            let valid = end.is_some_and(|end| end <= device.total)
                && extent.is_some_and(|len| len > 0 && device.take(key.offset, len));
            if !valid {
                let message =
                    format!("device extent {key} is damaged, overlaps another or leaves the device");
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            cursor.advance()?;
        }
    }
    Ok(())
}

/// Marks the stripes of all chunks as taken, where the device tree cannot be read. A stripe that does not fit is left out.
pub(crate) fn claim_chunks(devices: &mut [DeviceSpace], volume: &Volume) {
    for chunk in volume.chunks() {
        for stripe in &chunk.stripes {
            let Some(device) = devices.iter_mut().find(|device| device.dev == stripe.dev) else { continue };
            let end = stripe.offset.checked_add(chunk.stripe_bytes());
            if end.is_some_and(|end| end <= device.total) {
                device.take(stripe.offset, chunk.stripe_bytes());
            }
        }
    }
}

impl ChunkAllocator {
    /// Checks that every stripe of a chunk has a device extent of its own: writes follow the device tree, reads
    /// the chunk tree.
    pub(crate) fn claim_device_extents(
        &self,
        chunk: &Chunk,
        claimed: &mut HashSet<(DevId, u64)>,
    ) -> Result<()> {
        let state = self.state.lock();
        for stripe in &chunk.stripes {
            let device = state.devices.iter().find(|device| device.dev == stripe.dev);
            let known = device.and_then(|device| device.extent_at(stripe.offset));
            if known != Some(chunk.stripe_bytes()) || !claimed.insert((stripe.dev, stripe.offset)) {
                let message = format!(
                    "chunk {}: its stripe at {} of device {} has no device extent of its own of {} bytes",
                    chunk.start,
                    stripe.offset,
                    stripe.dev,
                    chunk.stripe_bytes()
                );
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        }
        Ok(())
    }

    /// Checks that every device extent belongs to a chunk: Linux does not mount a filesystem where one belongs to none.
    /// Errors: one is not among the `claimed` ones.
    pub(crate) fn check_claimed(&self, claimed: &HashSet<(DevId, u64)>) -> Result<()> {
        let state = self.state.lock();
        for device in &state.devices {
            if let Some(at) = device.extents().find(|at| !claimed.contains(&(device.dev, *at))) {
                let what = format!("the device extent at {at} of device {} belongs to no chunk", device.dev);
                return Err(Error::new(ErrorKind::Corrupt, format!("{what}; open it read-only")));
            }
        }
        Ok(())
    }
}
