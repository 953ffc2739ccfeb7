//! Operations on space that span its owners.

use std::collections::HashSet;

use creamery_base::{Logical, Result};
use creamery_format::RawDevItem;
use creamery_volume::Chunk;

use super::Engine;
use crate::chunk_allocator::{NewChunk, excluded_ranges};
use crate::flush_policy::FlushPolicy;
use crate::free_space_tree::GroupFreeSpace;
use crate::handle::Handle;
use crate::space_info::{BlockGroup, SpaceInfo, SpaceKind};

/// Most groups that one commit removes: its critical section must not get long for space that no thread waits for.
const REMOVED_AT_ONCE: usize = 64;

impl Engine {
    /// Reads the block group of every chunk, and its free space where that is needed.
    pub(super) fn load_groups(&self, with_free_space: bool) -> Result<()> {
        let mut claimed = HashSet::new();
        for chunk in self.volume().chunks() {
            let used = self.used_of(&chunk)?;
            if with_free_space {
                self.chunks.claim_device_extents(&chunk, &mut claimed)?;
            }
            let sector = self.sector_size();
            let excluded = excluded_ranges(&chunk);
            let group = BlockGroup::new(chunk.start, chunk.len, chunk.flags, sector, used, excluded);
            if with_free_space {
                self.each_free_extent(&chunk, used, &mut |start, len| {
                    let free = group.give_back(Logical::new(start), len);
                    assert!(free, "free extents were checked when they were read");
                })?;
            }
            self.space.add_group(group);
        }
        if with_free_space { self.chunks.check_claimed(&claimed) } else { Ok(()) }
    }

    /// Visits the free extents of a chunk with `used` bytes in use, in the last commit, in order. Errors: device errors; damage.
    fn each_free_extent(&self, chunk: &Chunk, used: u64, visit: &mut dyn FnMut(u64, u64)) -> Result<()> {
        match self.free_space_tree.tree() {
            Some(tree) => {
                GroupFreeSpace::new(tree, chunk.start, chunk.len, self.sector_size()).each_extent(visit)
            }
            None => {
                let sector = u64::from(self.sector_size());
                self.extent_tree.each_gap((chunk.start, chunk.len), used, sector, visit)
            }
        }
    }

    /// Makes a chunk for `kind`, unless one was made since the count was `seen`; false when no device has room for a useful one.
    /// Waits for a commit's critical section to end.
    pub(super) fn allocate_chunk(&self, kind: SpaceKind, seen: u64) -> Result<bool> {
        let running = self.join();
        let wish = NewChunk { kind, seen, generation: self.generation() };
        self.chunks.allocate(&self.space, wish, &|| self.claim(), &running)
    }

    /// Whether chunks wait for their items, or a thread waits for groups to be removed.
    pub(super) fn has_pending_chunks(&self) -> bool {
        self.chunks.has_work()
    }

    /// Bytes on the devices that are in no chunk.
    pub(super) fn unallocated(&self) -> u64 {
        self.chunks.unallocated()
    }

    /// The number of devices in the chunk tree.
    pub(super) fn device_count(&self) -> u64 {
        self.chunks.device_count()
    }

    /// The chunk tree's item of the superblock's device.
    pub(super) fn recorded_device(&self) -> Result<RawDevItem> {
        let dev = self.superblock.device();
        self.chunks.recorded_device(dev)
    }

    /// Writes the items of all pending chunks. True when there were any.
    pub(super) fn record_chunks(&self, handle: &Handle<'_>) -> Result<bool> {
        let pending = self.chunks.take_pending(handle.generation());
        for chunk in &pending {
            self.chunks.record(handle, chunk, &self.superblock)?;
            let group = self.space.group_at(chunk.start).expect("a pending chunk has its group");
            self.block_groups.insert(handle, &group)?;
            if let Some(free) = self.free_space_tree.of_group(&group) {
                free.create(handle)?;
            }
        }
        if !pending.is_empty() {
            self.chunks.record_device_use(handle)?;
            self.chunks.recorded();
        }
        Ok(!pending.is_empty())
    }

