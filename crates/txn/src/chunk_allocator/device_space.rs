//! The parts of a device that belong to chunks.

use std::collections::BTreeMap;

use creamery_base::{DevId, Uuid, memory};
use creamery_format::SUPERBLOCK_OFFSETS;

use crate::space_info::SpaceKind;

/// Chunks are made of whole stripes.
pub(super) const STRIPE: u64 = 65536;
/// Linux keeps the first MiB of every device free of chunks.
const RESERVED_FRONT: u64 = 1 << 20;

/// A device of the filesystem, as the chunk tree lists it.
///
/// ```no_run
/// # fn show(engine: &creamery_txn::Engine) {
/// for device in engine.devices() {
///     println!("{}: {} of {} bytes are in chunks", device.id, device.used_bytes, device.total_bytes);
/// }
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceReport {
    /// Its number in the filesystem.
    pub id: DevId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its size in the filesystem, which may be less than the host's device has.
    pub total_bytes: u64,
    /// Bytes of it in chunks.
    pub used_bytes: u64,
}

/// One device's map of used extents, and of the holes between them.
#[derive(Debug)]
pub(crate) struct DeviceSpace {
    pub(super) dev: DevId,
    pub(super) uuid: Uuid,
    pub(super) total: u64,
    used: BTreeMap<u64, u64>,
    used_bytes: u64,
    holes: Holes,
}

/// The holes between the front and the end that no extent covers, and the chunks that can be made of them.
#[derive(Default, Debug)]
struct Holes {
    by_start: BTreeMap<u64, u64>,
    bytes: u64,
    for_data: u64,
    for_metadata: u64,
    /// Copies of the superblock that lie in them, each of which takes a stripe from the chunk around it.
    superblocks: u64,
}

/// The shortest extent that a chunk of this kind is made of. Data can use even the last bytes of a device; a chunk of
/// metadata takes metadata itself, and must give more than that.
pub(super) const fn shortest_extent(kind: SpaceKind) -> u64 {
    match kind {
        SpaceKind::Data => STRIPE,
        SpaceKind::Metadata | SpaceKind::System => 1 << 20,
    }
}

/// Bytes of a hole that chunks with extents of at least `shortest` bytes can use, in any steps: less than `shortest`
/// is left of it.
fn offered(start: u64, len: u64, shortest: u64) -> u64 {
    // The size of a device comes from the disk.
    let Some(first) = start.checked_next_multiple_of(STRIPE) else { return 0 };
    let whole = ((start + len) / STRIPE * STRIPE).saturating_sub(first);
    if whole < shortest { 0 } else { whole - (shortest - STRIPE) }
}

fn superblocks(start: u64, len: u64) -> u64 {
    SUPERBLOCK_OFFSETS.into_iter().map(|at| u64::from((start..start + len).contains(&at))).sum()
}

impl Holes {
    fn insert(&mut self, start: u64, len: u64) {
        let known = self.by_start.insert(start, len);
        assert!(known.is_none(), "two holes begin at {start}");
        self.bytes += len;
        self.for_data += offered(start, len, shortest_extent(SpaceKind::Data));
        self.for_metadata += offered(start, len, shortest_extent(SpaceKind::Metadata));
        self.superblocks += superblocks(start, len);
    }

    fn remove(&mut self, start: u64) -> Option<u64> {
        let len = self.by_start.remove(&start)?;
        self.bytes -= len;
        self.for_data -= offered(start, len, shortest_extent(SpaceKind::Data));
        self.for_metadata -= offered(start, len, shortest_extent(SpaceKind::Metadata));
        self.superblocks -= superblocks(start, len);
        Some(len)
    }
}

impl DeviceSpace {
    pub(crate) const fn report(&self) -> DeviceReport {
        let Self { dev, uuid, total, used_bytes, .. } = *self;
        DeviceReport { id: dev, uuid, total_bytes: total, used_bytes }
    }

