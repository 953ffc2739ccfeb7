//! The space of a filesystem of several devices: it is only read, so nothing is under way.
//!
//! New data goes to chunks of the data profile: as wide as there are devices with room for stripes, and for mirrors each copy on a device of
//! its own. On devices of unequal room Linux counts fewer bytes for mirrors than its allocator then gives.

use creamery_format::BlockGroupFlags;
use creamery_txn::Engine;
use creamery_volume::MemberState;

/// Bytes at the start of each device that no chunk gets.
const RESERVED: u64 = 1 << 20;

/// Bytes of a filesystem of several devices, each byte of data once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetSpace {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) available: u64,
}

impl SetSpace {
    /// The figures, or `None` for a single device.
    pub(crate) fn of(engine: &Engine) -> Option<Self> {
        let devices = engine.devices();
        if devices.len() < 2 {
            return None;
        }
        let sums = engine.group_sums();
        let data = || sums.iter().filter(|sum| sum.flags.contains(BlockGroupFlags::DATA));
        let profile = data().max_by_key(|sum| sum.total).map(|sum| sum.flags.profile()).unwrap_or_default();
        let copies = copies(profile);
        let used: u64 =
            total_of(sums.iter().map(|sum| sum.used.saturating_mul(self::copies(sum.flags.profile()))));
        let total = total_of(devices.iter().map(|device| device.total_bytes)) / copies;
        let free = total.saturating_sub(used / copies);
        let volume = engine.volume();
        let rooms = devices
            .iter()
            .filter(|device| volume.member_state(device.id) != MemberState::Missing)
            .map(|device| device.total_bytes.saturating_sub(device.used_bytes).saturating_sub(RESERVED));
        let in_chunks = total_of(data().map(|sum| sum.total.saturating_sub(sum.used)));
        let available = in_chunks.saturating_add(room_for(profile, rooms.collect()));
        Some(Self { total, free, available: available.min(free) })
    }
}

/// A sum that does not overflow on the values of a damaged disk.
fn total_of(bytes: impl IntoIterator<Item = u64>) -> u64 {
    bytes.into_iter().fold(0, u64::saturating_add)
}

/// Copies of each byte.
fn copies(profile: BlockGroupFlags) -> u64 {
    match profile {
        BlockGroupFlags::DUP | BlockGroupFlags::RAID1 | BlockGroupFlags::RAID10 => 2,
        BlockGroupFlags::RAID1C3 => 3,
        BlockGroupFlags::RAID1C4 => 4,
        _ => 1,
    }
}

/// Bytes of data for which devices with so much room have chunks of this profile.
fn room_for(profile: BlockGroupFlags, rooms: Vec<u64>) -> u64 {
    match profile {
        BlockGroupFlags::RAID1 | BlockGroupFlags::RAID1C3 | BlockGroupFlags::RAID1C4 => {
            mirrored(copies(profile), &rooms)
        }
        BlockGroupFlags::RAID0 => striped(rooms, |wide| wide),
        BlockGroupFlags::RAID10 => striped(rooms, |wide| wide / 2),
        BlockGroupFlags::RAID5 => striped(rooms, |wide| wide.saturating_sub(1)),
        BlockGroupFlags::RAID6 => striped(rooms, |wide| wide.saturating_sub(2)),
        BlockGroupFlags::DUP => total_of(rooms) / 2,
        _ => total_of(rooms),
    }
}

/// The most bytes of which each of `copies` devices gets one copy: no device has a byte twice.
fn mirrored(copies: u64, rooms: &[u64]) -> u64 {
    let fits = |bytes: u64| {
        let taken: u128 = rooms.iter().map(|room| u128::from(*room.min(&bytes))).sum();
        taken >= u128::from(bytes) * u128::from(copies)
    };
    let (mut low, mut high) = (0, total_of(rooms.iter().copied()).saturating_add(1));
    while low + 1 < high {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

/// Stripes over all devices that have room, until the last two are full; `data` says how many of so many stripes hold data of their own.
fn striped(mut rooms: Vec<u64>, data: impl Fn(u64) -> u64) -> u64 {
    rooms.sort_unstable();
    let (mut sum, mut taken) = (0_u64, 0);
    for (number, room) in rooms.iter().enumerate() {
        let wide = (rooms.len() - number) as u64;
        sum = sum.saturating_add((room - taken).saturating_mul(data(wide)));
        taken = *room;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn mirrors_lie_on_two_devices() {
        let room = |rooms: &[u64]| room_for(BlockGroupFlags::RAID1, rooms.to_vec());
        assert_eq!(room(&[131 * MIB, 131 * MIB]), 131 * MIB);
        assert_eq!(room(&[100 * MIB, 10 * MIB, 10 * MIB]), 20 * MIB);
        assert_eq!(room(&[100 * MIB, 90 * MIB, 10 * MIB]), 100 * MIB);
        assert_eq!(room(&[100 * MIB]), 0);
        assert_eq!(room_for(BlockGroupFlags::RAID1C3, vec![5 * MIB, 7 * MIB, 9 * MIB]), 5 * MIB);
    }

    #[test]
    fn stripes_lie_on_all_devices_that_have_room() {
        let rooms = vec![10 * MIB, 20 * MIB, 30 * MIB, 30 * MIB];
        assert_eq!(room_for(BlockGroupFlags::RAID0, rooms.clone()), 90 * MIB);
        assert_eq!(room_for(BlockGroupFlags::RAID10, rooms.clone()), (20 + 10 + 10) * MIB);
        assert_eq!(room_for(BlockGroupFlags::RAID5, rooms.clone()), (30 + 20 + 10) * MIB);
        assert_eq!(room_for(BlockGroupFlags::empty(), rooms), 90 * MIB);
    }
}
