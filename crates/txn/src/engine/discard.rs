//! Discarding what is free: what a commit frees, and all of it.

use std::sync::Arc;

use creamery_base::{Error, Logical, Result};

use super::Engine;
use crate::discard::{DiscardPolicy, Trimmed, joined};
use crate::flush_policy::FlushPolicy;
use crate::held;
use crate::space_info::{BlockGroup, SpaceKind};

/// Free space that is out of everybody's reach at once at most, bytes: others may need it.
const AT_ONCE: u64 = 64 << 20;
/// Extents that one step of the background looks at.
const EXTENTS_PER_STEP: usize = 64;

/// Free space out of everybody's reach. It goes back when dropped.
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
    /// Discards, from now on, what is freed, or does not.
    pub fn set_discard(&self, policy: DiscardPolicy) {
        self.discards.set_policy(policy);
    }

    /// Discards free space that lies in pieces of at least `min` bytes: between two logical addresses in block groups of data and
    /// of metadata, as far as nobody was promised it, and, where the addresses begin at 0, what no chunk has. What was freed
    /// since the last commit is committed first.
    /// Errors: read-only; aborted; those of the commit and the devices; unsupported, when no device has such a thing.
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
            return Err(Error::unsupported(format!("discarding bytes of {devices}")));
        }
        Ok(trimmed)
    }

    /// Extents that were freed can be handed out from now on; they are discarded as the policy says.
    pub(super) fn release(&self, freed: &[(Logical, u64)]) -> Result<()> {
        let policy = self.discards.policy();
        let in_one_group = |before, behind| {
            let start = |at| self.space.group_at(at).map(|group| group.start);
            start(before) == start(behind)
        };
        if policy == DiscardPolicy::Sync {
            for (at, len) in joined(freed, in_one_group) {
                // It is counted; nobody has lost anything.
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

    /// Whether something waits to be discarded.
    pub(super) fn has_discards(&self) -> bool {
        !self.discards.is_empty()
    }

    /// Discards some of what waits for it.
    pub(super) fn discard_step(&self) -> Result<()> {
        let min = u64::from(self.sector_size());
        for _ in 0..EXTENTS_PER_STEP {
            let Some(extent) = self.discards.pop() else { break };
            let (start, len) = extent;
            self.discard_free((start.get(), start.get() + len), min)?;
        }
        Ok(())
    }

    /// Discards what waits for it when the filesystem is closed: nobody will do it later. A device that fails has lost nothing.
    pub(super) fn discard_the_rest(&self) {
        while self.has_changes() && self.has_discards() && self.discard_step().is_ok() {}
    }

    /// Discards what is free of a range of a block group; returns how much that was, and what the devices were told.
    fn discard_free(&self, (mut at, end): (u64, u64), min: u64) -> Result<(u64, u64)> {
        let (mut found, mut told) = (0, 0);
        // Behind what was taken, how much more there was of the same part: that is long enough with it.
        let mut rest = 0;
        while at < end {
            let _turn = self.discards.take_turn();
            let (range, least) = if rest > 0 { ((at, at + rest), 1) } else { ((at, end), min) };
            let Some((part, more)) = self.take_free(range, least) else {
                if rest == 0 {
                    break;
                }
                (at, rest) = (at + rest, 0); // somebody has it by now
                continue;
            };
            (at, rest) = (part.start.get() + part.len, more);
            found += part.len;
            told += self.volume().discard(part.start, part.len)?;
        }
        Ok((found, told))
    }

    /// The first free part of a range in a block group, or its front, out of everybody's reach until it is dropped (DISCARD-1);
    /// and how much more of it there is.
    fn take_free(&self, range: (u64, u64), min: u64) -> Option<(Withheld, u64)> {
        let group = self.space.group_at(Logical::new(range.0))?;
        let range = (range.0, range.1.min(group.end().get()));
        let kinds = [SpaceKind::Data, SpaceKind::Metadata].map(|kind| group.flags.contains(kind.flag()));
        // Whoever is promised something meanwhile is promised what is left.
        let (most, _alone) = match kinds {
            [true, false] => (AT_ONCE, None),
            [_, true] => {
                self.reservations.call_in();
                let alone = self.reservations.hold();
                let spare = self.unpromised_metadata();
                (AT_ONCE.min(spare - spare % u64::from(self.sector_size())), Some(alone))
            }
            // The chunk tree's own is some megabytes, and nobody is promised any of it.
            [false, false] => return None,
        };
        let (start, len, rest) = group.take_part(range, min, most)?;
        Some((Withheld { group, start, len }, rest))
    }

    /// Bytes of metadata that nobody was promised, and no commit and nobody who frees space may need (DISCARD-2).
    fn unpromised_metadata(&self) -> u64 {
        let wanted = self.wanted(self.reservations.may_use(), FlushPolicy::FlushAll);
        self.space.available(SpaceKind::Metadata).saturating_sub(wanted)
    }
}
