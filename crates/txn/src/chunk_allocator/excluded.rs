//! The parts of a chunk that are never handed out.

use creamery_format::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS};
use creamery_volume::Chunk;

use super::device_space::STRIPE;

/// Boot loaders lie before a device's first superblock, and nothing lies at addresses before that.
const BOOT_AREA: u64 = SUPERBLOCK_OFFSETS[0];

/// The parts of a chunk that are never handed out, as logical ranges: where its stripes lie in a boot area or on superblock copies, and
/// the addresses before [`BOOT_AREA`]. Whole stripes, as in Linux.
pub(crate) fn excluded_ranges(chunk: &Chunk) -> Vec<(u64, u64)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    use creamery_base::{DevId, Logical, Uuid};
    use creamery_format::BlockGroupFlags;
    use creamery_volume::Stripe;

    use crate::space_info::{BlockGroup, Space, SpaceKind};

    const MIB: u64 = 1 << 20;

    #[test]
    fn superblock_copies_are_cut_out_of_every_stripe() {
        let stripe = |offset| Stripe { dev: DevId::new(1), offset, dev_uuid: Uuid::nil() };
        let (start, len) = (30 * MIB, 44 * MIB);
        let flags = BlockGroupFlags::METADATA | BlockGroupFlags::DUP;
        let chunk =
            Chunk::new(Logical::new(start), len, flags, 4096, vec![stripe(37 * MIB), stripe(81 * MIB)]);
        let copy = start + (64 - 37) * MIB;
        assert_eq!(excluded_ranges(&chunk), [(copy, STRIPE)]);
        let group = |free: &[(u64, u64)]| {
            let group = BlockGroup::new(Logical::new(start), len, flags, 4096, 0, excluded_ranges(&chunk));
            assert!(free.iter().all(|&(at, len)| group.give_back(Logical::new(at), len)));
            let space = Space::new(0);
            space.add_group(group);
            space.available(SpaceKind::Metadata)
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
        assert_eq!(excluded_ranges(&chunk(0, 0)), [boot, superblock]);
        assert_eq!(excluded_ranges(&chunk(0, 4 * MIB)), [boot]);
        assert_eq!(excluded_ranges(&chunk(8 * MIB, 0)), [(8 * MIB, STRIPE), (8 * MIB + STRIPE, STRIPE)]);
        assert_eq!(excluded_ranges(&chunk(8 * MIB, 4096)), [(8 * MIB, STRIPE)]);
        assert_eq!(excluded_ranges(&chunk(8 * MIB, 8 * MIB)), []);
    }
}
