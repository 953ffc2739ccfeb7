//! Which parts of a device belong to chunks.

use std::collections::BTreeMap;

use creamery_base::{DevId, Uuid};

/// Linux keeps the first MiB of every device free of chunks.
pub(crate) const RESERVED_FRONT: u64 = 1 << 20;

/// One device's map of used extents.
#[derive(Debug)]
pub(crate) struct DeviceSpace {
    pub(crate) dev: DevId,
    pub(crate) uuid: Uuid,
    pub(crate) total: u64,
    used: BTreeMap<u64, u64>,
}

impl DeviceSpace {
    pub(crate) fn new(dev: DevId, uuid: Uuid, total: u64) -> Self {
        Self { dev, uuid, total, used: BTreeMap::new() }
    }

    /// Records an extent. False when it overlaps another one.
    pub(crate) fn take(&mut self, start: u64, len: u64) -> bool {
        let before = self.used.range(..=start).next_back();
        let behind = self.used.range(start..).next();
        let free = before.is_none_or(|(&at, &size)| at + size <= start)
            && behind.is_none_or(|(&at, _)| start + len <= at);
        if free {
            self.used.insert(start, len);
        }
        free
    }

    /// Length of the extent that begins at `start`.
    pub(crate) fn extent_at(&self, start: u64) -> Option<u64> {
        self.used.get(&start).copied()
    }

    pub(crate) fn give_back(&mut self, start: u64) {
        let known = self.used.remove(&start);
        assert!(known.is_some(), "device extent {start} was given back twice");
    }

    /// Bytes in extents.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.values().sum()
    }

    /// Bytes outside extents that could become one.
    pub(crate) fn unused_bytes(&self) -> u64 {
        self.holes().map(|(_, len)| len).sum()
    }

    fn holes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = RESERVED_FRONT;
        let ends =
            self.used.iter().map(|(&start, &len)| (start, start + len)).chain([(self.total, self.total)]);
        ends.filter_map(move |(start, end)| {
            let hole = (start > at).then(|| (at, start - at));
            at = at.max(end);
            hole
        })
    }

    /// Places for `copies` extents of up to `len` bytes each, all of the same length, a multiple of `unit` and
    /// not below `min`. Takes the first holes that have the whole length, else the largest length possible.
    pub(crate) fn find(&self, copies: usize, len: u64, min: u64, unit: u64) -> Option<(u64, Vec<u64>)> {
        let holes: Vec<(u64, u64)> = self.holes().collect();
        // The greatest length at which the holes hold all copies is found by trying the useful candidates.
        let mut candidates: Vec<u64> = std::iter::once(len)
            .chain(holes.iter().flat_map(|&(_, size)| (1..=copies as u64).map(move |parts| size / parts)))
            .map(|size| size.min(len) / unit * unit)
            .filter(|&size| size >= min && size > 0)
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        for size in candidates.into_iter().rev() {
            let mut places = Vec::new();
            for &(start, hole) in &holes {
                let start_aligned = start.next_multiple_of(unit);
                let mut at = start_aligned;
                while places.len() < copies && at + size <= start + hole {
                    places.push(at);
                    at += size;
                }
            }
            if places.len() == copies {
                return Some((size, places));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
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
}
