//! The quotas of a filesystem: groups, their numbers, and changes of the running transaction that are not in the numbers yet.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Logical, QgroupId, Result, TreeId};
use creamery_format::{Key, KeyType, RawQgroupLimit};
use creamery_tree::Tree;

use super::QuotaMode;
use super::changed::{Before, Changed, Roots, SnapshotTaken};
use super::counters::Counting;
use super::forest::{Forest, Group, Qgroup, QgroupLimits, QgroupUsage};
use super::items::{self, Status};
use crate::extent_tree::{Owners, Ran};

/// The state of the quotas as a whole.
///
/// ```
/// use creamery_txn::{QuotaMode, QuotaStatus};
/// let status = QuotaStatus { mode: QuotaMode::Full, inconsistent: false, rescan: None };
/// assert!(status.rescan.is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaStatus {
    /// How extents are counted.
    pub mode: QuotaMode,
    /// Whether the numbers may be wrong; a rescan corrects them.
    pub inconsistent: bool,
    /// Progress of a running rescan: the logical address up to which everything is counted.
    pub rescan: Option<u64>,
}

/// Blocks that the tree may need besides: nodes, and the minimum of small trees.
const BLOCKS_MORE: u64 = 8;

/// A change of the quotas when the transaction closes.
pub(crate) enum Switch {
    Enable(QuotaMode),
    Disable,
    Rescan,
}

/// The quotas.
pub(crate) struct QuotaState {
    pub(super) tree: Arc<Tree>,
    /// Distinguishes these quotas from earlier and later ones.
    pub(super) epoch: u64,
    mode: QuotaMode,
    /// The first transaction whose extents simple quotas count.
    pub(super) enabled_in: Generation,
    pub(super) inconsistent: bool,
    /// The mark of a rescan (QGROUP-2).
    pub(super) rescan: Option<Logical>,
    /// Whether the numbers became wrong during the rescan: then it begins anew.
    pub(super) spoiled: bool,
    /// The error that ended the last rescan early.
    failure: Option<String>,
    pub(super) forest: Forest,
    pub(super) changed: HashMap<Logical, Changed>,
    /// The generation up to which blocks of a subvolume may be shared with its snapshots, as of the last commit.
    pub(super) last_snapshots: HashMap<TreeId, Generation>,
    /// The snapshots of this transaction.
    pub(super) taken: Vec<SnapshotTaken>,
    /// Subvolumes whose trees are dropped.
    pub(super) gone: Vec<TreeId>,
    /// Items to write; `None` removes the item.
    pub(super) writes: BTreeMap<Key, Option<Vec<u8>>>,
    /// The transaction whose status was written last.
    pub(super) written_in: Generation,
}

impl QuotaState {
    pub(crate) fn new(tree: Arc<Tree>, mode: QuotaMode, enabled_in: Generation) -> Self {
        Self {
            tree,
            epoch: 0,
            mode,
            enabled_in,
            inconsistent: false,
            rescan: None,
            spoiled: false,
            failure: None,
            forest: Forest::default(),
            changed: HashMap::new(),
            last_snapshots: HashMap::new(),
            taken: Vec::new(),
            gone: Vec::new(),
            writes: BTreeMap::new(),
            written_in: Generation::default(),
        }
    }

    pub(crate) fn mode(&self) -> QuotaMode {
        self.mode
    }

    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The mode, consistency and rescan progress.
    pub(crate) fn status(&self) -> QuotaStatus {
        let rescan = self.rescan.map(Logical::get);
        QuotaStatus { mode: self.mode, inconsistent: self.inconsistent, rescan }
    }

    /// The status item to write in a transaction.
    pub(super) fn status_item(&self, generation: Generation) -> Status {
        Status {
            generation,
            is_on: true,
            inconsistent: self.inconsistent,
            rescan: self.rescan,
            mode: self.mode,
            enabled_in: self.enabled_in,
        }
    }

    pub(crate) fn list(&self) -> Vec<Qgroup> {
        self.forest.list()
    }

    /// Marks the numbers as possibly wrong from here on.
    pub(crate) fn mark_inconsistent(&mut self) {
        // A recount is impossible for simple quotas.
        if self.mode == QuotaMode::Full {
            self.inconsistent = true;
            self.spoiled = self.rescan.is_some();
        }
    }