    pub(super) fn new(dev: DevId, uuid: Uuid, total: u64) -> Self {
        let mut holes = Holes::default();
        let unused = total.saturating_sub(RESERVED_FRONT);
        if unused > 0 {
            holes.insert(RESERVED_FRONT, unused);
        }
        Self { dev, uuid, total, used: BTreeMap::new(), used_bytes: 0, holes }
    }

    /// The starts of the device's extents, in order.
    pub(super) fn extents(&self) -> impl Iterator<Item = u64> {
        self.used.keys().copied()
    }

    /// Records an extent of the device. False when it overlaps another one.
    pub(super) fn take(&mut self, start: u64, len: u64) -> bool {
        let before = self.used.range(..=start).next_back();
        let behind = self.used.range(start..).next();
        let free = before.is_none_or(|(&at, &size)| at + size <= start)
            && behind.is_none_or(|(&at, _)| start + len <= at);
        if free {
            self.used.insert(start, len);
            self.used_bytes += len;
            self.fill_hole(start.max(RESERVED_FRONT), start + len);
        }
        free
    }

    /// Removes `[start, end)` from the hole in which it lies.
    fn fill_hole(&mut self, start: u64, end: u64) {
        if start >= end {
            return; // all of it lies in the front
        }
        let before = self.holes.by_start.range(..=start).next_back();
        let (&hole, &len) = before.expect("what no extent has is a hole");
        let hole_end = hole + len;
        assert!(end <= hole_end, "the extents and the holes of device {} overlap at {end}", self.dev);
        self.holes.remove(hole);
        if hole < start {
            self.holes.insert(hole, start - hole);
        }
        if end < hole_end {
            self.holes.insert(end, hole_end - end);
        }
    }

    /// The first place at or behind `from` that no extent has: its start and its length.
    pub(super) fn first_hole(&self, from: u64) -> Option<(u64, u64)> {
        let holes = &self.holes.by_start;
        let before = holes.range(..from).next_back().filter(|(start, len)| *start + *len > from);
        let (&start, &len) = before.or_else(|| holes.range(from..).next())?;
        let first = start.max(from);
        Some((first, start + len - first))
    }

    /// Length of the extent that begins at `start`.
    pub(super) fn extent_at(&self, start: u64) -> Option<u64> {
        self.used.get(&start).copied()
    }

    /// Turns an extent back into a hole.
    pub(super) fn give_back(&mut self, start: u64) {
        let len = self.used.remove(&start);
        let len = len.unwrap_or_else(|| panic!("device extent {start} was given back twice"));
        self.used_bytes -= len;
        let (mut from, mut to) = (start.max(RESERVED_FRONT), start + len);
        if from >= to {
            return;
        }
        if let Some((&before, &size)) = self.holes.by_start.range(..from).next_back()
            && before + size == from
        {
            self.holes.remove(before);
            from = before;
        }
        if let Some(size) = self.holes.remove(to) {
            to += size;
        }
        self.holes.insert(from, to - from);
    }

    /// Makes the device `total` bytes long, unless it is longer already; the new part is a hole. Returns by how many bytes it grew.
    pub(super) fn grow(&mut self, total: u64) -> u64 {
        let more = total.saturating_sub(self.total);
        let (from, to) = (self.total.max(RESERVED_FRONT), total);
        self.total += more;
        if from >= to {
            return more;
        }
        // A hole at the old end grows.
        let last = self.holes.by_start.last_key_value().filter(|(start, len)| *start + *len == from);
        let start = last.map_or(from, |(&start, _)| start);
        self.holes.remove(start);
        self.holes.insert(start, to - start);
        more
    }

    /// Memory in use, bytes.
    pub(super) fn memory(&self) -> u64 {
        memory::btree::<u64, u64>(self.used.len()) + memory::btree::<u64, u64>(self.holes.by_start.len())
    }

    /// Bytes in extents.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Bytes in no extent, the front left out.
    pub(super) fn unused_bytes(&self) -> u64 {
        self.holes.bytes
    }

