//! The space of all block groups of one type.

use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{CachePadded, Logical};
use creamery_format::BlockGroupFlags;

use super::lists::{Listing, Lists};

/// Sums over block groups, or one group's share; bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Figures {
    /// In block groups.
    pub(crate) total: u64,
    /// In extents, as in the block group items after all delayed refs have run.
    pub(crate) used: u64,
    /// Can be handed out now.
    pub(crate) free: u64,
    /// Freed, but the last commit still reaches it.
    pub(crate) pinned: u64,
    /// Free in groups in which nothing new is placed.
    pub(crate) read_only: u64,
    /// Data space handed out that no file refers to yet.
    pub(crate) handed_out: u64,
}

impl Figures {
    /// Handed out and in no extent item yet; computed as the rest.
    #[cfg(test)]
    pub(crate) fn reserved(&self, excluded: u64) -> u64 {
        self.total - excluded - self.used - self.free - self.pinned - self.read_only
    }
}

#[derive(Default)]
struct InfoSums {
    total: AtomicU64,
    used: AtomicU64,
    free: AtomicU64,
    pinned: AtomicU64,
    read_only: AtomicU64,
    handed_out: AtomicU64,
    /// Memory of the groups' free space.
    memory: AtomicU64,
}

/// The space of all block groups of one type: its sums, and lists of groups worth a look. The
/// [reservations](super::Reservations) decide how much of it metadata may use.
#[derive(Default)]
pub(crate) struct SpaceInfo {
    sums: CachePadded<InfoSums>,
    lists: RankedMutex<Lists, { rank::SPACE_INFO }>,
}

fn change(sum: &AtomicU64, before: u64, after: u64) {
    if after > before {
        sum.fetch_add(after - before, Ordering::AcqRel);
    } else if after < before {
        let all = sum.fetch_sub(before - after, Ordering::AcqRel);
        assert!(all >= before - after, "SPACE-1: a sum is less than a group's part of it");
    }
}

impl SpaceInfo {
    /// The sums now, each on its own.
    pub(crate) fn figures(&self) -> Figures {
        let of = |sum: &AtomicU64| sum.load(Ordering::Acquire);
        let InfoSums { total, used, free, pinned, read_only, handed_out, memory: _ } = &*self.sums;
        Figures {
            total: of(total),
            used: of(used),
            free: of(free),
            pinned: of(pinned),
            read_only: of(read_only),
            handed_out: of(handed_out),
        }
    }

    /// Bytes that can be handed out now.
    pub(super) fn free(&self) -> u64 {
        self.sums.free.load(Ordering::Acquire)
    }

    /// Changes a group's share of the sums (SPACE-1). The group's lock is held.
    pub(super) fn recount(&self, before: Figures, after: Figures) {
        let InfoSums { total, used, free, pinned, read_only, handed_out, memory: _ } = &*self.sums;
        change(total, before.total, after.total);
        change(used, before.used, after.used);
        change(free, before.free, after.free);
        change(pinned, before.pinned, after.pinned);
        change(read_only, before.read_only, after.read_only);
        change(handed_out, before.handed_out, after.handed_out);
    }

    /// Changes the memory of a group's free space in the sum (SPACE-1). The group's lock is held.
    pub(super) fn recount_memory(&self, before: u64, after: u64) {
        change(&self.sums.memory, before, after);
    }

    /// Memory of the groups' free space, bytes.
    pub(super) fn free_space_memory(&self) -> u64 {
        self.sums.memory.load(Ordering::Acquire)
    }

    /// Memory of the lists of groups, bytes.
    pub(super) fn lists_memory(&self) -> u64 {
        self.lists.lock().memory()
    }

    /// Changes the lists of a group (SPACE-2). The group's lock is held.
    pub(super) fn relist(&self, group: Logical, before: Listing, after: Listing) {
        if before != after {
            self.lists.lock().relist(group, before, after);
        }
    }

    /// Counts a new group.
    pub(super) fn group_added(&self, start: Logical, flags: BlockGroupFlags) {
        let mut lists = self.lists.lock();
        lists.groups += 1;
        lists.dup += usize::from(flags.contains(BlockGroupFlags::DUP));
        if lists.last.is_none_or(|(last, _)| start >= last) {
            lists.last = Some((start, flags));
        }
    }

    /// Counts a group that is gone.
    pub(super) fn group_removed(&self, flags: BlockGroupFlags) {
        let mut lists = self.lists.lock();
        lists.groups -= 1;
        lists.dup -= usize::from(flags.contains(BlockGroupFlags::DUP));
    }

    /// The group for a data allocation: [`Lists::for_data`].
    pub(super) fn for_data(&self, len: u64, min: u64) -> Option<(u64, Logical)> {
        self.lists.lock().for_data(len, min)
    }

    /// The group for a tree block: [`Lists::for_blocks`].
    pub(super) fn for_blocks(&self) -> Option<Logical> {
        self.lists.lock().for_blocks()
    }

    /// Empty groups.
    pub(crate) fn idle(&self) -> Vec<Logical> {
        self.lists.lock().idle()
    }

    /// Groups whose items have outdated used bytes.
    pub(super) fn changed(&self) -> Vec<Logical> {
        self.lists.lock().changed()
    }

    /// Number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.lists.lock().groups
    }

    /// Whether a group keeps two copies on one device.
    pub(super) fn has_dup(&self) -> bool {
        self.lists.lock().dup > 0
    }

    /// Address and flags of the last group, which may be gone.
    pub(super) fn last(&self) -> Option<(Logical, BlockGroupFlags)> {
        self.lists.lock().last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_grows_smaller_takes_its_part_out_of_the_sums() {
        let info = SpaceInfo::default();
        let before = Figures { total: 100, used: 30, free: 50, pinned: 10, ..Figures::default() };
        info.recount(Figures::default(), before);
        info.recount(Figures::default(), before);
        let after = Figures { free: 20, pinned: 15, ..before };
        info.recount(before, after);
        assert_eq!(
            info.figures(),
            Figures { total: 200, used: 60, free: 70, pinned: 25, ..Figures::default() }
        );
        assert_eq!((before.reserved(10), after.reserved(10)), (0, 25));
    }

    #[test]
    #[should_panic(expected = "SPACE-1")]
    fn sums_that_miss_a_group_are_a_bug() {
        SpaceInfo::default().recount(Figures { free: 1, ..Figures::default() }, Figures::default());
    }
}
