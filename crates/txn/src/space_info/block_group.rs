//! Block groups: the allocation view of a chunk.
//!
//! A group's share of the sums and its places in lists follow from its state. They are updated when its lock is released,
//! before another thread gets it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use creamery_base::Logical;
use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_format::BlockGroupFlags;
use smallvec::SmallVec;

use super::free_space::FreeSpace;
use super::info::{Figures, SpaceInfo};
use super::lists::Listing;

/// One block group.
pub(crate) struct BlockGroup {
    pub(crate) start: Logical,
    pub(crate) len: u64,
    pub(crate) flags: BlockGroupFlags,
    /// Ranges that are never handed out, though the free space tree counts them as free, as in Linux; extents made by another
    /// program may lie there.
    excluded: Box<[(u64, u64)]>,
    sector: u64,
    info: Arc<SpaceInfo>,
    state: RankedMutex<GroupState, { rank::BLOCK_GROUP }>,
}

/// The mutable state of a block group.
#[derive(Debug)]
struct GroupState {
    /// Bytes in extents, as in the block group item after all delayed refs have run.
    used: u64,
    /// The value that the item holds now.
    recorded_used: u64,
    /// Space that can be handed out.
    free: FreeSpace,
    /// Free space has changed since the longest run was looked for.
    free_changed: bool,
    /// There was no place for a tree block, and no space came back since.
    no_block_fits: bool,
    /// Bytes of free space of the empty group: all but the excluded ranges.
    capacity: u64,
    /// Freed bytes that the last commit still uses.
    pinned: u64,
    /// The end of the last allocated tree block.
    cursor: u64,
    /// Number of requests that nothing new be placed here (scrub, balance, removal); nests.
    read_only: u32,
    /// Bytes of data space handed out that belong to no file yet.
    handed_out: u64,
    /// Number of writers in place here.
    nocow_writers: u32,
    /// Number of writes in place that have begun here.
    nocow_begun: u64,
    /// Bytes of free space that are withheld.
    withheld: u64,
    /// Whether it is one of the groups of the filesystem: neither being read yet nor gone.
    member: bool,
    /// The figures of the last update.
    figures: Figures,
    listing: Listing,
    memory: u64,
}

impl GroupState {
    /// The space that can be handed out; `None` for a group that is read-only or gone. Valid while the lock is held.
    fn offered(&mut self) -> Option<&mut FreeSpace> {
        (self.read_only == 0 && self.member).then_some(&mut self.free)
    }

    /// Whether the group is empty and no allocation is on its way, so that it can be given back.
    fn is_idle(&self) -> bool {
        // Space handed out in this transaction is not counted as used yet, but it is not free either.
        self.free.total() == self.capacity
            && self.used == 0
            && self.recorded_used == 0
            && self.pinned == 0
            && self.handed_out == 0
            && self.nocow_writers == 0
            && self.withheld == 0
            && self.read_only == 0
            && self.member
    }
}

/// A group with its lock held. Its drop updates the sums and lists.
struct LockedGroup<'g> {
    group: &'g BlockGroup,
    state: RankedGuard<'g, GroupState, { rank::BLOCK_GROUP }>,
}

impl Deref for LockedGroup<'_> {
    type Target = GroupState;

    fn deref(&self) -> &GroupState {
        &self.state
    }
}

impl DerefMut for LockedGroup<'_> {
    fn deref_mut(&mut self) -> &mut GroupState {
        &mut self.state
    }
}

impl Drop for LockedGroup<'_> {
    fn drop(&mut self) {
        let Self { group, state } = self;
        let (figures, listing) = (group.figures(state), group.listing(state));
        group.info.recount(state.figures, figures);
        group.info.relist(group.start, state.listing, listing);
        let memory = if state.member { state.free.memory() } else { 0 };
        group.info.recount_memory(state.memory, memory);
        (state.figures, state.listing, state.memory, state.free_changed) = (figures, listing, memory, false);
    }
}

impl BlockGroup {
    /// Creates a group with `used` bytes in extents and no free space; [`Self::give_back`] adds free space. It counts
    /// when it [joins](Self::join) the others.
    pub(crate) fn new(
        start: Logical,
        len: u64,
        flags: BlockGroupFlags,
        sector_size: u32,
        used: u64,
        excluded: Vec<(u64, u64)>,
    ) -> Self {
        let sector = u64::from(sector_size);
        let state = GroupState {
            used,
            recorded_used: used,
            free: FreeSpace::new(start.get(), len, sector),
            free_changed: false,
            no_block_fits: false,
            capacity: without(&excluded, start.get(), len).iter().map(|&(_, len)| len).sum(),
            pinned: 0,
            cursor: 0,
            read_only: 0,
            nocow_writers: 0,
            nocow_begun: 0,
            handed_out: 0,
            withheld: 0,
            member: false,
            figures: Figures::default(),
            listing: Listing::default(),
            memory: 0,
        };
        let (excluded, info) = (excluded.into_boxed_slice(), Arc::default());
        Self { start, len, flags, excluded, sector, info, state: RankedMutex::new(state) }
    }

