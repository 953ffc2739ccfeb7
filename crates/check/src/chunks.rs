//! Compares chunks, devices and block groups with each other, and all of them with the superblock.
//!
//! The chunk tree maps logical addresses to devices, and the device tree has the same map from the devices' side. The superblock repeats
//! the system chunks and its own device, and block groups repeat the chunks. All of these are few, so they are held in memory.

use std::collections::{BTreeMap, HashMap};

use creamery_base::{DevId, Logical, ObjectId, TreeId, Uuid};
use creamery_format::{
    BlockGroupFlags, BlockRef, Key, KeyType, RawDevExtent, RawDevItem, STRIPE_LEN, SUPERBLOCK_OFFSETS,
};
use creamery_volume::{Chunk, Volume};
use zerocopy::FromBytes;

use crate::block_groups::BlockGroup;
use crate::features::Features;
use crate::problem::Problem;
use crate::report::{ProblemSite, Sink};
use crate::walk::{Meta, Sequence};

/// All chunks by address, with the used bytes of each.
#[derive(Default)]
pub(crate) struct ChunkTable {
    chunks: Vec<Chunk>,
    used: Vec<u64>,
}

impl ChunkTable {
    /// Counts a range as used. Returns the kind of its chunk, or `None` if no chunk contains the whole range.
    pub(crate) fn use_range(&mut self, start: u64, len: u64) -> Option<BlockGroupFlags> {
        let after = self.chunks.partition_point(|chunk| chunk.start.get() <= start);
        let index = after.checked_sub(1)?;
        let chunk = &self.chunks[index];
        let inside = start - chunk.start.get();
        if inside.checked_add(len)? > chunk.len {
            return None;
        }
        self.used[index] = self.used[index].saturating_add(len);
        Some(chunk.flags)
    }

    fn at(&self, start: u64) -> Option<(&Chunk, u64)> {
        let index = self.chunks.binary_search_by_key(&start, |chunk| chunk.start.get()).ok()?;
        Some((&self.chunks[index], self.used[index]))
    }

    /// The logical ranges of a chunk that lie over superblock copies, and are therefore never free or used.
    pub(crate) fn superblock_ranges(&self, start: u64) -> Vec<(u64, u64)> {
        let Some((chunk, _)) = self.at(start) else { return Vec::new() };
        let mut ranges = Vec::new();
        let stripe_bytes = chunk.stripe_bytes();
        let columns = chunk.len / stripe_bytes.max(1);
        for (number, stripe) in chunk.stripes.iter().enumerate() {
            let copies = (chunk.stripes.len() as u64 / columns.max(1)).max(1);
            let column = number as u64 / copies;
            for at in SUPERBLOCK_OFFSETS {
                let Some(inside) = at.checked_sub(stripe.offset).filter(|inside| *inside < stripe_bytes)
                else {
                    continue;
                };
                let (row, rest) = (inside / STRIPE_LEN, inside % STRIPE_LEN);
                let from = chunk.start.get() + (row * columns + column) * STRIPE_LEN + rest;
                ranges.push((from, (from + STRIPE_LEN).min(chunk.end().get())));
            }
        }
        ranges.sort_unstable();
        ranges
    }
}

/// The content of the chunk tree.
#[derive(Default)]
pub(crate) struct ChunkTree {
    chunks: BTreeMap<u64, Chunk>,
    devices: BTreeMap<u64, RawDevItem>,
}

/// Reads the leaves of the chunk tree and gives the chunks to the volume.
pub(crate) struct ChunkSequence<'a> {
    pub(crate) sink: &'a Sink,
    pub(crate) volume: &'a Volume,
    pub(crate) found: ChunkTree,
}

