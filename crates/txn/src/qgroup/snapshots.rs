//! The effect of a snapshot on the numbers.
//!
//! Right after it, the snapshot reaches all extents that the source reaches, except the source's own root block. Only that block is still
//! exclusive to the source. The snapshot's root block is an extent like any other, and counts as one.
//!
//! For a group above, that is enough in three cases:
//! - It contains both: nothing changes.
//! - It contains only the source: it changes like the source.
//! - It was empty before the snapshot came to it.
//!
//! Else some extents change for it and others do not.

use creamery_base::{Logical, QgroupId};

use super::QuotaMode;
use super::changed::{Before, Roots, SnapshotTaken};
use super::forest::QgroupUsage;
use super::state::QuotaState;

impl QuotaState {
    /// The counted roots of the extent at `at`, with those that snapshots have added since. `commit` has its roots in the last
    /// commit.
    pub(crate) fn counted(&self, at: Logical, before: &Before, commit: Roots) -> Roots {
        let (mut roots, from) = match before {
            Before::Commit => (commit, 0),
            Before::Known(roots, from) => (roots.clone(), *from),
        };
        for taken in &self.taken[from..] {
            if taken.root != at && roots.contains(&taken.source) {
                roots.insert(taken.id);
            }
        }
        roots
    }

    /// Counts a snapshot, which is a member of `groups`. All earlier changes are counted.
    pub(crate) fn snapshot(&mut self, taken: SnapshotTaken, groups: &[QgroupId]) {
        self.begin_group(taken.id, taken.within, groups);
        let (source, id) = (QgroupId::of(taken.source), QgroupId::of(taken.id));
        if self.mode() == QuotaMode::Full {
            self.count_snapshot(taken, source, id);
            self.inherit_limits(source, id);
            self.taken.push(taken);
        }
    }

    fn count_snapshot(&mut self, taken: SnapshotTaken, source: QgroupId, id: QgroupId) {
        let Some(usage) = self.forest.get(source).filter(|_| source.level() == 0).map(|group| group.usage)
        else {
            self.mark_inconsistent();
            return;
        };
        // The source's root block, if it is counted so far (QGROUP-2).
        let own = if self.counts(taken.root) { taken.node_size } else { 0 };
        let mut sound = usage.referenced >= own && usage.exclusive >= own;
        let (shared, lost) = (usage.referenced.saturating_sub(own), usage.exclusive.saturating_sub(own));
        let (above_source, above) = (self.forest.with_ancestors(source), self.forest.with_ancestors(id));
        for &group_id in above_source.iter().filter(|group| !above.contains(group)) {
            let alone = self.forest.subvolumes(group_id) == Roots::from([taken.source]);
            let group = self.forest.get_mut(group_id).expect("it was found");
            sound &= alone && group.usage.exclusive >= lost;
            group.usage.exclusive = group.usage.exclusive.saturating_sub(lost);
            group.dirty = true;
        }
        for &group_id in above.iter().filter(|group| !above_source.contains(group)) {
            let group = self.forest.get_mut(group_id).expect("it was found");
            sound &= group.usage == QgroupUsage::default();
            group.usage.referenced = group.usage.referenced.saturating_add(shared);
            group.dirty = true;
        }
        if !sound {
            self.mark_inconsistent();
        }
    }
}