    fn lock(&self) -> LockedGroup<'_> {
        LockedGroup { group: self, state: self.state.lock() }
    }

    /// Its share of the sums.
    fn figures(&self, state: &GroupState) -> Figures {
        if !state.member {
            return Figures::default();
        }
        let free = state.free.total();
        let (free, read_only) = if state.read_only == 0 { (free, 0) } else { (0, free) };
        let GroupState { used, pinned, handed_out, .. } = *state;
        Figures { total: self.len, used, free, pinned, read_only, handed_out }
    }

    /// The lists that it belongs in.
    fn listing(&self, state: &mut GroupState) -> Listing {
        if !state.member {
            return Listing::default();
        }
        let offers = state.read_only == 0 && state.free.total() > 0;
        let longest = match offers && self.flags.contains(BlockGroupFlags::DATA) {
            false => 0,
            true if state.free_changed || state.listing.longest == 0 => state.free.longest(),
            true => state.listing.longest,
        };
        let for_trees = BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM;
        Listing {
            longest,
            blocks: offers && self.flags.intersects(for_trees) && !state.no_block_fits,
            idle: state.is_idle(),
            changed: state.used != state.recorded_used,
        }
    }

    /// Makes it one of `info`'s groups.
    pub(super) fn join(&mut self, info: &Arc<SpaceInfo>) {
        self.info = Arc::clone(info);
    }

    /// Makes it count, once it can be found.
    pub(super) fn appear(&self) {
        self.info.group_added(self.start, self.flags);
        self.lock().member = true;
    }

    /// Stops counting: nothing is handed out from now on. Returns false, and does nothing, when it is in use, or a discard withholds
    /// some of it.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.lock();
        if !state.is_idle() {
            return false;
        }
        state.member = false;
        drop(state);
        self.info.group_removed(self.flags);
        true
    }

    /// Whether these are whole sectors of the group.
    pub(crate) fn holds(&self, at: Logical, len: u64) -> bool {
        let whole = at.is_aligned(self.sector) && len.is_multiple_of(self.sector) && len > 0;
        whole && at >= self.start && at.checked_add(len).is_some_and(|end| end <= self.end())
    }

    /// Gives space back, except excluded ranges; false when a part of it is free already.
    #[must_use]
    pub(crate) fn give_back(&self, at: Logical, len: u64) -> bool {
        self.give_back_locked(&mut self.lock(), at, len)
    }

    fn give_back_locked(&self, state: &mut GroupState, at: Logical, len: u64) -> bool {
        (state.free_changed, state.no_block_fits) = (true, false);
        without(&self.excluded, at.get(), len).into_iter().all(|(at, len)| state.free.add(at, len))
    }

    pub(crate) fn end(&self) -> Logical {
        self.start + self.len
    }

    /// Bytes that can be handed out now.
    pub(crate) fn available(&self) -> u64 {
        self.lock().offered().map_or(0, |free| free.total())
    }

    /// Hands out data space: `len` bytes, else the longest extent here, not below `min`. It goes back by
    /// [`Self::abandon_data`], or stays by [`Self::complete_data`].
    pub(crate) fn allocate_data(&self, len: u64, min: u64) -> Option<(Logical, u64)> {
        let mut state = self.lock();
        let (at, got) = state.offered()?.allocate_best(len, min)?;
        state.handed_out += got;
        state.free_changed = true;
        Some((Logical::new(at), got))
    }

    /// Hands out all `len` bytes of data space, at `near` if they are free, else where they fit best.
    pub(super) fn allocate_data_near(&self, near: Logical, len: u64) -> Option<(Logical, u64)> {
        let mut state = self.lock();
        if state.listing.longest < len {
            return None;
        }
        let (at, got) = state.offered()?.allocate_near(near.get(), len)?;
        state.handed_out += got;
        state.free_changed = true;
        Some((Logical::new(at), got))
    }

    /// Hands out this data space, if all of it is free. It goes back or stays like that of [`Self::allocate_data`].
    pub(crate) fn claim_data(&self, at: Logical, len: u64) -> bool {
        let mut state = self.lock();
        let range = (at.get(), at.get() + len);
        let taken = state.offered().and_then(|free| free.take_part(range, len, len)).is_some();
        if taken {
            state.handed_out += len;
            state.free_changed = true;
        }
        taken
    }

    /// Withholds the first free part of `[from, to)` that has `min` bytes, and at most `most` of it, from allocation. Also
    /// returns how much more of it there is. It goes back by [`Self::put_back`].
    pub(crate) fn take_part(&self, range: (u64, u64), min: u64, most: u64) -> Option<(Logical, u64, u64)> {
        let mut state = self.lock();
        let (at, len, rest) = state.offered()?.take_part(range, min, most)?;
        state.withheld += len;
        state.free_changed = true;
        Some((Logical::new(at), len, rest))
    }

    /// Frees space that [`Self::take_part`] withheld.
    pub(crate) fn put_back(&self, at: Logical, len: u64) {
        let mut state = self.lock();
        state.withheld -= len;
        // In a damaged filesystem an extent that claimed this space may have been freed meanwhile; then it is free already.
        let _ = self.give_back_locked(&mut state, at, len);
    }

    /// Counts handed-out data space as part of a file.
    pub(crate) fn complete_data(&self, len: u64) {
        self.lock().handed_out -= len;
    }

    /// Gives handed-out data space back unused.
    pub(crate) fn abandon_data(&self, at: Logical, len: u64) {
        let mut state = self.lock();
        state.handed_out -= len;
        // Nothing durable ever pointed here, so it need not be pinned. In a damaged filesystem an extent that
        // claimed this space may have been freed meanwhile; then it is free already.
        let _ = self.give_back_locked(&mut state, at, len);
    }

    /// Hands out a tree block of `len` bytes, after the last one where there is room.
    pub(super) fn allocate_block(&self, len: u64) -> Option<Logical> {
        let mut state = self.lock();
        if state.no_block_fits {
            return None;
        }
        let cursor = state.cursor;
        let Some(at) = state.offered()?.allocate_aligned(len, cursor) else {
            state.no_block_fits = true;
            return None;
        };
        state.free_changed = true;
        state.cursor = at + len;
        Some(Logical::new(at))
    }

    /// Counts bytes in extents; false when the sum would be impossible.
    #[must_use]
    pub(super) fn count_used(&self, len: u64, added: bool) -> bool {
        let mut state = self.lock();
        let counted = if added { state.used.checked_add(len) } else { state.used.checked_sub(len) };
        let Some(used) = counted.filter(|&used| used <= self.len) else { return false };
        state.used = used;
        true
    }

    /// The new value for its item, if it changed; it counts as recorded from now on.
    pub(crate) fn take_change(&self) -> Option<u64> {
        let mut state = self.lock();
        let changed = state.used != state.recorded_used;
        state.recorded_used = state.used;
        changed.then_some(state.used)
    }

    /// The value in its item.
    pub(crate) fn recorded_used(&self) -> u64 {
        self.state.lock().recorded_used
    }

    /// Counts space as pinned; false when a part of it is free.
    #[must_use]
    pub(super) fn pin(&self, at: Logical, len: u64) -> bool {
        let mut state = self.lock();
        let free = state.free.overlaps(at.get(), len);
        if !free {
            state.pinned += len;
        }
        !free
    }

    /// Gives pinned space back; false when a part of it is free already.
    #[must_use]
    pub(super) fn unpin(&self, at: Logical, len: u64) -> bool {
        let mut state = self.lock();
        state.pinned = state.pinned.saturating_sub(len);
        self.give_back_locked(&mut state, at, len)
    }

    /// Whether the group is empty and no allocation is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().is_idle()
    }

    /// Begins a write in place (NOCOW-4). Returns false, and counts nothing, when the group takes none.
    pub(crate) fn begin_nocow(&self) -> bool {
        let mut state = self.lock();
        let may = state.read_only == 0 && state.member;
        state.nocow_writers += u32::from(may);
        state.nocow_begun += u64::from(may);
        may
    }

    /// Number of writes in place that have begun here; `None` while one runs.
    pub(crate) fn nocow_begun(&self) -> Option<u64> {
        let state = self.lock();
        (state.nocow_writers == 0).then_some(state.nocow_begun)
    }

    pub(crate) fn end_nocow(&self) {
        let mut state = self.lock();
        state.nocow_writers =
            state.nocow_writers.checked_sub(1).expect("who began to write in place ends it");
    }

    /// Sets or takes back the request that nothing new be placed here; requests nest.
    #[cfg(test)]
    pub(super) fn set_read_only(&self, read_only: bool) {
        let mut state = self.lock();
        state.read_only = if read_only { state.read_only + 1 } else { state.read_only - 1 };
    }

    /// Bytes of data space handed out that belong to no file yet.
    #[cfg(test)]
    pub(super) fn handed_out(&self) -> u64 {
        self.state.lock().handed_out
    }
}