    /// Bytes of chunks of this kind with so many `copies` that can be made of the holes, in any steps, without the space of superblock
    /// copies. At the end there may be a [shortest](shortest_extent) extent for each copy but one.
    pub(super) fn allocatable(&self, kind: SpaceKind, copies: u64) -> u64 {
        let offered = match kind {
            SpaceKind::Data => self.holes.for_data,
            SpaceKind::Metadata | SpaceKind::System => self.holes.for_metadata,
        };
        let uneven = (copies - 1) * shortest_extent(kind);
        let chunks = offered.saturating_sub(uneven) / copies / STRIPE * STRIPE;
        chunks.saturating_sub(self.holes.superblocks * STRIPE)
    }

    /// The first places for up to `copies` extents of `size` bytes each, at multiples of `unit`.
    fn places(&self, copies: usize, size: u64, unit: u64) -> Vec<u64> {
        let mut places = Vec::with_capacity(copies);
        for (&start, &len) in &self.holes.by_start {
            let mut at = start.next_multiple_of(unit);
            while places.len() < copies && at + size <= start + len {
                places.push(at);
                at += size;
            }
            if places.len() == copies {
                break;
            }
        }
        places
    }

    /// Places for `copies` extents of up to `len` bytes each, all of the same length, a multiple of `unit` and
    /// not below `min`. Takes the first holes that have the whole length, else the largest length possible.
    pub(super) fn find(&self, copies: usize, len: u64, min: u64, unit: u64) -> Option<(u64, Vec<u64>)> {
        let fits = |units: u64| self.places(copies, units * unit, unit).len() == copies;
        let (mut low, mut high) = (min.div_ceil(unit).max(1), len / unit);
        if high < low || !fits(low) {
            return None;
        }
        // If all copies of a length fit, so do those of a shorter one. The whole length fits nearly always.
        if fits(high) {
            low = high;
        }
        while low + 1 < high {
            let middle = low.midpoint(high);
            if fits(middle) { low = middle } else { high = middle }
        }
        Some((low * unit, self.places(copies, low * unit, unit)))
    }
}

#[cfg(test)]
mod tests {
    use creamery_testkit::Random;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_first_mib_is_never_used_and_holes_are_found_in_order() {
        let mut space = DeviceSpace::new(DevId::new(1), Uuid::nil(), 100 * MIB);
        assert_eq!(space.find(1, 10 * MIB, MIB, 65536), Some((10 * MIB, vec![MIB])));
        assert!(space.take(MIB, 10 * MIB));
        assert!(!space.take(5 * MIB, MIB));
        assert_eq!(space.find(2, 10 * MIB, MIB, 65536), Some((10 * MIB, vec![11 * MIB, 21 * MIB])));
        assert_eq!(space.unused_bytes(), 89 * MIB);
        assert_eq!(space.used_bytes(), 10 * MIB);
    }

    #[test]
    fn two_copies_share_the_last_hole_evenly() {
        let mut space = DeviceSpace::new(DevId::new(1), Uuid::nil(), 32 * MIB);
        assert!(space.take(MIB, 11 * MIB));
        assert_eq!(space.find(2, 100 * MIB, MIB, 65536), Some((10 * MIB, vec![12 * MIB, 22 * MIB])));
        assert_eq!(space.find(2, 100 * MIB, 11 * MIB, 65536), None);
    }

    #[test]
    fn what_a_longer_device_has_more_is_a_hole() {
        let mut space = DeviceSpace::new(DevId::new(1), Uuid::nil(), 10 * MIB);
        assert_eq!((space.grow(20 * MIB), space.grow(15 * MIB)), (10 * MIB, 0));
        assert_eq!(space.holes.by_start, BTreeMap::from([(MIB, 19 * MIB)]));
        assert!(space.take(12 * MIB, 8 * MIB));
        assert_eq!(space.grow(30 * MIB), 10 * MIB);
        assert_eq!(space.holes.by_start, BTreeMap::from([(MIB, 11 * MIB), (20 * MIB, 10 * MIB)]));
        assert_eq!((space.unused_bytes(), space.report().total_bytes), (21 * MIB, 30 * MIB));
        let mut tiny = DeviceSpace::new(DevId::new(1), Uuid::nil(), MIB / 2);
        assert_eq!((tiny.grow(2 * MIB), tiny.unused_bytes()), (MIB + MIB / 2, MIB));
    }

