//! Allocating chunks, recording them in the trees, and giving empty ones back.
//!
//! A chunk is made while somebody reserves space, never under a node lock. Its mapping and its block group can be
//! used at once; the items that tell of them - chunk, device extents, device, block group, free space - are
//! written by the commit from a list of pending chunks, before anything else, so that what was placed in the
//! chunk and the chunk itself become durable together.
//!
//! # Invariants
//! - CHUNK-1: a chunk is added only under the transaction's gate, so never between the commit's last look at the
//!   pending list and the end of its critical section.
//! - CHUNK-2: before any other chunk, there is room for the chunk tree's own edits in the system groups.
//! - CHUNK-3: the device extents of a removed chunk are used again only after the commit that removed it.

use std::collections::HashSet;
use std::sync::Arc;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Error, ErrorKind, Logical, ObjectId, Result, TreeId, Uuid, Wait};
use creamery_format::{
    BlockGroupFlags, Key, KeyType, RawBlockGroupItem, RawDevExtent, RawDevItem, SUPERBLOCK_LEN,
    SUPERBLOCK_OFFSETS,
};
use creamery_tree::Tree;
use creamery_volume::{Chunk, Stripe, Volume};
use zerocopy::{FromBytes, IntoBytes};

use crate::block_group::BlockGroup;
use crate::device_space::DeviceSpace;
use crate::engine::Engine;
use crate::free_space_tree::GroupFreeSpace;
use crate::handle::Handle;
use crate::space::SpaceKind;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Chunks are made of whole stripes.
const STRIPE: u64 = 65536;
/// What boots from a device lies before its first superblock, and nothing lies at addresses before that.
const BOOT_AREA: u64 = SUPERBLOCK_OFFSETS[0];
/// Chunk tree blocks for which there must be room before another chunk is made.
const SYSTEM_BLOCKS_MIN: u64 = 8;

/// What chunk allocation guards.
pub(crate) struct ChunkState {
    pub(crate) devices: Vec<DeviceSpace>,
    /// Chunks whose items are still to be written.
    pending: Vec<Arc<Chunk>>,
    /// Device extents to be given back once the running commit is durable.
    leaving: Vec<Leaving>,
}

struct Leaving {
    device: usize,
    start: u64,
    len: u64,
}

pub(crate) type ChunkMutex = RankedMutex<ChunkState, { rank::CHUNK_ALLOCATION }>;

impl ChunkState {
    pub(crate) fn new(devices: Vec<DeviceSpace>) -> Self {
        Self { devices, pending: Vec::new(), leaving: Vec::new() }
    }

    fn leaving_bytes(&self, device: usize) -> u64 {
        self.leaving.iter().filter(|extent| extent.device == device).map(|extent| extent.len).sum()
    }
}

