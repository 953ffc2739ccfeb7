//! Features: compares the superblock's feature flags with the features that the filesystem uses.
//!
//! A feature shows in items that exist only with it. Linux sets its flag before it makes the first such item, and clears it, if ever, only
//! after the last one is gone. So a missing flag was lost. A flag without such items proves nothing.
//!
//! Without the flags in [`READ_BY`] Linux does not read these items. The other flags are for readers from before the feature.
//!
//! Some flags are not checked. Linux compresses after a remount, and receives compressed data, without setting COMPRESS_LZO or
//! COMPRESS_ZSTD. mkfs.btrfs omits BIG_METADATA if a page of memory is not smaller than a node. A hole without an item in a filesystem
//! without NO_HOLES is a finding of its own.

use std::collections::BTreeMap;

use creamery_base::lock::{RankedMutex, rank};
use creamery_format::{BlockGroupFlags, Incompat};

use crate::problem::Problem;
use crate::report::{ProblemSite, Sink};

/// The flags that Linux needs to read.
const READ_BY: Incompat =
    Incompat::MIXED_GROUPS.union(Incompat::SKINNY_METADATA).union(Incompat::SIMPLE_QUOTA);

/// Features that the filesystem uses and the superblock lacks.
pub(crate) struct Features {
    stated: Incompat,
    /// For the bits of each feature, the first place that shows it.
    unstated: RankedMutex<BTreeMap<u64, ProblemSite>, { rank::LEAF }>,
}

impl Features {
    pub(crate) fn new(stated: Incompat) -> Self {
        Self { stated, unstated: RankedMutex::new(BTreeMap::new()) }
    }

    /// Notes a place that shows a feature.
    pub(crate) fn see(&self, feature: Incompat, place: impl FnOnce() -> ProblemSite) {
        if self.stated.contains(feature) {
            return;
        }
        let place = place();
        let order = |place: &ProblemSite| (place.tree, place.block, place.slot);
        let mut unstated = self.unstated.lock();
        let known = unstated.get(&feature.bits());
        // Leaves are digested in any order; with the first place in order the report is always the same.
        if known.is_none_or(|known| order(&place) < order(known)) {
            unstated.insert(feature.bits(), place);
        }
    }

    /// Notes the features of a chunk of this kind.
    pub(crate) fn see_chunk(&self, flags: BlockGroupFlags, place: impl Fn() -> ProblemSite) {
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

    /// Reports missing flags, after everything was read.
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
