//! Space: all block groups, by address and by what they hold, and the counters of what was promised.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedMutex, RankedRwLock, rank};
use creamery_base::{CachePadded, Error, ErrorKind, Logical, Result};
use creamery_format::BlockGroupFlags;

use crate::advance::Advances;
use crate::block_group::BlockGroup;

/// What a block group is for.
///
/// ```
/// use creamery_txn::SpaceKind;
/// assert_eq!(SpaceKind::Data.to_string(), "data");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SpaceKind {
    /// File data.
    Data,
    /// All trees but the chunk tree.
    Metadata,
    /// The chunk tree.
    System,
}

impl SpaceKind {
    pub(crate) fn flag(self) -> BlockGroupFlags {
        match self {
            Self::Data => BlockGroupFlags::DATA,
            Self::Metadata => BlockGroupFlags::METADATA,
            Self::System => BlockGroupFlags::SYSTEM,
        }
    }
}

impl std::fmt::Display for SpaceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Metadata => "metadata",
            Self::System => "system",
        })
    }
}

/// All block groups of a filesystem.
pub(crate) struct Space {
    groups: RankedRwLock<BTreeMap<Logical, Arc<BlockGroup>>, { rank::SPACE }>,
    /// Metadata bytes promised to open handles, to what they put off, and to threads in advance.
    pub(crate) promised: Arc<CachePadded<AtomicU64>>,
    pub(crate) advances: Advances,
    /// Held while data is taken out of groups that it shares with metadata.
    pub(crate) sharing: RankedMutex<(), { rank::SHARED_GROUPS }>,
    bytes_used: CachePadded<AtomicU64>,
}

impl Space {
    pub(crate) fn new(bytes_used: u64) -> Self {
        Self {
            groups: RankedRwLock::new(BTreeMap::new()),
            promised: Arc::default(),
            advances: Advances::default(),
            sharing: RankedMutex::new(()),
            bytes_used: CachePadded::new(AtomicU64::new(bytes_used)),
        }
    }

    /// Metadata bytes promised to open handles, and to what they put off; threads' advances left out.
    pub(crate) fn promised_to_handles(&self) -> u64 {
        self.promised.load(Ordering::Relaxed).saturating_sub(self.advances.bytes())
    }

    pub(crate) fn add_group(&self, group: Arc<BlockGroup>) {
        self.groups.write().insert(group.start, group);
    }

    pub(crate) fn remove_group(&self, start: Logical) {
        self.groups.write().remove(&start);
    }

    /// All groups in order of address.
    pub(crate) fn groups(&self) -> Vec<Arc<BlockGroup>> {
        self.groups.read().values().cloned().collect()
    }

    /// Groups that hold this kind. A mixed group holds data and metadata.
    pub(crate) fn groups_of(&self, kind: SpaceKind) -> Vec<Arc<BlockGroup>> {
        let groups = self.groups.read();
        groups.values().filter(|group| group.flags.contains(kind.flag())).cloned().collect()
    }

    /// The group that an address lies in.
    pub(crate) fn group_at(&self, at: Logical) -> Option<Arc<BlockGroup>> {
        let groups = self.groups.read();
        let (_, group) = groups.range(..=at).next_back()?;
        (at < group.end()).then(|| Arc::clone(group))
    }

    /// Bytes of this kind that can be handed out now.
    pub(crate) fn available(&self, kind: SpaceKind) -> u64 {
        self.available_up_to(kind, u64::MAX)
    }

    /// The same, counted no further than to `enough`: most of the time the first group with any room has it.
    pub(crate) fn available_up_to(&self, kind: SpaceKind, enough: u64) -> u64 {
        let groups = self.groups.read();
        let mut available = 0;
        for group in groups.values().filter(|group| group.flags.contains(kind.flag())) {
            available += group.available();
            if available >= enough {
                break;
            }
        }
        available
    }

    /// Hands out one tree block of `len` bytes, first the group that took the last one.
    pub(crate) fn allocate_block(&self, kind: SpaceKind, len: u64, hint: Logical) -> Option<Logical> {
        let groups = self.groups.read();
        let hinted = groups.range(..=hint).next_back().map(|(_, group)| group);
        let wanted = |group: &&Arc<BlockGroup>| group.flags.contains(kind.flag());
        let mut candidates = hinted.filter(wanted).into_iter().chain(groups.values().filter(wanted));
        candidates.find_map(|group| group.allocate_block(len))
    }

    /// Hands out data space: `len` bytes, else the longest extent there is, not below `min`.
    pub(crate) fn allocate_data(&self, len: u64, min: u64) -> Option<(Arc<BlockGroup>, Logical, u64)> {
        let mut groups = self.groups_of(SpaceKind::Data);
        let of = |group: &Arc<BlockGroup>, min| {
            group.allocate_data(len, min).map(|(at, got)| (Arc::clone(group), at, got))
        };
        groups.iter().find_map(|group| of(group, len)).or_else(|| {
            groups.sort_by_cached_key(|group| Reverse(group.longest()));
            groups.iter().find_map(|group| of(group, min))
        })
    }

    /// The group that holds all of an extent. Extents come from the disk, so there may be none.
    fn group_of(&self, at: Logical, len: u64) -> Result<Arc<BlockGroup>> {
        let group = self.group_at(at).filter(|group| group.holds(at, len));
        group.ok_or_else(|| damaged(at, len, "is no whole sectors of a block group"))
    }