    /// Writes the used bytes of every group in which they changed. True when there were any.
    pub(super) fn record_groups(&self, handle: &Handle<'_>) -> Result<bool> {
        let mut any = false;
        for group in self.space.changed_groups() {
            if let Some(used) = group.take_change() {
                self.block_groups.set_used(handle, &group, used)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Removes some empty block groups, except one of each sort. Called at the beginning of a commit.
    /// True when it removed any.
    pub(super) fn remove_idle_groups(&self, handle: &Handle<'_>) -> Result<bool> {
        self.chunks.begin_removal();
        let mut left = REMOVED_AT_ONCE;
        for info in self.space.removable() {
            for start in self.removable_groups(info, left) {
                // The removal of other groups may have taken the room for this one's removal, or count on this group.
                let may_go = |group: &_| self.is_removal_affordable() && self.may_go(group);
                let group = self.space.group_at(start).filter(|group| may_go(group));
                if let Some(group) = group.filter(|group| self.retire(group)) {
                    self.remove_group(handle, &group)?;
                    left -= 1;
                }
            }
        }
        let removed = left < REMOVED_AT_ONCE;
        if removed {
            self.chunks.record_device_use(handle)?;
        }
        Ok(removed)
    }

    /// Whether the next commit would remove groups, so that there is a place for one of `kind`. If so, it makes the next commit do that, even if it has
    /// nothing else to do. Groups of `kind` itself do not count: their removal gains nothing.
    pub(super) fn want_idle_groups_removed(&self, kind: SpaceKind) -> bool {
        let _running = self.join();
        let mut infos = self.space.removable_for(kind);
        let any = infos.any(|info| !self.removable_groups(info, 1).is_empty());
        if any {
            self.chunks.want_removal();
        }
        any
    }

    /// Up to `most` groups of one sort that may go, without the last of its sort.
    fn removable_groups(&self, info: &SpaceInfo, most: usize) -> Vec<Logical> {
        let most = if self.is_removal_affordable() { most.min(info.groups().saturating_sub(1)) } else { 0 };
        let may_go = |start: &Logical| self.space.group_at(*start).is_some_and(|group| self.may_go(&group));
        info.idle().into_iter().filter(may_go).take(most).collect()
    }

    fn may_go(&self, group: &BlockGroup) -> bool {
        group.is_idle()
            && !self.chunks.is_pending(group.start)
            && self.chunks.may_remove(&self.space)
            && !self.counts_on(group)
    }

    /// Whether there is room for the leaves that the removal of a group changes, besides this commit's own need: no
    /// promise covers it.
    fn is_removal_affordable(&self) -> bool {
        self.space.available(SpaceKind::Metadata) >= self.need_of_this_commit() + self.removal_bytes()
    }

    /// Stops allocation from a group, unless delayed data counts on it by now, or a discard withholds some of it. Asking and
    /// leaving is one step.
    fn retire(&self, group: &BlockGroup) -> bool {
        let _alone = self.reservations.hold();
        !self.counts_on(group) && group.leave()
    }

    /// Whether delayed data, this commit and the next operations may need an idle group's space. Room was kept and handles began
    /// because of it (DELALLOC-7, RESERVE-1), and the next operation would allocate it again at once.
    fn counts_on(&self, group: &BlockGroup) -> bool {
        let is_for = |kind: SpaceKind| group.flags.contains(kind.flag());
        if is_for(SpaceKind::Data)
            && self.data_room().saturating_sub(group.available()) < self.delalloc.data()
        {
            return true;
        }
        let others = self.space.available(SpaceKind::Metadata).saturating_sub(group.available());
        let delayed = self.delalloc.metadata();
        let promised = self.reservations.may_use() + delayed;
        let wanted = if delayed > 0 { self.wanted_later(promised, FlushPolicy::NoFlush) } else { 0 };
        is_for(SpaceKind::Metadata) && others < wanted.max(2 * self.whole_commit_need(0))
    }

    /// Removes a group that has left.
    fn remove_group(&self, handle: &Handle<'_>, group: &BlockGroup) -> Result<()> {
        self.block_groups.remove(handle, group)?;
        if let Some(free) = self.free_space_tree.of_group(group) {
            free.delete(handle)?;
        }
        self.chunks.remove(handle, group.start)?;
        self.space.remove_group(group.start);
        Ok(())
    }

    /// Makes the device extents of removed chunks available again, after the commit that removed them is durable (CHUNK-3).
    pub(super) fn release_device_extents(&self) {
        self.chunks.release_device_extents(self.volume().generation());
    }
}
