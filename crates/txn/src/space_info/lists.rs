//! Lists of the block groups of one type that offer space or need work, so that no operation looks at all of them.
//!
//! A group's lists follow from its state, from one release of its lock to the next (SPACE-2). A thread that picks a group out of a list
//! locks it and looks again.

use std::collections::BTreeSet;

use creamery_base::{Logical, memory};
use creamery_format::BlockGroupFlags;

/// The lists of one group.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Listing {
    /// The longest run that it offers to data, bytes; 0 for none.
    pub(super) longest: u64,
    /// It may have room for a tree block.
    pub(super) blocks: bool,
    /// It is empty.
    pub(super) idle: bool,
    /// The used bytes in its item are out of date.
    pub(super) changed: bool,
}

/// The lists.
#[derive(Default, Debug)]
pub(super) struct Lists {
    by_longest: BTreeSet<(u64, Logical)>,
    with_blocks: BTreeSet<Logical>,
    idle: BTreeSet<Logical>,
    changed: BTreeSet<Logical>,
    /// Number of groups, and number of those that keep two copies on one device.
    pub(super) groups: usize,
    pub(super) dup: usize,
    /// The group with the highest address so far: the next one is made like it.
    pub(super) last: Option<(Logical, BlockGroupFlags)>,
}

fn set<T: Ord>(list: &mut BTreeSet<T>, entry: T, before: bool, after: bool) {
    let known = match (before, after) {
        (false, true) => list.insert(entry),
        (true, false) => list.remove(&entry),
        _ => true,
    };
    assert!(known, "SPACE-2: a list of block groups does not say what a group's state said");
}

impl Lists {
    /// Moves a group from the lists it stood in to those it belongs in.
    pub(super) fn relist(&mut self, group: Logical, before: Listing, after: Listing) {
        if before.longest != after.longest {
            set(&mut self.by_longest, (before.longest, group), before.longest > 0, false);
            set(&mut self.by_longest, (after.longest, group), false, after.longest > 0);
        }
        set(&mut self.with_blocks, group, before.blocks, after.blocks);
        set(&mut self.idle, group, before.idle, after.idle);
        set(&mut self.changed, group, before.changed, after.changed);
    }

    /// The group with the shortest longest run that has `len` bytes, else the one with the longest if it has `min`; with
    /// that run's length.
    pub(super) fn for_data(&self, len: u64, min: u64) -> Option<(u64, Logical)> {
        let fits = self.by_longest.range((len, Logical::new(0))..).next();
        fits.or_else(|| self.by_longest.last().filter(|(longest, _)| *longest >= min)).copied()
    }

    /// The first group that may have room for a tree block.
    pub(super) fn for_blocks(&self) -> Option<Logical> {
        self.with_blocks.first().copied()
    }

    /// Memory of the lists, bytes.
    pub(super) fn memory(&self) -> u64 {
        let of = |list: &BTreeSet<Logical>| memory::btree::<Logical, ()>(list.len());
        let by_longest = memory::btree::<(u64, Logical), ()>(self.by_longest.len());
        by_longest + of(&self.with_blocks) + of(&self.idle) + of(&self.changed)
    }

    /// Empty groups.
    pub(super) fn idle(&self) -> Vec<Logical> {
        self.idle.iter().copied().collect()
    }

    /// Groups whose items have outdated used bytes.
    pub(super) fn changed(&self) -> Vec<Logical> {
        self.changed.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(longest: u64, blocks: bool) -> Listing {
        Listing { longest, blocks, ..Listing::default() }
    }

    #[test]
    fn data_goes_where_it_fits_best_else_where_most_of_it_fits() {
        let mut lists = Lists::default();
        for (at, longest) in [(1, 30), (2, 10), (3, 20), (4, 0)] {
            lists.relist(Logical::new(at), Listing::default(), listed(longest, false));
        }
        let found = |len, min| lists.for_data(len, min).map(|(longest, at)| (longest, at.get()));
        assert_eq!(found(10, 1), Some((10, 2)));
        assert_eq!(found(11, 1), Some((20, 3)));
        assert_eq!(found(50, 30), Some((30, 1)));
        assert_eq!(found(50, 31), None);
    }

    #[test]
    fn a_group_that_is_full_is_not_listed_any_more() {
        let (mut lists, at) = (Lists::default(), Logical::new(7));
        lists.relist(at, Listing::default(), listed(8, true));
        assert_eq!(lists.for_blocks(), Some(at));
        lists.relist(at, listed(8, true), Listing::default());
        assert_eq!((lists.for_blocks(), lists.for_data(1, 1)), (None, None));
    }

    #[test]
    #[should_panic(expected = "SPACE-2")]
    fn a_list_that_does_not_know_a_group_is_a_bug() {
        Lists::default().relist(Logical::new(7), listed(8, true), Listing::default());
    }
}