    /// Holes and extents always cover the whole device.
    #[test]
    fn holes_and_extents_are_the_whole_device() {
        let mut space = DeviceSpace::new(DevId::new(1), Uuid::nil(), 64 * MIB);
        assert!(space.take(0, 2 * MIB), "old tools put chunks on the front");
        let mut random: u64 = 7;
        let mut taken = Vec::new();
        for _ in 0..2_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (place, size) = ((random >> 33) % 62 + 2, (random >> 20) % 3 + 1);
            if random >> 63 == 0 && place + size <= 64 && space.take(place * MIB, size * MIB) {
                taken.push(place * MIB);
            } else if let Some(start) = taken.pop() {
                space.give_back(start);
            }
            let mut at = 2 * MIB;
            let mut holes = BTreeMap::new();
            for (&start, &len) in space.used.range(MIB..).chain([(&space.total, &0)]) {
                if start > at {
                    holes.insert(at, start - at);
                }
                at = start + len;
            }
            assert_eq!(space.holes.by_start, holes);
            assert_eq!(space.unused_bytes(), holes.values().sum());
            assert_eq!(space.used_bytes, space.used.values().sum());
        }
        taken.into_iter().for_each(|start| space.give_back(start));
        space.give_back(0);
        assert_eq!((space.unused_bytes(), space.used_bytes()), (63 * MIB, 0));
        assert_eq!(space.holes.by_start, BTreeMap::from([(MIB, 63 * MIB)]));
    }

    #[test]
    fn the_largest_length_that_all_copies_fit_in_is_found() {
        let mut space = DeviceSpace::new(DevId::new(1), Uuid::nil(), 64 * MIB);
        assert!(space.take(8 * MIB, MIB) && space.take(14 * MIB, 40 * MIB));
        assert_eq!(space.find(1, 40 * MIB, MIB, MIB), Some((10 * MIB, vec![54 * MIB])));
        assert_eq!(space.find(2, 40 * MIB, MIB, MIB), Some((7 * MIB, vec![MIB, 54 * MIB])));
        assert_eq!(space.find(3, 40 * MIB, MIB, MIB), Some((5 * MIB, vec![MIB, 9 * MIB, 54 * MIB])));
        assert_eq!(space.find(1, 3 * MIB, MIB, MIB), Some((3 * MIB, vec![MIB])));
        assert_eq!(space.find(1, 40 * MIB, 11 * MIB, MIB), None);
    }

    /// Chunks of any sizes, made in any steps, find as many bytes as are offered.
    #[test]
    fn chunks_find_what_the_holes_offer() {
        let mut random = Random::new(3);
        for round in 0..400 {
            let kind = if round % 2 == 0 { SpaceKind::Data } else { SpaceKind::Metadata };
            let (shortest, copies) = (shortest_extent(kind), 1 + round as u64 / 2 % 2);
            let total = 20 * MIB + random.below(20 * MIB / 4096) * 4096;
            let mut space = DeviceSpace::new(DevId::new(1), Uuid::nil(), total);
            for _ in 0..random.below(12) {
                let start = random.below(total / 4096 - 700) * 4096;
                space.take(start, (1 + random.below(600)) * 4096);
            }
            let offered = space.allocatable(kind, copies);
            let mut found = 0;
            while let Some((len, places)) =
                space.find(copies as usize, (1 + random.below(100)) * STRIPE + shortest, shortest, STRIPE)
            {
                places.into_iter().for_each(|start| assert!(space.take(start, len)));
                found += len;
            }
            assert!(found >= offered, "round {round}: {found} bytes of {offered}");
            assert!(found <= offered + 14 * shortest, "round {round}: {found} bytes of {offered}");
        }
    }
}
