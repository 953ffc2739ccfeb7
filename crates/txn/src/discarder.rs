//! Discarding free space: the space that a commit frees, and all of it. `discard` describes when.

use std::sync::Arc;

use creamery_base::{Logical, Result};
use creamery_volume::Volume;

use crate::background::Background;
use crate::discard::{DiscardPolicy, Discards, joined};
use crate::headroom::{CommitNeed, Headroom};
use crate::space_info::{BlockGroup, SpaceKind};

/// Most free space withheld at once, bytes: other threads may need it.
const AT_ONCE: u64 = 64 << 20;
/// Extents that one step of the background looks at.
const EXTENTS_PER_STEP: usize = 64;

/// Free space that no thread can allocate. It goes back when dropped.
struct WithheldSpace {
    group: Arc<BlockGroup>,
    start: Logical,
    len: u64,
}

impl Drop for WithheldSpace {
    fn drop(&mut self) {
        self.group.put_back(self.start, self.len);
    }
}

/// Releases freed space, and discards free space.
#[derive(Clone, Copy)]
pub(crate) struct Discarder<'e> {
    pub(crate) discards: &'e Discards,
    pub(crate) volume: &'e Volume,
    pub(crate) background: &'e Background,
    pub(crate) headroom: Headroom<'e>,
}

impl Discarder<'_> {
    /// Makes freed extents available again; discards them according to the policy.
    pub(crate) fn release(&self, freed: &[(Logical, u64)]) -> Result<()> {
        let policy = self.discards.policy();
        let in_one_group = |before, behind| {
            let start = |at| self.headroom.need.space.group_at(at).map(|group| group.start);
            start(before) == start(behind)
        };
        if policy == DiscardPolicy::Sync {
            for (at, len) in joined(freed, in_one_group) {
                // The volume counts a failure; no data is lost by it.
                let _ = self.volume.discard(at, len);
            }
        }
        freed.iter().try_for_each(|&(at, len)| self.headroom.need.space.unpin(at, len))?;
        if policy == DiscardPolicy::Async && !freed.is_empty() {
            self.discards.push(joined(freed, in_one_group));
            self.background.wake();
        }
        Ok(())
    }

    /// Discards some of the extents that wait for it.
    pub(crate) fn step(&self) -> Result<()> {
        let min = u64::from(self.volume.sector_size());
        for _ in 0..EXTENTS_PER_STEP {
            let Some(extent) = self.discards.pop() else { break };
            let (start, len) = extent;
            self.discard((start.get(), start.get() + len), min)?;
        }
        Ok(())
    }

    /// Discards free space that lies in pieces of at least `min` bytes between two logical addresses, and, where the addresses begin at 0,
    /// unallocated space of the devices. Returns its bytes, and the bytes that the devices discarded.
    ///
    /// # Errors
    /// Those of the devices.
    pub(crate) fn discard_all(&self, (start, end): (u64, u64), min: u64) -> Result<(u64, u64)> {
        let CommitNeed { space, chunks, .. } = self.headroom.need;
        let sector = u64::from(self.volume.sector_size());
        let min = min.max(sector);
        let (mut found, mut told) = (0, 0);
        for group in space.groups() {
            let (first, last) = (group.start.get(), group.end().get());
            let range = (start.clamp(first, last).next_multiple_of(sector), end.min(last) / sector * sector);
            let (len, bytes) = self.discard(range, min)?;
            found += len;
            told += bytes;
        }
        if start == 0 {
            let (len, bytes) = chunks.discard_unallocated(min)?;
            found += len;
            told += bytes;
        }
        Ok((found, told))
    }

    /// Discards the free space of a range in a block group. Returns its bytes, and the bytes that the devices discarded.
    fn discard(&self, (mut at, end): (u64, u64), min: u64) -> Result<(u64, u64)> {
        let (mut found, mut told) = (0, 0);
        // The rest of the last part: with the piece already discarded it is long enough.
        let mut rest = 0;
        while at < end {
            let _turn = self.discards.take_turn();
            let (range, least) = if rest > 0 { ((at, at + rest), 1) } else { ((at, end), min) };
            let Some((part, more)) = self.take_free(range, least) else {
                if rest == 0 {
                    break;
                }
                (at, rest) = (at + rest, 0); // another thread has it by now
                continue;
            };
            (at, rest) = (part.start.get() + part.len, more);
            found += part.len;
            told += self.volume.discard(part.start, part.len)?;
        }
        Ok((found, told))
    }

    /// Withholds the first free part of a range in a block group, or its front, until the result is dropped (DISCARD-1).
    /// Also returns how much more of the part there is.
    fn take_free(&self, range: (u64, u64), min: u64) -> Option<(WithheldSpace, u64)> {
        let group = self.headroom.need.space.group_at(Logical::new(range.0))?;
        let range = (range.0, range.1.min(group.end().get()));
        let kinds = [SpaceKind::Data, SpaceKind::Metadata].map(|kind| group.flags.contains(kind.flag()));
        // A promise given meanwhile is of the rest.
        let (most, _alone) = match kinds {
            [true, false] => (AT_ONCE, None),
            [_, true] => {
                self.headroom.need.reservations.call_in();
                let alone = self.headroom.need.reservations.hold();
                let spare = self.headroom.unpromised_metadata();
                (AT_ONCE.min(spare - spare % u64::from(self.volume.sector_size())), Some(alone))
            }
            // The chunk tree's groups have some megabytes, and promises are not for them.
            [false, false] => return None,
        };
        let (start, len, rest) = group.take_part(range, min, most)?;
        Some((WithheldSpace { group, start, len }, rest))
    }
}
