//! Block groups: the allocation view of a chunk.

use creamery_base::Logical;
use creamery_base::lock::{RankedMutex, rank};
use creamery_format::BlockGroupFlags;
use smallvec::SmallVec;

use crate::free_space::FreeSpace;

/// One block group.
pub(crate) struct BlockGroup {
    pub(crate) start: Logical,
    pub(crate) len: u64,
    pub(crate) flags: BlockGroupFlags,
    /// What is never handed out, though the free space tree counts it as free, as Linux has it, and extents may lie there that
    /// somebody else made.
    reserved: Vec<(u64, u64)>,
    sector: u64,
    pub(crate) state: RankedMutex<GroupState, { rank::BLOCK_GROUP }>,
}

/// What changes in a block group.
#[derive(Debug)]
pub(crate) struct GroupState {
    /// Bytes in extents, as the block group item says once all delayed refs have run.
    pub(crate) used: u64,
    /// The value that the item holds now.
    pub(crate) recorded_used: u64,
    /// What can be handed out.
    pub(crate) free: FreeSpace,
    /// What could be handed out if nothing lived here: all but what is reserved.
    pub(crate) capacity: u64,
    /// Bytes freed whose last commit still reaches them.
    pub(crate) pinned: u64,
    /// Where the last tree block went.
    pub(crate) cursor: u64,
    /// How many ask that nothing new be placed here (scrub, balance, removal); nests.
    pub(crate) read_only: u32,
    /// Writers in place that are on their way; a group with any does not become read-only.
    pub(crate) nocow_writers: u32,
    /// Data extents handed out that no file refers to yet.
    pub(crate) reservations: u32,
    /// How many ask that the range is not used for another group when this one goes; nests.
    pub(crate) frozen: u32,
    /// Gone: its items are removed.
    pub(crate) removed: bool,
}

impl GroupState {
    /// What can be handed out; nothing of a group that is read-only or gone. Only who holds the lock knows.
    fn offered(&mut self) -> Option<&mut FreeSpace> {
        (self.read_only == 0 && !self.removed).then_some(&mut self.free)
    }
}

impl BlockGroup {
    /// A group of which `used` bytes are in extents and none are free; those are given to it by [`Self::give_back`].
    pub(crate) fn new(
        start: Logical,
        len: u64,
        flags: BlockGroupFlags,
        sector_size: u32,
        used: u64,
        reserved: Vec<(u64, u64)>,
    ) -> Self {
        let sector = u64::from(sector_size);
        let state = GroupState {
            used,
            recorded_used: used,
            free: FreeSpace::new(start.get(), len, sector),
            capacity: without(&reserved, start.get(), len).iter().map(|&(_, len)| len).sum(),
            pinned: 0,
            cursor: 0,
            read_only: 0,
            nocow_writers: 0,
            reservations: 0,
            frozen: 0,
            removed: false,
        };
        Self { start, len, flags, reserved, sector, state: RankedMutex::new(state) }
    }

    /// Whether these are whole sectors of the group.
    pub(crate) fn holds(&self, at: Logical, len: u64) -> bool {
        let whole = at.is_aligned(self.sector) && len.is_multiple_of(self.sector) && len > 0;
        whole && at >= self.start && at.checked_add(len).is_some_and(|end| end <= self.end())
    }

    /// Gives space back, but for what is reserved; false when a part of it is free already.
    #[must_use]
    pub(crate) fn give_back(&self, state: &mut GroupState, at: u64, len: u64) -> bool {
        without(&self.reserved, at, len).into_iter().all(|(at, len)| state.free.add(at, len))
    }

    pub(crate) fn end(&self) -> Logical {
        self.start + self.len
    }

    /// Bytes that can be handed out now.
    pub(crate) fn available(&self) -> u64 {
        self.state.lock().offered().map_or(0, |free| free.total())
    }

    /// The most that can be handed out now in one piece.
    pub(crate) fn longest(&self) -> u64 {
        self.state.lock().offered().map_or(0, |free| free.longest())
    }

    /// Hands out data space: `len` bytes, else the longest extent here, not below `min`.
    pub(crate) fn allocate_data(&self, len: u64, min: u64) -> Option<(Logical, u64)> {
        let mut state = self.state.lock();
        let (at, got) = state.offered()?.allocate_best(len, min)?;
        state.reservations += 1;
        Some((Logical::new(at), got))
    }

    /// Hands out a tree block of `len` bytes, behind the last one where there is room.
    pub(crate) fn allocate_block(&self, len: u64) -> Option<Logical> {
        let mut state = self.state.lock();
        let cursor = state.cursor;
        let at = state.offered()?.allocate_aligned(len, cursor)?;
        state.cursor = at + len;
        Some(Logical::new(at))
    }

    /// Whether nothing lives here and nothing is on its way, so that the group can be given back.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        // What was handed out in this transaction is not counted as used yet, but it is not free either.
        state.free.total() == state.capacity
            && state.used == 0
            && state.recorded_used == 0
            && state.pinned == 0
            && state.reservations == 0
            && state.nocow_writers == 0
            && state.frozen == 0
            && state.read_only == 0
            && !state.removed
    }
}

/// The parts of a range that are not in any of the ascending `reserved` ones.
fn without(reserved: &[(u64, u64)], start: u64, len: u64) -> SmallVec<[(u64, u64); 2]> {
    let mut kept = SmallVec::new();
    let (mut at, end) = (start, start + len);
    for &(from, from_len) in reserved {
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

    const START: u64 = 1 << 20;

    fn group(used: u64, reserved: Vec<(u64, u64)>, free: &[(u64, u64)]) -> BlockGroup {
        let (start, flags) = (Logical::new(START), BlockGroupFlags::METADATA);
        let group = BlockGroup::new(start, 1 << 20, flags, 4096, used, reserved);
        assert!(free.iter().all(|&(at, len)| group.give_back(&mut group.state.lock(), at, len)));
        group
    }

    #[test]
    fn a_read_only_group_offers_nothing() {
        let group = group(0, Vec::new(), &[(START, 1 << 20)]);
        assert_eq!(group.available(), 1 << 20);
        group.state.lock().read_only = 1;
        assert_eq!(group.available(), 0);
        assert!(!group.is_idle());
    }

    #[test]
    fn what_is_reserved_does_not_become_free() {
        let start = START;
        let reserved = vec![(start, 65536), (start + 65536, 65536)];
        let group = group(16384, reserved, &[(start + 16384, 1 << 19)]);
        assert_eq!(group.available(), (1 << 19) + 16384 - 131_072);
        let before = group.available();
        assert!(group.give_back(&mut group.state.lock(), start, 16384));
        assert_eq!(group.available(), before);
        assert!(group.give_back(&mut group.state.lock(), start + (1 << 19) + 16384, 4096));
        assert_eq!(group.available(), before + 4096);
    }

    #[test]
    fn a_group_from_which_something_was_handed_out_is_not_idle() {
        let group = group(0, Vec::new(), &[(START, 1 << 20)]);
        assert!(group.is_idle());
        let (at, len) = group.state.lock().free.allocate_best(4096, 4096).expect("room");
        assert!(!group.is_idle());
        assert!(group.state.lock().free.add(at, len));
        assert!(group.is_idle());
    }
}