    /// Counts bytes that an extent item now stands for, or no longer.
    ///
    /// # Errors
    /// Damage: the extent lies in no block group, or the group's item and the extents in it disagree.
    pub(crate) fn count_used(&self, at: Logical, len: u64, added: bool) -> Result<()> {
        let group = self.group_of(at, len)?;
        let mut state = group.state.lock();
        let all = self.bytes_used.load(Ordering::Relaxed);
        let counted = |sum: u64| if added { sum.checked_add(len) } else { sum.checked_sub(len) };
        let (Some(used), Some(all)) = (counted(state.used).filter(|&used| used <= group.len), counted(all))
        else {
            return Err(damaged(
                at,
                len,
                "does not fit to what its block group and the superblock count as used",
            ));
        };
        state.used = used;
        // Only the commit counts, one at a time.
        self.bytes_used.store(all, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes in extents, all groups together; what the superblock records.
    pub(crate) fn bytes_used(&self) -> u64 {
        self.bytes_used.load(Ordering::Relaxed)
    }

    /// Gives space back that nothing durable reaches.
    ///
    /// # Errors
    /// Damage: it is free already.
    pub(crate) fn give_back(&self, at: Logical, len: u64) -> Result<()> {
        let group = self.group_of(at, len)?;
        let added = group.give_back(&mut group.state.lock(), at.get(), len);
        if added { Ok(()) } else { Err(damaged(at, len, FREE_ALREADY)) }
    }

    /// Marks space as freed but still reached by the last commit.
    ///
    /// # Errors
    /// Damage: it is free already.
    pub(crate) fn pin(&self, at: Logical, len: u64) -> Result<()> {
        let group = self.group_of(at, len)?;
        let mut state = group.state.lock();
        if state.free.overlaps(at.get(), len) {
            return Err(damaged(at, len, FREE_ALREADY));
        }
        state.pinned += len;
        Ok(())
    }

    /// Gives pinned space back, once the superblock that no longer needs it is durable.
    ///
    /// # Errors
    /// Damage: two extents claimed the same space.
    pub(crate) fn unpin(&self, at: Logical, len: u64) -> Result<()> {
        let group = self.group_of(at, len)?;
        let mut state = group.state.lock();
        state.pinned = state.pinned.saturating_sub(len);
        if group.give_back(&mut state, at.get(), len) { Ok(()) } else { Err(damaged(at, len, FREE_ALREADY)) }
    }
}

const FREE_ALREADY: &str = "is freed and is free already";

fn damaged(at: Logical, len: u64, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("extent {at} of {len} bytes {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::atomic::AtomicBool;

    const MIB: u64 = 1 << 20;
    const ROUNDS: usize = 2_000;

    /// One group from 1 to 2 MiB, of which the first half is used.
    fn space() -> Space {
        let space = Space::new(MIB / 2);
        let (start, flags) = (Logical::new(MIB), BlockGroupFlags::DATA);
        let group = BlockGroup::new(start, MIB, flags, 4096, MIB / 2, Vec::new());
        assert!(group.give_back(&mut group.state.lock(), MIB + MIB / 2, MIB / 2));
        space.add_group(Arc::new(group));
        space
    }

    fn is_damage(outcome: Result<()>) -> bool {
        outcome.is_err_and(|error| error.kind() == ErrorKind::Corrupt)
    }

    #[test]
    fn extents_outside_block_groups_are_damage() {
        let space = space();
        for (at, len) in
            [(0, 4096), (2 * MIB, 4096), (MIB - 4096, 8192), (2 * MIB - 4096, 8192), (MIB, u64::MAX)]
                .into_iter()
                .chain([(MIB, 0), (MIB + 2048, 4096), (MIB, 6144)])
        {
            let at = Logical::new(at);
            assert!(is_damage(space.count_used(at, len, false)), "{at} of {len}");
            assert!(is_damage(space.pin(at, len)), "{at} of {len}");
            assert!(is_damage(space.give_back(at, len)), "{at} of {len}");
        }
    }

    #[test]
    fn counts_that_cannot_be_are_damage_and_change_nothing() {
        let space = space();
        let start = Logical::new(MIB);
        assert!(is_damage(space.count_used(start, MIB, false)), "more than is used");
        assert!(is_damage(space.count_used(start, MIB, true)), "more than the group has");
        assert_eq!(space.bytes_used(), MIB / 2);
        assert!(space.count_used(start, MIB / 2, false).is_ok());
        assert_eq!(space.bytes_used(), 0);
    }

    #[test]
    fn space_that_is_free_cannot_be_freed() {
        let space = space();
        let (used, free) = (Logical::new(MIB), Logical::new(MIB + MIB / 2));
        assert!(is_damage(space.pin(free, 4096)));
        // Two extents that overlap: the second one's space is free when its turn comes.
        assert!(space.pin(used, 8192).is_ok() && space.pin(used, 4096).is_ok());
        assert!(space.unpin(used, 8192).is_ok());
        assert!(is_damage(space.unpin(used, 4096)));
    }

    #[test]
    fn a_group_that_became_read_only_hands_nothing_out() {
        let space = space();
        let group = space.group_at(Logical::new(MIB)).expect("the group");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if let Some((group, at, len)) = space.allocate_data(8192, 4096) {
                        let mut state = group.state.lock();
                        state.reservations -= 1;
                        assert!(state.free.add(at.get(), len));
                    }
                }
            });
            for _ in 0..ROUNDS {
                group.state.lock().read_only += 1;
                let before = group.state.lock().reservations;
                let handed_out = (0..10).any(|_| {
                    std::thread::yield_now();
                    group.state.lock().reservations > before
                });
                group.state.lock().read_only -= 1;
                if handed_out {
                    done.store(true, Ordering::Relaxed);
                    panic!("something was handed out of a read-only group");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