/// What of a chunk is never handed out, as logical ranges: where its stripes lie in a boot area or on superblock copies, and
/// the addresses before [`BOOT_AREA`]. Whole stripes, as Linux takes them out.
pub(crate) fn reserved_ranges(chunk: &Chunk) -> Vec<(u64, u64)> {
    let superblocks = SUPERBLOCK_OFFSETS.map(|offset| (offset, offset + SUPERBLOCK_LEN as u64));
    let mut places = vec![(chunk.start.get(), BOOT_AREA)];
    for stripe in &chunk.stripes {
        let inside = |at: u64| chunk.start.get().saturating_add(at.saturating_sub(stripe.offset));
        let reserved = superblocks.into_iter().chain([(0, BOOT_AREA)]);
        places.extend(reserved.map(|(start, end)| (inside(start), inside(end))));
    }
    let mut ranges = Vec::new();
    for (start, end) in places.into_iter().filter(|(start, end)| start < end && *start < chunk.end().get()) {
        let from = chunk.start.get() + (start - chunk.start.get()) / STRIPE * STRIPE;
        let stripes = (end - from).div_ceil(STRIPE) * STRIPE;
        ranges.push((from, stripes.min(chunk.end().get() - from)));
    }
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

impl Engine {
    /// Makes a chunk for `kind`; false when no device has room for a useful one. Waits for a commit's critical
    /// section to end.
    pub(crate) fn allocate_chunk(&self, kind: SpaceKind) -> Result<bool> {
        let _running = self.join();
        let mut state = self.chunks.lock();
        let node = u64::from(self.node_size());
        if kind != SpaceKind::System && self.space.available(SpaceKind::System) < SYSTEM_BLOCKS_MIN * node {
            self.make_chunk(&mut state, SpaceKind::System)?;
        }
        self.make_chunk(&mut state, kind)
    }

    fn make_chunk(&self, state: &mut ChunkState, kind: SpaceKind) -> Result<bool> {
        let flags = self.chunk_flags(kind);
        let copies = if flags.contains(BlockGroupFlags::DUP) { 2 } else { 1 };
        let device = &state.devices[0];
        let most = match kind {
            SpaceKind::Data => GIB,
            SpaceKind::Metadata if device.total > 50 * GIB => GIB,
            SpaceKind::Metadata => 256 * MIB,
            SpaceKind::System => 32 * MIB,
        };
        // A tenth of the device at most, so that small devices keep both kinds of chunk possible.
        let len = most.min((device.total / 10).max(8 * MIB));
        let Some((len, places)) = device.find(copies, len, MIB, STRIPE) else { return Ok(false) };
        let start = self.volume().chunks().last().map_or(Logical::new(0), |chunk| chunk.end());
        if start.checked_add(len).is_none() {
            return Ok(false); // the last address is in use: a chunk that somebody made up
        }
        let stripes =
            places.iter().map(|&offset| Stripe { dev: device.dev, offset, dev_uuid: device.uuid }).collect();
        let chunk = Chunk::new(start, len, flags, self.sector_size(), stripes);
        self.volume().push_chunk(chunk.clone())?;
        for &offset in &places {
            let taken = state.devices[0].take(offset, len);
            assert!(taken, "a hole on the device was not a hole");
        }
        let group = BlockGroup::new(start, len, flags, self.sector_size(), 0, reserved_ranges(&chunk));
        let free = group.give_back(&mut group.state.lock(), start.get(), len);
        assert!(free, "nothing of a new group is free yet");
        self.space.add_group(Arc::new(group));
        state.pending.push(Arc::new(chunk));
        Ok(true)
    }

    /// Type and profile of the next chunk of this kind: those of the group that is there.
    fn chunk_flags(&self, kind: SpaceKind) -> BlockGroupFlags {
        let groups = self.space.groups_of(kind);
        groups.last().map_or(kind.flag(), |group| group.flags)
    }

    /// Whether chunks wait for their items.
    pub(crate) fn has_pending_chunks(&self) -> bool {
        !self.chunks.lock().pending.is_empty()
    }

    /// Bytes on the devices that no chunk has.
    pub(crate) fn unallocated(&self) -> u64 {
        self.chunks.lock().devices.iter().map(DeviceSpace::unused_bytes).sum()
    }

    /// Writes the items of all pending chunks. True when there were any.
    pub(crate) fn record_chunks(&self, handle: &Handle<'_>) -> Result<bool> {
        let pending = std::mem::take(&mut self.chunks.lock().pending);
        for chunk in &pending {
            self.record_chunk(handle, chunk)?;
        }
        if !pending.is_empty() {
            self.record_device_use(handle)?;
        }
        Ok(!pending.is_empty())
    }

    fn record_chunk(&self, handle: &Handle<'_>, chunk: &Chunk) -> Result<()> {
        let start = chunk.start.get();
        let chunk_key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, start);
        self.chunk_tree.insert(handle, &chunk_key, &chunk.to_item())?;
        if chunk.flags.contains(BlockGroupFlags::SYSTEM)
            && !self.superblock.push_system_chunk(&chunk_key, &chunk.to_item())
        {
            let message = format!("no room for chunk {start} in the superblock's system chunk array");
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        for stripe in &chunk.stripes {
            let key = Key::new(ObjectId::new(stripe.dev.get()), KeyType::DEV_EXTENT, stripe.offset);
            let extent = RawDevExtent {
                chunk_tree: TreeId::CHUNK.get().into(),
                chunk_objectid: ObjectId::FIRST_CHUNK_TREE.get().into(),
                chunk_offset: start.into(),
                length: chunk.stripe_bytes().into(),
                chunk_tree_uuid: self.store().chunk_tree_uuid().into_bytes(),
            };
            self.dev_tree.insert(handle, &key, extent.as_bytes())?;
        }
        let group = self.space.group_at(chunk.start).expect("a pending chunk has its group");
        let used = group.state.lock().recorded_used;
        self.group_tree().insert(handle, &group_key(&group), group_item(&group, used).as_bytes())?;
        if let Some(free) = self.free_space_tree.of_group(&group) {
            free.create(handle)?;
        }
        Ok(())
    }

    /// Writes how much of each device is in chunks, into the device items.
    fn record_device_use(&self, handle: &Handle<'_>) -> Result<()> {
        let used: Vec<_> = {
            let state = self.chunks.lock();
            let used_bytes = |(index, device): (usize, &DeviceSpace)| {
                (device.dev, device.used_bytes() - state.leaving_bytes(index))
            };
            state.devices.iter().enumerate().map(used_bytes).collect()
        };
        for (dev, used) in used {
            let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, dev.get());
            let updated = self.chunk_tree.update(handle, &key, |data| {
                RawDevItem::mut_from_bytes(data).map(|item| item.bytes_used = used.into()).is_ok()
            })?;
            if updated != Some(true) {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("device item {key} is missing or damaged"),
                ));
            }
        }
        Ok(())
    }

    /// How many devices the chunk tree lists.
    pub(crate) fn device_count(&self) -> u64 {
        self.chunks.lock().devices.len() as u64
    }

    /// What the chunk tree says of the device that the superblock is on.
    pub(crate) fn recorded_device(&self) -> Result<RawDevItem> {
        let dev = self.superblock.device();
        let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, dev.get());
        let item = self.chunk_tree.get(&key, Wait::Yes, |data| RawDevItem::read_from_bytes(data).ok())?;
        item.flatten()
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("device item {key} is missing or damaged")))
    }

    /// Gives back block groups in which nothing lives, but for one of each kind. Called at the beginning of a
    /// commit. True when there were any.
    pub(crate) fn remove_idle_groups(&self, handle: &Handle<'_>) -> Result<bool> {
        let mut removed = false;
        for kind in [SpaceKind::Data, SpaceKind::Metadata] {
            let groups = self.space.groups_of(kind);
            let mut left = groups.len();
            for group in groups.iter().filter(|group| group.is_idle()) {
                if left == 1 {
                    break;
                }
                if self.chunks.lock().pending.iter().any(|chunk| chunk.start == group.start) {
                    continue;
                }
                if group.flags.contains(BlockGroupFlags::METADATA) && self.counts_on(group) {
                    continue;
                }
                self.remove_group(handle, group)?;
                left -= 1;
                removed = true;
            }
        }
        if removed {
            self.record_device_use(handle)?;
        }
        Ok(removed)
    }

    /// Whether this commit and the next operations may need what an idle group offers. Handles began because of it
    /// (RESERVE-1), and the next one would allocate it again at once.
    fn counts_on(&self, group: &BlockGroup) -> bool {
        let others = self.space.available(SpaceKind::Metadata).saturating_sub(group.available());
        others < 2 * self.commit_need(0)
    }

    fn remove_group(&self, handle: &Handle<'_>, group: &BlockGroup) -> Result<()> {
        group.state.lock().removed = true;
        let chunk = self.volume().chunk_at(group.start).expect("a group has its chunk");
        self.group_tree().remove(handle, &group_key(group))?;
        if let Some(free) = self.free_space_tree.of_group(group) {
            free.delete(handle)?;
        }
        let chunk_key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, group.start.get());
        self.chunk_tree.remove(handle, &chunk_key)?;
        for stripe in &chunk.stripes {
            let key = Key::new(ObjectId::new(stripe.dev.get()), KeyType::DEV_EXTENT, stripe.offset);
            self.dev_tree.remove(handle, &key)?;
        }
        let mut state = self.chunks.lock();
        for stripe in &chunk.stripes {
            let device = state.devices.iter().position(|device| device.dev == stripe.dev);
            let device = device.expect("a chunk's device is there");
            state.leaving.push(Leaving { device, start: stripe.offset, len: chunk.stripe_bytes() });
        }
        drop(state);
        self.space.remove_group(group.start);
        self.volume().remove_chunk(group.start);
        Ok(())
    }

    /// After the commit that removed chunks is durable: their device extents can be used again (CHUNK-3).
    pub(crate) fn release_device_extents(&self) {
        let mut state = self.chunks.lock();
        for extent in std::mem::take(&mut state.leaving) {
            state.devices[extent.device].give_back(extent.start);
        }
    }

    /// Writes the used bytes of every group in which they changed. True when there were any.
    pub(crate) fn record_groups(&self, handle: &Handle<'_>) -> Result<bool> {
        let mut any = false;
        for group in self.space.groups() {
            let used = {
                let mut state = group.state.lock();
                if state.used == state.recorded_used {
                    continue;
                }
                state.recorded_used = state.used;
                state.used
            };
            any = true;
            let item = group_item(&group, used);
            let key = group_key(&group);
            let updated = self.group_tree().update(handle, &key, |data| {
                let fits = data.len() == item.as_bytes().len();
                if fits {
                    data.copy_from_slice(item.as_bytes());
                }
                fits
            })?;
            if updated != Some(true) {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("block group item {key} is missing or damaged"),
                ));
            }
        }
        Ok(any)
    }

    /// The tree that block group items live in.
    pub(crate) fn group_tree(&self) -> &Tree {
        self.block_group_tree.as_deref().unwrap_or(self.extent_tree.tree())
    }

    /// Reads the block group of every chunk, and its free space where that is needed.
    pub(crate) fn load_groups(&self, with_free_space: bool) -> Result<()> {
        let mut claimed = HashSet::new();
        for chunk in self.volume().chunks() {
            let key = Key::new(ObjectId::new(chunk.start.get()), KeyType::BLOCK_GROUP_ITEM, chunk.len);
            let found = self.group_tree().get(&key, Wait::Yes, |data| {
                RawBlockGroupItem::read_from_bytes(data).ok().map(|item| (item.used.get(), item.flags()))
            })?;
            let Some(Some((used, flags))) = found else {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("block group item {key} is missing or damaged"),
                ));
            };
            if flags != chunk.flags || used > chunk.len {
                let message = format!(
                    "block group {}: {used} bytes used, {flags:?}; its chunk has {} bytes, {:?}",
                    chunk.start, chunk.len, chunk.flags
                );
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            if with_free_space {
                self.claim_device_extents(&chunk, &mut claimed)?;
            }
            let reserved = reserved_ranges(&chunk);
            let sector = self.sector_size();
            let group = BlockGroup::new(chunk.start, chunk.len, flags, sector, used, reserved);
            if let Some(tree) = self.free_space_tree.tree().filter(|_| with_free_space) {
                let listed = GroupFreeSpace::new(tree, chunk.start, chunk.len, sector);
                listed.each_extent(&mut |start, len| {
                    let free = group.give_back(&mut group.state.lock(), start, len);
                    assert!(free, "free extents were checked when they were read");
                })?;
            }
            self.space.add_group(Arc::new(group));
        }
        Ok(())
    }

    /// Every stripe of a chunk has a device extent of its own: what is written follows the device tree, what is read
    /// the chunk tree.
    fn claim_device_extents(&self, chunk: &Chunk, claimed: &mut HashSet<(DevId, u64)>) -> Result<()> {
        let state = self.chunks.lock();
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

    /// Reads which devices there are, and holds those that are given against them.
    pub(crate) fn load_devices(volume: &Volume, chunk_tree: &Tree) -> Result<Vec<DeviceSpace>> {
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
            let len = volume.device(dev).map(|device| device.len());
            if len.is_some_and(|len| total > len)
                || devices.iter().any(|other: &DeviceSpace| other.dev == dev)
            {
                let message = format!("device item {key}: {total} bytes, and the device has {len:?}");
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            devices.push(DeviceSpace::new(dev, Uuid::from_bytes(item.uuid), total));
            cursor.advance()?;
        }
        let listed: Vec<DevId> = devices.iter().map(|device| device.dev).collect();
        let own = volume.superblock().dev_item().dev_id();
        if !listed.contains(&own) {
            let message =
                format!("the chunk tree has no device item of device {own}, which the superblock is of");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        volume.judge_devices(&listed)?;
        Ok(devices)
    }

    /// Reads which parts of the devices belong to chunks.
    pub(crate) fn load_device_extents(devices: &mut [DeviceSpace], dev_tree: &Tree) -> Result<()> {
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
}

fn group_key(group: &BlockGroup) -> Key {
    Key::new(ObjectId::new(group.start.get()), KeyType::BLOCK_GROUP_ITEM, group.len)
}

fn group_item(group: &BlockGroup, used: u64) -> RawBlockGroupItem {
    RawBlockGroupItem {
        used: used.into(),
        chunk_objectid: ObjectId::FIRST_CHUNK_TREE.get().into(),
        flags: group.flags.bits().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblock_copies_are_cut_out_of_every_stripe() {
        let stripe = |offset| Stripe { dev: DevId::new(1), offset, dev_uuid: Uuid::nil() };
        let (start, len) = (30 * MIB, 44 * MIB);
        let flags = BlockGroupFlags::METADATA | BlockGroupFlags::DUP;
        let chunk =
            Chunk::new(Logical::new(start), len, flags, 4096, vec![stripe(37 * MIB), stripe(81 * MIB)]);
        let copy = start + (64 - 37) * MIB;
        assert_eq!(reserved_ranges(&chunk), [(copy, STRIPE)]);
        let group = |free: &[(u64, u64)]| {
            let group = BlockGroup::new(Logical::new(start), len, flags, 4096, 0, reserved_ranges(&chunk));
            assert!(free.iter().all(|&(at, len)| group.give_back(&mut group.state.lock(), at, len)));
            group.available()
        };
        assert_eq!(group(&[(start, MIB), (copy - 4096, 8192), (copy + MIB, MIB)]), 2 * MIB + 4096);
        assert_eq!(group(&[(start, len)]), len - STRIPE);
    }

    #[test]
    fn the_front_of_a_device_and_of_the_addresses_is_cut_out() {
        let chunk = |start: u64, offset: u64| {
            let stripe = Stripe { dev: DevId::new(1), offset, dev_uuid: Uuid::nil() };
            Chunk::new(Logical::new(start), 4 * MIB, BlockGroupFlags::SYSTEM, 4096, vec![stripe])
        };
        let (boot, superblock) = ((0, STRIPE), (STRIPE, STRIPE));
        assert_eq!(reserved_ranges(&chunk(0, 0)), [boot, superblock]);
        assert_eq!(reserved_ranges(&chunk(0, 4 * MIB)), [boot]);
        assert_eq!(reserved_ranges(&chunk(8 * MIB, 0)), [(8 * MIB, STRIPE), (8 * MIB + STRIPE, STRIPE)]);
        assert_eq!(reserved_ranges(&chunk(8 * MIB, 4096)), [(8 * MIB, STRIPE)]);
        assert_eq!(reserved_ranges(&chunk(8 * MIB, 8 * MIB)), []);
    }
}
