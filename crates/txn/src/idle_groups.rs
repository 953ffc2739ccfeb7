//! Empty block groups: a commit removes them, so that their place on the devices is there for chunks of another kind.
//!
//! The last group of a sort stays, and so does a group whose space delayed data, the commit or the next operations count on.

use creamery_base::{Logical, Result};
use creamery_tree::CowHost;

use crate::flush_policy::FlushPolicy;
use crate::group_records::GroupRecords;
use crate::headroom::Headroom;
use crate::space_info::{BlockGroup, SpaceInfo, SpaceKind};

/// Most groups that one commit removes: its critical section must not get long for space that no thread waits for.
const REMOVED_AT_ONCE: usize = 64;
/// Leaves that change when a block group with at most two copies goes: for its item, its free space, its device extents.
const ITEMS_PER_REMOVAL: u64 = 4;

/// Finds empty block groups that may go, and removes them.
#[derive(Clone, Copy)]
pub(crate) struct IdleGroups<'e> {
    pub(crate) records: GroupRecords<'e>,
    pub(crate) headroom: Headroom<'e>,
}

impl IdleGroups<'_> {
    /// Removes some empty block groups, except one of each sort. Called at the beginning of a commit.
    /// True when it removed any.
    ///
    /// # Errors
    /// Those of the trees. The caller aborts.
    pub(crate) fn remove(&self, host: &dyn CowHost) -> Result<bool> {
        let GroupRecords { chunks, space, .. } = self.records;
        chunks.begin_removal();
        let mut left = REMOVED_AT_ONCE;
        for info in space.removable() {
            for start in self.removable(info, left) {
                // The removal of other groups may have taken the room for this one's removal, or count on this group.
                let may_go = |group: &_| self.is_removal_affordable() && self.may_go(group);
                let group = space.group_at(start).filter(|group| may_go(group));
                if let Some(group) = group.filter(|group| self.retire(group)) {
                    self.records.remove(host, &group)?;
                    left -= 1;
                }
            }
        }
        let removed = left < REMOVED_AT_ONCE;
        if removed {
            chunks.record_device_use(host)?;
        }
        Ok(removed)
    }

    /// Whether the next commit would remove groups, so that there is a place for one of `kind`. If so, it makes the next commit do that, even if it has
    /// nothing else to do. Groups of `kind` itself do not count: their removal gains nothing.
    pub(crate) fn want_removal_for(&self, kind: SpaceKind) -> bool {
        let _running = self.headroom.transaction.join();
        let mut infos = self.records.space.removable_for(kind);
        let any = infos.any(|info| !self.removable(info, 1).is_empty());
        if any {
            self.records.chunks.want_removal();
        }
        any
    }

    /// Up to `most` groups of one sort that may go, without the last of its sort.
    fn removable(&self, info: &SpaceInfo, most: usize) -> Vec<Logical> {
        let space = self.records.space;
        let most = if self.is_removal_affordable() { most.min(info.groups().saturating_sub(1)) } else { 0 };
        let may_go = |start: &Logical| space.group_at(*start).is_some_and(|group| self.may_go(&group));
        info.idle().into_iter().filter(may_go).take(most).collect()
    }

    fn may_go(&self, group: &BlockGroup) -> bool {
        let GroupRecords { chunks, space, .. } = self.records;
        group.is_idle()
            && !chunks.is_pending(group.start)
            && chunks.may_remove(space)
            && !self.is_counted_on(group)
    }

    /// Whether there is room for the leaves that the removal of a group changes, besides this commit's own need: no
    /// promise covers it.
    fn is_removal_affordable(&self) -> bool {
        let removal = ITEMS_PER_REMOVAL * self.headroom.item_bytes();
        self.records.space.available(SpaceKind::Metadata) >= self.headroom.need.closed() + removal
    }

    /// Stops allocation from a group, unless delayed data counts on it by now, or a discard withholds some of it. Asking and
    /// leaving is one step.
    fn retire(&self, group: &BlockGroup) -> bool {
        let _alone = self.headroom.need.reservations.hold();
        !self.is_counted_on(group) && group.leave()
    }

    /// Whether delayed data, this commit and the next operations may need an idle group's space. Room was kept and handles began
    /// because of it (DELALLOC-7, RESERVE-1), and the next operation would allocate it again at once.
    fn is_counted_on(&self, group: &BlockGroup) -> bool {
        let Headroom { need, delalloc, .. } = self.headroom;
        let is_for = |kind: SpaceKind| group.flags.contains(kind.flag());
        if is_for(SpaceKind::Data)
            && self.headroom.data_room().saturating_sub(group.available()) < delalloc.data()
        {
            return true;
        }
        let others = self.records.space.available(SpaceKind::Metadata).saturating_sub(group.available());
        let delayed = delalloc.metadata();
        let promised = need.reservations.may_use() + delayed;
        let wanted = if delayed > 0 { self.headroom.wanted_later(promised, FlushPolicy::NoFlush) } else { 0 };
        is_for(SpaceKind::Metadata) && others < wanted.max(2 * need.whole(0))
    }
}