    /// Ends a rescan that cannot count an extent, for the reason `why`.
    pub(crate) fn give_up_rescan(&mut self, why: String) {
        self.mark_inconsistent();
        self.failure = Some(why);
        (self.rescan, self.spoiled, self.written_in) = (None, false, Generation::default());
    }

    /// The error that ended the last rescan early, if one did.
    pub(crate) fn rescan_failure(&self) -> Option<String> {
        self.failure.clone()
    }

    /// Whether a requested change waits to be written.
    pub(super) fn has_writes(&self) -> bool {
        !self.writes.is_empty() || self.written_in == Generation::default()
    }

    /// Blocks of the quota tree that the commit may copy or make.
    pub(super) fn blocks_needed(&self, node_size: u32) -> u64 {
        let items = (self.forest.items() + self.writes.len()) as u64;
        // Each is copied and split once, at most; leaves are at least an eighth full. The tree's root gives no reliable bound.
        2 * (items.saturating_mul(items::LEN_MAX) / u64::from(node_size / 8)).saturating_add(BLOCKS_MORE)
    }

    /// Sets the generation up to which a subvolume's blocks may be shared.
    pub(crate) fn set_last_snapshot(&mut self, id: TreeId, generation: Generation) {
        self.last_snapshots.insert(id, generation);
    }

    /// The one subvolume that reaches an extent, or none, if its references alone determine that.
    fn sole(&self, owners: Owners) -> Option<Option<TreeId>> {
        match owners {
            Owners::Nobody => Some(None),
            Owners::Sole { root, .. } if !root.is_subvolume() => Some(None),
            Owners::Sole { root, generation } => {
                let shared_to = self.last_snapshots.get(&root)?;
                (generation > *shared_to).then_some(Some(root))
            }
            Owners::Several => None,
        }
    }

    /// The subvolumes that reach an extent, as a set, if its references alone determine that.
    pub(crate) fn known(&self, owners: Owners) -> Option<Roots> {
        self.sole(owners).map(|root| root.into_iter().collect())
    }

    /// Counts or notes an extent whose head has run.
    pub(super) fn ran(&mut self, at: Logical, ran: &Ran, counting: &Counting) {
        if let Some(changed) = self.changed.get_mut(&at) {
            changed.touched = true;
            return;
        }
        let (before, after) = (self.sole(ran.applied.before), self.sole(ran.applied.after));
        if self.rescan.is_none()
            && self.taken.is_empty()
            && let (Some(before), Some(after)) = (before, after)
        {
            if before != after {
                counting.known.add(1);
                before.into_iter().for_each(|root| self.count_one(root, ran.len, true));
                after.into_iter().for_each(|root| self.count_one(root, ran.len, false));
            }
            return;
        }
        // No subvolume reaches it, before and after.
        if before == Some(None) && after == Some(None) {
            return;
        }
        // The known roots are those before the snapshots of this transaction.
        let before = self.known(ran.applied.before).map_or(Before::Commit, |roots| Before::Known(roots, 0));
        self.changed.insert(at, Changed { kind: ran.kind, len: ran.len, before, touched: true });
    }

    /// Counts an extent of one subvolume that comes or goes.
    pub(super) fn count_one(&mut self, root: TreeId, len: u64, gone: bool) {
        if !self.forest.count_one(root, len, gone) {
            self.mark_inconsistent();
        }
    }

    /// Counts an extent whose set of subvolumes changes.
    pub(crate) fn count(&mut self, before: &Roots, after: &Roots, len: u64) {
        if !self.forest.count(before, after, len) {
            self.mark_inconsistent();
        }
    }

    /// Whether changes of an extent are counted (QGROUP-2).
    pub(crate) fn counts(&self, at: Logical) -> bool {
        self.rescan.is_none_or(|mark| at < mark)
    }

    /// Takes the extents to walk, in the order of their addresses.
    pub(crate) fn take_changed(&mut self) -> Vec<(Logical, Changed)> {
        let touched = self.changed.iter_mut().filter(|(_, changed)| changed.touched);
        let mut changed: Vec<_> = touched.map(|(at, changed)| (*at, changed.clone())).collect();
        self.changed.values_mut().for_each(|changed| changed.touched = false);
        changed.sort_unstable_by_key(|(at, _)| *at);
        changed
    }

    /// Records the counted roots of a walked extent: later changes in this transaction start from these.
    pub(crate) fn keep_counted(&mut self, at: Logical, roots: Roots) {
        if let Some(changed) = self.changed.get_mut(&at) {
            changed.before = Before::Known(roots, self.taken.len());
        }
    }