impl Sequence<Vec<u8>> for ChunkSequence<'_> {
    fn leaf(&mut self, meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        for slot in 0..leaf.count() {
            let (key, data) = (leaf.key(slot), leaf.data(slot));
            match key.kind {
                KeyType::CHUNK_ITEM if key.objectid == ObjectId::FIRST_CHUNK_TREE => {
                    let start = Logical::new(key.offset);
                    let parsed = Chunk::from_item(start, data, self.volume.sector_size());
                    let pushed = parsed.and_then(|chunk| {
                        self.volume.push_chunk(chunk.clone())?;
                        Ok(chunk)
                    });
                    match pushed {
                        Ok(chunk) => drop(self.found.chunks.insert(key.offset, chunk)),
                        Err(error) => {
                            let place = ProblemSite::slot(TreeId::CHUNK, meta.logical, slot, key);
                            self.sink.add(Problem::ChunkInvalid, place, error.to_string());
                        }
                    }
                }
                // Under another key no reader finds it, and the device counts as missing.
                KeyType::DEV_ITEM if key.objectid == ObjectId::DEV_ITEMS => {
                    if let Ok(item) = RawDevItem::ref_from_bytes(data)
                        && item.devid.get() == key.offset
                    {
                        self.found.devices.insert(item.devid.get(), *item);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Compares the superblock's item of its own device with the chunk tree.
pub(crate) fn compare_device(own: &RawDevItem, item: &RawDevItem, sink: &Sink) {
    let fields = |item: &RawDevItem| (item.total_bytes.get(), item.bytes_used.get(), item.uuid(), item.fsid);
    if fields(own) != fields(item) {
        let of = |item: &RawDevItem| {
            format!("{} bytes, {} used, uuid {}", item.total_bytes, item.bytes_used, item.uuid())
        };
        let message = format!("expected {}, found {}", of(item), of(own));
        sink.add(Problem::SuperblockDevice, ProblemSite::default(), message);
    }
}

impl ChunkTree {
    pub(crate) fn device_ids(&self) -> impl Iterator<Item = DevId> {
        self.devices.keys().copied().map(DevId::new)
    }

    pub(crate) fn table(&self) -> ChunkTable {
        let chunks: Vec<Chunk> = self.chunks.values().cloned().collect();
        ChunkTable { used: vec![0; chunks.len()], chunks }
    }

    /// Notes the features that chunks and devices show.
    pub(crate) fn see_features(&self, features: &Features) {
        for (start, chunk) in &self.chunks {
            let key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, *start);
            features.see_chunk(chunk.flags, || ProblemSite::key(TreeId::CHUNK, key));
        }
    }

    /// Checks that the superblock's array has exactly the system chunks.
    pub(crate) fn compare_superblock(&self, volume: &Volume, sink: &Sink) {
        let superblock = volume.superblock();
        let mut array = HashMap::new();
        for (key, chunk) in superblock.sys_chunks().flatten() {
            let own = self.chunks.get(&key.offset);
            let same = own.is_some_and(|own| {
                own.len == chunk.head.length.get()
                    && own.flags == chunk.flags()
                    && own.stripes.len() == chunk.stripes.len()
                    && own.stripes.iter().zip(chunk.stripes).all(|(own, raw)| {
                        own.dev.get() == raw.devid.get()
                            && own.offset == raw.offset.get()
                            && own.dev_uuid == Uuid::from_bytes(raw.dev_uuid)
                    })
            });
            if !same {
                let message = format!("chunk at logical {}", key.offset);
                sink.add(Problem::SystemChunkExtra, ProblemSite::default(), message);
            }
            array.insert(key.offset, ());
        }
        for chunk in self.chunks.values() {
            let start = chunk.start.get();
            if chunk.flags.contains(BlockGroupFlags::SYSTEM) && !array.contains_key(&start) {
                sink.add(
                    Problem::SystemChunkMissing,
                    ProblemSite::default(),
                    format!("chunk at logical {start}"),
                );
            }
        }
        self.compare_devices(volume, sink);
    }

    /// The devices in the tree.
    pub(crate) const fn devices(&self) -> &BTreeMap<u64, RawDevItem> {
        &self.devices
    }

    fn compare_devices(&self, volume: &Volume, sink: &Sink) {
        let superblock = volume.superblock();
        let number = |problem, found: u64, want: u64| {
            if found != want {
                sink.add(problem, ProblemSite::default(), format!("expected {want}, found {found}"));
            }
        };
        number(Problem::SuperblockDeviceCount, superblock.device_count(), self.devices.len() as u64);
        let total = self.devices.values().fold(0_u64, |sum, item| sum.saturating_add(item.total_bytes.get()));
        let size = match superblock.total_bytes() > total {
            true => Problem::SuperblockTotalBytesAbove,
            false => Problem::SuperblockTotalBytes,
        };
        number(size, superblock.total_bytes(), total);
        let own = superblock.dev_item();
        match self.devices.get(&own.devid.get()) {
            None => {
                let message = format!("device {} is not in the chunk tree", own.devid);
                sink.add(Problem::SuperblockDevice, ProblemSite::default(), message);
            }
            Some(item) => compare_device(own, item, sink),
        }
        for item in self.devices.values() {
            let Some(device) = volume.device(item.dev_id()) else { continue };
            let (found, want) = (device.len(), item.total_bytes.get());
            if found < want {
                let message = format!("device {}, expected {want}, found {found} bytes", item.devid);
                sink.add(Problem::DeviceSize, ProblemSite::default(), message);
            }
        }
    }

    /// Checks that the device tree has exactly the space of the chunks' stripes.
    pub(crate) fn compare_device_tree(&self, mut extents: DeviceExtents, complete: bool, sink: &Sink) {
        extents.judge(&self.devices, sink);
        for chunk in self.chunks.values() {
            for stripe in &chunk.stripes {
                let place = (stripe.dev.get(), stripe.offset);
                let stripe_name =
                    || format!("chunk {} at device {} offset {}", chunk.start, place.0, place.1);
                if !self.devices.contains_key(&stripe.dev.get()) {
                    sink.add(Problem::DeviceMissing, ProblemSite::default(), stripe_name());
                }
                match extents.found.remove(&place) {
                    Some(extent) => {
                        let found = (extent.chunk_offset.get(), extent.length.get());
                        let want = (chunk.start.get(), chunk.stripe_bytes());
                        if found != want {
                            let (a, b) = (found, want);
                            let message = format!(
                                "expected chunk {} and {} bytes, found chunk {} and {} bytes",
                                b.0, b.1, a.0, a.1
                            );
                            sink.add(Problem::DeviceExtentWrong, DeviceExtents::place(place), message);
                        }
                    }
                    None if complete => {
                        sink.add(Problem::DeviceExtentMissing, ProblemSite::tree(TreeId::DEV), stripe_name());
                    }
                    None => {}
                }
            }
        }
        for (place, extent) in extents.found {
            let message = format!("of chunk {}", extent.chunk_offset);
            sink.add(Problem::DeviceExtentExtra, DeviceExtents::place(place), message);
        }
    }

    /// Compares block groups with the chunks, and with the used bytes.
    pub(crate) fn compare_groups(
        &self,
        groups: &[BlockGroup],
        table: &ChunkTable,
        complete: bool,
        sink: &Sink,
    ) {
        let mut with_group: HashMap<u64, ()> = HashMap::new();
        for group in groups {
            let key = Key::new(group.start.into(), KeyType::BLOCK_GROUP_ITEM, group.len);
            let place = ProblemSite::key(group.tree, key);
            let Some((chunk, used)) = table.at(group.start) else {
                sink.add(Problem::BlockGroupExtra, place, String::new());
                continue;
            };
            with_group.insert(group.start, ());
            if (group.len, group.flags) != (chunk.len, chunk.flags) {
                let message = format!(
                    "expected {} bytes for {}, found {} bytes for {}",
                    chunk.len, chunk.flags, group.len, group.flags
                );
                sink.add(Problem::BlockGroupWrong, place.clone(), message);
            }
            if complete && group.used != used {
                sink.add(Problem::BlockGroupUsed, place, format!("expected {used}, found {}", group.used));
            }
        }
        for start in self.chunks.keys().filter(|start| complete && !with_group.contains_key(start)) {
            sink.add(Problem::BlockGroupMissing, ProblemSite::default(), format!("chunk at logical {start}"));
        }
    }
}

/// The device extents, by device and offset.
#[derive(Default)]
pub(crate) struct DeviceExtents {
    found: BTreeMap<(u64, u64), RawDevExtent>,
}

impl Sequence<Vec<u8>> for DeviceExtents {
    fn leaf(&mut self, _meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        for slot in 0..leaf.count() {
            let key = leaf.key(slot);
            if key.kind != KeyType::DEV_EXTENT {
                continue;
            }
            if let Ok(extent) = RawDevExtent::ref_from_bytes(leaf.data(slot)) {
                self.found.insert((key.objectid.get(), key.offset), *extent);
            }
        }
    }
}

impl DeviceExtents {
    fn place((device, offset): (u64, u64)) -> ProblemSite {
        ProblemSite::key(TreeId::DEV, Key::new(device.into(), KeyType::DEV_EXTENT, offset))
    }

    /// Checks that extents do not overlap, lie inside their devices, and add up.
    fn judge(&self, devices: &BTreeMap<u64, RawDevItem>, sink: &Sink) {
        let mut sums: HashMap<u64, u64> = HashMap::new();
        let mut last = (0, 0);
        for (&(device, offset), extent) in &self.found {
            let place = Self::place((device, offset));
            let end = offset.saturating_add(extent.length.get());
            if device == last.0 && offset < last.1 {
                let message = format!("begins at {offset}, the one before ends at {}", last.1);
                sink.add(Problem::DeviceExtentOverlap, place.clone(), message);
            }
            last = (device, end);
            let sum = sums.entry(device).or_default();
            *sum = sum.saturating_add(extent.length.get());
            match devices.get(&device).map(|item| item.total_bytes.get()) {
                Some(total) if end > total => {
                    let message = format!("ends at {end} of {total}");
                    sink.add(Problem::DeviceExtentEnd, place, message);
                }
                Some(_) => {}
                None => {
                    let message = format!("device {}", DevId::new(device));
                    sink.add(Problem::DeviceMissing, place, message);
                }
            }
        }
        for (device, item) in devices {
            let (found, want) = (item.bytes_used.get(), sums.get(device).copied().unwrap_or_default());
            if found != want {
                let key = Key::new(1.into(), KeyType::DEV_ITEM, *device);
                let message = format!("expected {want}, found {found}");
                sink.add(Problem::DeviceBytesUsed, ProblemSite::key(TreeId::CHUNK, key), message);
            }
        }
    }
}
