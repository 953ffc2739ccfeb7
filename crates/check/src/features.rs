//! Features: what the superblock says that the filesystem uses, against what is seen of it.
//!
//! A feature is seen at something that there is only with it. Linux sets its flag before it makes the first such thing, and
//! if it ever clears the flag, then after the last one is gone. So a flag that is missing was lost. The other way round
//! proves nothing.
//!
//! Without the flags in [`READ_BY`] Linux does not read what is there. The others are for readers from before the feature.
//!
//! Some flags are not looked at. Linux compresses after a remount, and receives what is compressed, without setting
//! COMPRESS_LZO or COMPRESS_ZSTD. mkfs.btrfs leaves BIG_METADATA out where a page of memory is no smaller than a node.
//! Without NO_HOLES a hole that is not described is a finding of its own.

use std::collections::BTreeMap;

use creamery_base::lock::{RankedMutex, rank};
use creamery_format::{BlockGroupFlags, Incompat};

use crate::problem::Problem;
use crate::report::{Place, Sink};

/// What Linux goes by when it reads.
const READ_BY: Incompat =
    Incompat::MIXED_GROUPS.union(Incompat::SKINNY_METADATA).union(Incompat::SIMPLE_QUOTA);

/// The features that were seen and are not in the superblock.
pub(crate) struct Features {
    stated: Incompat,
    /// By the bits of the feature: the first of the places where it was seen.
    unstated: RankedMutex<BTreeMap<u64, Place>, { rank::LEAF }>,
}

impl Features {
    pub(crate) fn new(stated: Incompat) -> Self {
        Self { stated, unstated: RankedMutex::new(BTreeMap::new()) }
    }

    /// The filesystem uses a feature.
    pub(crate) fn see(&self, feature: Incompat, place: impl FnOnce() -> Place) {
        if self.stated.contains(feature) {
            return;
        }
        let place = place();
        let order = |place: &Place| (place.tree, place.block, place.slot);
        let mut unstated = self.unstated.lock();
        let known = unstated.get(&feature.bits());
        // Leaves are digested in any order, and a report is always the same.
        if known.is_none_or(|known| order(&place) < order(known)) {
            unstated.insert(feature.bits(), place);
        }
    }

    /// The filesystem has a chunk of this kind.
    pub(crate) fn see_chunk(&self, flags: BlockGroupFlags, place: impl Fn() -> Place) {
        let mixed = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
        let parity = BlockGroupFlags::RAID5 | BlockGroupFlags::RAID6;
        let copies = BlockGroupFlags::RAID1C3 | BlockGroupFlags::RAID1C4;
        for (seen, feature) in [
            (flags.contains(mixed), Incompat::MIXED_GROUPS),
            (flags.intersects(parity), Incompat::RAID56),
            (flags.intersects(copies), Incompat::RAID1C34),
        ] {
            if seen {
                self.see(feature, &place);
            }
        }
    }

    /// Everything has been looked at.
    pub(crate) fn report(&self, sink: &Sink) {
        let unstated = std::mem::take(&mut *self.unstated.lock());
        for (bits, place) in unstated {
            let feature = Incompat::from_bits_retain(bits);
            let problem = match READ_BY.contains(feature) {
                true => Problem::FeatureMissing,
                false => Problem::FeatureUntold,
            };
            sink.add(problem, place, feature.to_string());
        }
    }
}