    /// Creates a group. Errors: already exists.
    pub(crate) fn create(&mut self, id: QgroupId) -> Result<()> {
        if self.forest.get(id).is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("quota group {id}")));
        }
        let limit = items::no_limit();
        let mut group = Group::new(QgroupUsage::default(), limit);
        group.dirty = true;
        self.forest.insert(id, group);
        self.write_limit(id, limit);
        Ok(())
    }

    fn write_limit(&mut self, id: QgroupId, limit: RawQgroupLimit) {
        self.writes.insert(items::limit_key(id), Some(items::bytes_of(&limit)));
    }

    /// Whether it is the group of a dropped subvolume whose end the numbers do not contain yet: they do when the transaction closes.
    pub(crate) fn is_going(&self, id: QgroupId) -> bool {
        self.forest.get(id).is_some() && self.gone.iter().any(|&gone| QgroupId::of(gone) == id)
    }

    pub(crate) fn has(&self, id: QgroupId) -> bool {
        self.forest.get(id).is_some()
    }

    /// Removes a group, and its part in others. Errors: not found; in use: it has members, or with simple quotas extents that count
    /// for it, or space that its subvolume freed is still to be counted, for the groups above it, too.
    pub(crate) fn remove(&mut self, id: QgroupId) -> Result<()> {
        if self.is_going(id) {
            let message = format!("quota group {id} still counts its deleted subvolume");
            return Err(Error::new(ErrorKind::Busy, message));
        }
        let holds = self.forest.get(id).is_some_and(|group| group.usage != QgroupUsage::default());
        if self.mode == QuotaMode::Simple && holds {
            return Err(Error::new(ErrorKind::Busy, format!("quota group {id} still counts extents")));
        }
        let above = self.forest.parents(id).next().is_some();
        for parent in self.forest.remove(id)? {
            self.write_relation(id, parent, false);
        }
        for key in [items::info_key(id), items::limit_key(id)] {
            self.writes.insert(key, None);
        }
        // These bytes belong to no subvolume any more: the numbers were wrong, and so are those of the groups above.
        if holds && above {
            self.mark_inconsistent();
        }
        Ok(())
    }

    fn write_relation(&mut self, member: QgroupId, group: QgroupId, is: bool) {
        for (one, other) in [(member, group), (group, member)] {
            let key = Key::new(one.objectid(), KeyType::QGROUP_RELATION, other.get());
            self.writes.insert(key, is.then(Vec::new));
        }
    }

    /// Makes `member` a member of `group`, or ends that. The effect on the sums is known where all of the member's bytes are exclusive to it; else
    /// the numbers are inconsistent from then on. A group above that reaches the member by another way, too, stays unchanged.
    /// Errors: invalid; not found; already exists.
    pub(crate) fn assign(&mut self, member: QgroupId, group: QgroupId, is: bool) -> Result<()> {
        let simple = self.mode == QuotaMode::Simple;
        let brought = if is {
            let brought = self.forest.brought(member, group, simple);
            self.forest.assign(member, group)?;
            brought
        } else {
            if !self.forest.unassign(member, group) {
                let message = format!("quota group {member} as a member of {group}");
                return Err(Error::new(ErrorKind::NotFound, message));
            }
            self.forest.brought(member, group, simple)
        };
        self.write_relation(member, group, is);
        let mut known = true;
        for (id, usage) in brought {
            let group = self.forest.get_mut(id).expect("it was found");
            known &= usage.is_some_and(|usage| group.usage.change(usage, !is));
            group.dirty = true;
        }
        if !known {
            self.mark_inconsistent();
        }
        Ok(())
    }

    /// Sets or clears one of a group's limits. Errors: not found.
    pub(crate) fn limit(&mut self, id: QgroupId, most: Option<u64>, exclusive: bool) -> Result<()> {
        let missing = || Error::new(ErrorKind::NotFound, format!("quota group {id}"));
        let group = self.forest.get_mut(id).ok_or_else(missing)?;
        let limits = group.limits();
        group.set_limits(match exclusive {
            true => QgroupLimits { exclusive: most, ..limits },
            false => QgroupLimits { referenced: most, ..limits },
        });
        let limit = group.limit;
        self.write_limit(id, limit);
        Ok(())
    }

    /// Gives a snapshot the limits of its source.
    pub(super) fn inherit_limits(&mut self, source: QgroupId, id: QgroupId) {
        let Some(limit) = self.forest.get(source).map(|group| group.limit) else { return };
        if let Some(group) = self.forest.get_mut(id) {
            group.limit = limit;
            self.write_limit(id, limit);
        }
    }

    /// Checks whether a new subvolume may become a member of a group. Errors: invalid: it is a subvolume's group; not found.
    pub(crate) fn check_joinable(&self, group: QgroupId) -> Result<()> {
        if group.level() == 0 {
            return Err(Error::invalid(format!(
                "quota group {group} belongs to a subvolume, expected level 1 or higher"
            )));
        }
        match self.forest.get(group) {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::NotFound, format!("quota group {group}"))),
        }
    }

    /// Creates the group of a new subvolume, as a member of `groups`.
    pub(super) fn subvolume_created(&mut self, id: TreeId, within: TreeId, groups: &[QgroupId]) {
        self.set_last_snapshot(id, Generation::default());
        self.begin_group(id, within, groups);
    }

    /// Creates the group of a new subvolume, unless it exists already, with limits. With simple quotas and without `groups`, it becomes a member of
    /// the groups of the subvolume `within` that contains it.
    pub(super) fn begin_group(&mut self, id: TreeId, within: TreeId, groups: &[QgroupId]) {
        if QgroupId::of(id).level() > 0 {
            return; // this number is a group of groups
        }
        let _exists = self.create(QgroupId::of(id));
        let groups = match self.mode {
            QuotaMode::Simple if groups.is_empty() => self.forest.parents(QgroupId::of(within)).collect(),
            _ => groups.to_vec(),
        };
        for group in groups {
            let _is_one = self.assign(QgroupId::of(id), group, true);
        }
    }

    /// Removes the empty groups of subvolumes that are gone.
    pub(super) fn remove_gone(&mut self) {
        for id in std::mem::take(&mut self.gone) {
            self.last_snapshots.remove(&id);
            let id = QgroupId::of(id);
            if id.level() == 0
                && self.forest.get(id).is_some_and(|group| group.usage == QgroupUsage::default())
            {
                let _has_members = self.remove(id);
            }
        }
    }

    /// Begins to count from zero, with the gate closed.
    pub(crate) fn begin_rescan(&mut self) {
        self.changed.clear();
        self.restart_rescan();
    }

    /// Begins to count from zero in the middle of a transaction: the transaction's changes were noted since it began, because a rescan runs.
    pub(super) fn restart_rescan(&mut self) {
        for (_, group) in self.forest.iter_mut() {
            (group.usage, group.dirty) = (QgroupUsage::default(), true);
        }
        (self.rescan, self.spoiled, self.inconsistent) = (Some(Logical::new(0)), false, true);
        self.failure = None;
    }

    /// Takes the items that the commit has to write, and resets the state of the transaction. `None`, when there are none to write.
    pub(crate) fn close(&mut self, generation: Generation) -> Option<BTreeMap<Key, Option<Vec<u8>>>> {
        self.remove_gone();
        self.forget_pending();
        for (id, group) in self.forest.iter_mut() {
            if std::mem::take(&mut group.dirty) {
                let info = items::info(generation, group.usage);
                self.writes.insert(items::info_key(id), Some(info));
            }
        }
        if self.written_in != generation {
            self.written_in = generation;
            let status = Some(self.status_item(generation).to_bytes());
            self.writes.insert(items::STATUS, status);
        }
        let writes = std::mem::take(&mut self.writes);
        (!writes.is_empty()).then_some(writes)
    }

    /// Resets the pending bytes: they are in the numbers, or were not used.
    pub(crate) fn forget_pending(&mut self) {
        self.forest.iter_mut().for_each(|(_, group)| group.pending = 0);
    }

    /// Begins the next transaction: the running one has closed.
    pub(super) fn begin_next(&mut self) {
        self.changed.clear();
        for taken in std::mem::take(&mut self.taken) {
            self.set_last_snapshot(taken.source, taken.generation);
            self.set_last_snapshot(taken.id, taken.generation);
        }
    }

    /// Memory in use, about, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let changed = size_of::<(Logical, Changed)>() as u64 * self.changed.capacity() as u64;
        changed + (size_of::<(QgroupId, Group)>() * self.forest.items()) as u64
    }
}
