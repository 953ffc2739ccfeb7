//! Discarding free space: the space that a commit frees, and all of it.

use std::sync::Arc;

use creamery_base::{Error, Logical, Result};

use super::Engine;
use crate::discard::{DiscardPolicy, Trimmed, joined};
use crate::flush_policy::FlushPolicy;
use crate::held;
use crate::space_info::{BlockGroup, SpaceKind};

/// Most free space withheld at once, bytes: other threads may need it.
const AT_ONCE: u64 = 64 << 20;
/// Extents that one step of the background looks at.
const EXTENTS_PER_STEP: usize = 64;

/// Free space that no thread can allocate. It goes back when dropped.
struct Withheld {
    group: Arc<BlockGroup>,
    start: Logical,
    len: u64,
}

impl Drop for Withheld {
    fn drop(&mut self) {
        self.group.put_back(self.start, self.len);
    }
}

impl Engine {
    /// Sets whether and when freed space is discarded, from now on.
    pub fn set_discard(&self, policy: DiscardPolicy) {
        self.discards.set_policy(policy);
    }

    /// Discards free space that lies in pieces of at least `min` bytes: between two logical addresses in block groups of data and
    /// of metadata, except promised room, and, where the addresses begin at 0, unallocated space of the devices. It
    /// commits first, which frees the space of earlier changes.
    /// Errors: read-only; aborted; those of the commit and the devices; unsupported, when no device can discard.
    pub fn trim(&self, (start, end): (u64, u64), min: u64) -> Result<Trimmed> {
        held::assert_none("trimming commits");
        self.check_open()?;
        self.check_writable()?;
        self.commit()?;
        let sector = u64::from(self.sector_size());
        let min = min.max(sector);
        let (mut found, mut trimmed) = (0, Trimmed::default());
        let mut from = Logical::new(0);
        while let Some(group) = self.space.next_group(from) {
            from = group.end();
            let (first, last) = (group.start.get(), group.end().get());
            let range = (start.clamp(first, last).next_multiple_of(sector), end.min(last) / sector * sector);
            let (len, bytes) = self.discard_free(range, min)?;
            found += len;
            trimmed.bytes += bytes;
        }
        if start == 0 {
            let (len, bytes) = self.chunks.discard_unallocated(min)?;
            found += len;
            trimmed.bytes += bytes;
        }
        if found > 0 && trimmed.bytes == 0 {
            let devices = self.volume().describe();
            return Err(Error::unsupported(format!("discarding on {devices}")));
        }
        Ok(trimmed)
    }

    /// Makes freed extents available again; discards them according to the policy.
    pub(super) fn release(&self, freed: &[(Logical, u64)]) -> Result<()> {
        let policy = self.discards.policy();
        let in_one_group = |before, behind| {
            let start = |at| self.space.group_at(at).map(|group| group.start);
            start(before) == start(behind)
        };
        if policy == DiscardPolicy::Sync {
            for (at, len) in joined(freed, in_one_group) {
                // The volume counts a failure; no data is lost by it.
                let _ = self.volume().discard(at, len);
            }
        }
        freed.iter().try_for_each(|&(at, len)| self.space.unpin(at, len))?;
        if policy == DiscardPolicy::Async && !freed.is_empty() {
            self.discards.push(joined(freed, in_one_group));
            self.wake_background();
        }
        Ok(())
    }

    /// Whether extents wait to be discarded.
    pub(super) fn has_discards(&self) -> bool {
        !self.discards.is_empty()
    }

    /// Discards some of the extents that wait for it.
    pub(super) fn discard_step(&self) -> Result<()> {
        let min = u64::from(self.sector_size());
        for _ in 0..EXTENTS_PER_STEP {
            let Some(extent) = self.discards.pop() else { break };
            let (start, len) = extent;
            self.discard_free((start.get(), start.get() + len), min)?;
        }
        Ok(())
    }

    /// Discards the extents that wait for it when the filesystem is closed: the last chance to do so. A failing device loses no data by it.
    pub(super) fn discard_the_rest(&self) {
        while self.has_changes() && self.has_discards() && self.discard_step().is_ok() {}
    }

    /// Discards the free space of a range in a block group. Returns its bytes, and the bytes that the devices discarded.
    fn discard_free(&self, (mut at, end): (u64, u64), min: u64) -> Result<(u64, u64)> {
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
            told += self.volume().discard(part.start, part.len)?;
        }
        Ok((found, told))
    }

    /// Withholds the first free part of a range in a block group, or its front, until the result is dropped (DISCARD-1).
    /// Also returns how much more of the part there is.
    fn take_free(&self, range: (u64, u64), min: u64) -> Option<(Withheld, u64)> {
        let group = self.space.group_at(Logical::new(range.0))?;
        let range = (range.0, range.1.min(group.end().get()));
        let kinds = [SpaceKind::Data, SpaceKind::Metadata].map(|kind| group.flags.contains(kind.flag()));
        // A promise given meanwhile is of the rest.
        let (most, _alone) = match kinds {
            [true, false] => (AT_ONCE, None),
            [_, true] => {
                self.reservations.call_in();
                let alone = self.reservations.hold();
                let spare = self.unpromised_metadata();
                (AT_ONCE.min(spare - spare % u64::from(self.sector_size())), Some(alone))
            }
            // The chunk tree's groups have some megabytes, and promises are not for them.
            [false, false] => return None,
        };
        let (start, len, rest) = group.take_part(range, min, most)?;
        Some((Withheld { group, start, len }, rest))
    }

    /// Bytes of metadata that are not promised, and that neither a commit nor freeing space may need (DISCARD-2).
    fn unpromised_metadata(&self) -> u64 {
        let wanted = self.wanted(self.reservations.may_use(), FlushPolicy::FlushAll);
        self.space.available(SpaceKind::Metadata).saturating_sub(wanted)
    }
}