/// The parts of a range that are not in any of the ascending `excluded` ones.
fn without(excluded: &[(u64, u64)], start: u64, len: u64) -> SmallVec<[(u64, u64); 2]> {
    let mut kept = SmallVec::new();
    let (mut at, end) = (start, start + len);
    for &(from, from_len) in excluded {
        if from + from_len <= at || from >= end {
            continue;
        }
        if from > at {
            kept.push((at, from - at));
        }
        at = from + from_len;
    }
    if at < end {
        kept.push((at, end - at));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nocow_writer::NocowWriter;

    const START: u64 = 1 << 20;

    fn group(used: u64, excluded: Vec<(u64, u64)>, free: &[(u64, u64)]) -> BlockGroup {
        let (start, flags) = (Logical::new(START), BlockGroupFlags::METADATA | BlockGroupFlags::DATA);
        let group = BlockGroup::new(start, 1 << 20, flags, 4096, used, excluded);
        assert!(free.iter().all(|&(at, len)| group.give_back(Logical::new(at), len)));
        group.appear();
        group
    }

    #[test]
    fn who_writes_in_place_is_counted_and_a_read_only_group_takes_nobody() {
        let group = Arc::new(group(0, Vec::new(), &[(START, 1 << 20)]));
        let writer = NocowWriter::new(Arc::clone(&group)).expect("nothing speaks against it");
        assert_eq!(group.lock().nocow_writers, 1);
        assert!(!group.is_idle(), "who writes is waited for");
        group.set_read_only(true);
        assert!(NocowWriter::new(Arc::clone(&group)).is_none(), "NOCOW-4");
        drop(writer);
        assert_eq!(group.lock().nocow_writers, 0);
        group.set_read_only(false);
        assert!(group.is_idle() && NocowWriter::new(Arc::clone(&group)).is_some());
        assert!(group.leave());
        assert!(NocowWriter::new(group).is_none(), "it is gone");
    }

    #[test]
    fn a_read_only_group_offers_nothing() {
        let group = group(0, Vec::new(), &[(START, 1 << 20)]);
        assert_eq!(group.available(), 1 << 20);
        group.set_read_only(true);
        assert_eq!(group.available(), 0);
        assert_eq!((group.info.figures().free, group.info.figures().read_only), (0, 1 << 20));
        assert_eq!((group.info.for_blocks(), group.info.for_data(1, 1)), (None, None));
        assert!(!group.is_idle() && group.info.idle().is_empty());
        group.set_read_only(false);
        assert!(group.info.for_blocks().is_some() && group.info.for_data(1, 1).is_some());
    }

    #[test]
    fn what_is_excluded_does_not_become_free() {
        let start = START;
        let excluded = vec![(start, 65536), (start + 65536, 65536)];
        let group = group(16384, excluded, &[(start + 16384, 1 << 19)]);
        assert_eq!(group.available(), (1 << 19) + 16384 - 131_072);
        let before = group.available();
        assert!(group.give_back(Logical::new(start), 16384));
        assert_eq!(group.available(), before);
        assert!(group.give_back(Logical::new(start + (1 << 19) + 16384), 4096));
        assert_eq!(group.available(), before + 4096);
    }

    #[test]
    fn a_group_from_which_something_was_handed_out_is_not_idle() {
        let group = group(0, Vec::new(), &[(START, 1 << 20)]);
        assert_eq!(group.info.idle(), [group.start]);
        let (at, len) = group.allocate_data(4096, 4096).expect("room");
        assert!(!group.is_idle() && group.info.idle().is_empty());
        group.abandon_data(at, len);
        assert!(group.is_idle());
        assert_eq!(group.info.idle(), [group.start]);
    }

    #[test]
    fn a_group_without_a_place_for_a_block_is_asked_again_when_space_comes_back() {
        let group = group(0, Vec::new(), &[(START + 4096, 16384)]);
        assert_eq!(group.info.for_blocks(), Some(group.start));
        assert_eq!(group.allocate_block(16384), None, "no 16 KiB that are aligned");
        assert_eq!(group.info.for_blocks(), None);
        assert!(group.give_back(group.start, 4096));
        assert_eq!(group.info.for_blocks(), Some(group.start));
        assert_eq!(group.allocate_block(16384), Some(group.start));
    }

    #[test]
    fn the_item_of_a_group_is_to_be_written_when_its_use_changed() {
        let group = group(4096, Vec::new(), &[(START + 4096, 4096)]);
        assert_eq!((group.info.changed(), group.take_change()), (vec![], None));
        assert!(group.count_used(4096, true) && !group.count_used(1 << 20, true));
        assert_eq!((group.info.changed(), group.recorded_used()), (vec![group.start], 4096));
        assert_eq!((group.take_change(), group.recorded_used()), (Some(8192), 8192));
        assert_eq!(group.info.changed(), []);
    }

    #[test]
    fn a_group_that_is_used_does_not_go() {
        assert!(!group(4096, Vec::new(), &[(START + 4096, 4096)]).leave());
    }
}
