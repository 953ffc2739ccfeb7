//! The quotas of a filesystem: groups, their numbers, and what of the running transaction is not in these yet.

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

/// What quotas are, as a whole.
///
/// ```
/// use creamery_txn::{QuotaMode, QuotaStatus};
/// let status = QuotaStatus { mode: QuotaMode::Full, inconsistent: false, rescan: None };
/// assert!(status.rescan.is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaStatus {
    /// How they are counted.
    pub mode: QuotaMode,
    /// Whether the numbers may be wrong; a rescan makes them right.
    pub inconsistent: bool,
    /// How far a rescan is that runs: the logical address up to which everything is counted.
    pub rescan: Option<u64>,
}

/// Blocks that the tree may need besides: nodes, and what little trees have.
const BLOCKS_MORE: u64 = 8;

/// What becomes of the quotas when the transaction closes.
pub(crate) enum Switch {
    Enable(QuotaMode),
    Disable,
    Rescan,
}

/// The quotas.
pub(crate) struct State {
    pub(super) tree: Arc<Tree>,
    /// Tells these quotas from those before and after them.
    pub(super) epoch: u64,
    mode: QuotaMode,
    /// The first transaction whose extents simple quotas count.
    pub(super) enabled_in: Generation,
    pub(super) inconsistent: bool,
    /// Where a rescan is (QGROUP-2).
    pub(super) rescan: Option<Logical>,
    /// Whether the numbers became wrong while it ran: then it begins anew.
    pub(super) spoiled: bool,
    /// What ended the last rescan before everything was counted.
    failure: Option<String>,
    pub(super) forest: Forest,
    pub(super) changed: HashMap<Logical, Changed>,
    /// Up to which generation blocks of a subvolume may be shared with its snapshots, as of the last commit.
    pub(super) last_snapshots: HashMap<TreeId, Generation>,
    /// The snapshots of this transaction.
    pub(super) taken: Vec<SnapshotTaken>,
    /// Subvolumes whose trees are dropped.
    pub(super) gone: Vec<TreeId>,
    /// Items that are to be written; none, removed.
    pub(super) writes: BTreeMap<Key, Option<Vec<u8>>>,
    /// The transaction whose status was written last.
    pub(super) written_in: Generation,
}

impl State {
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

    /// What they are.
    pub(crate) fn status(&self) -> QuotaStatus {
        let rescan = self.rescan.map(Logical::get);
        QuotaStatus { mode: self.mode, inconsistent: self.inconsistent, rescan }
    }

    /// The status as it is written in a transaction.
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

    /// The numbers may be wrong from here on.
    pub(crate) fn mark_inconsistent(&mut self) {
        // Simple quotas have nothing that could be counted anew.
        if self.mode == QuotaMode::Full {
            self.inconsistent = true;
            self.spoiled = self.rescan.is_some();
        }
    }

    /// What cannot be counted ends a rescan.
    pub(crate) fn give_up_rescan(&mut self, why: String) {
        self.mark_inconsistent();
        self.failure = Some(why);
        (self.rescan, self.spoiled, self.written_in) = (None, false, Generation::default());
    }

    /// What ended the last rescan before everything was counted, if it did not end well.
    pub(crate) fn rescan_failure(&self) -> Option<String> {
        self.failure.clone()
    }

    /// Whether somebody's wish waits to be written.
    pub(super) fn has_writes(&self) -> bool {
        !self.writes.is_empty() || self.written_in == Generation::default()
    }

    /// Blocks of the quota tree that the commit may copy or make.
    pub(crate) fn blocks_needed(&self, node_size: u32) -> u64 {
        let items = (self.forest.items() + self.writes.len()) as u64;
        // Each is copied and split once, at most; leaves are an eighth full at least. What the tree's root says is no bound.
        2 * (items.saturating_mul(items::LEN_MAX) / u64::from(node_size / 8)).saturating_add(BLOCKS_MORE)
    }

    /// Up to which generation a subvolume's blocks may be shared.
    pub(crate) fn set_last_snapshot(&mut self, id: TreeId, generation: Generation) {
        self.last_snapshots.insert(id, generation);
    }

    /// The subvolumes that reach an extent, one or none, when its references alone tell.
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

    /// The same as a set.
    pub(crate) fn known(&self, owners: Owners) -> Option<Roots> {
        self.sole(owners).map(|root| root.into_iter().collect())
    }

    /// A head has run.
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
        // Of no subvolume, before and after.
        if before == Some(None) && after == Some(None) {
            return;
        }
        // What is known now is so as of before the snapshots of this transaction.
        let before = self.known(ran.applied.before).map_or(Before::Commit, |roots| Before::Known(roots, 0));
        self.changed.insert(at, Changed { kind: ran.kind, len: ran.len, before, touched: true });
    }

    /// An extent of one subvolume comes or goes.
    pub(super) fn count_one(&mut self, root: TreeId, len: u64, gone: bool) {
        if !self.forest.count_one(root, len, gone) {
            self.mark_inconsistent();
        }
    }

    /// An extent is reached by others than before.
    pub(crate) fn count(&mut self, before: &Roots, after: &Roots, len: u64) {
        if !self.forest.count(before, after, len) {
            self.mark_inconsistent();
        }
    }

    /// Whether what becomes of an extent is counted (QGROUP-2).
    pub(crate) fn counts(&self, at: Logical) -> bool {
        self.rescan.is_none_or(|mark| at < mark)
    }

    /// The extents that wait to be looked at, in the order of their addresses.
    pub(crate) fn take_changed(&mut self) -> Vec<(Logical, Changed)> {
        let touched = self.changed.iter_mut().filter(|(_, changed)| changed.touched);
        let mut changed: Vec<_> = touched.map(|(at, changed)| (*at, changed.clone())).collect();
        self.changed.values_mut().for_each(|changed| changed.touched = false);
        changed.sort_unstable_by_key(|(at, _)| *at);
        changed
    }

    /// Those that were looked at have these roots now: who changes them again in this transaction goes on from there.
    pub(crate) fn keep_counted(&mut self, at: Logical, roots: Roots) {
        if let Some(changed) = self.changed.get_mut(&at) {
            changed.before = Before::Known(roots, self.taken.len());
        }
    }

    /// Makes a group. Errors: already exists.
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

    /// Whether it is the group of a subvolume whose end is not in the numbers yet: it is when the transaction closes.
    pub(crate) fn is_going(&self, id: QgroupId) -> bool {
        self.forest.get(id).is_some() && self.gone.iter().any(|&gone| QgroupId::of(gone) == id)
    }

    pub(crate) fn has(&self, id: QgroupId) -> bool {
        self.forest.get(id).is_some()
    }

    /// Removes a group, and its part in others. Errors: not found; in use: it has members, or with simple quotas extents that count
    /// for it, or what its subvolume freed is still to be counted, for the groups above it, too.
    pub(crate) fn remove(&mut self, id: QgroupId) -> Result<()> {
        if self.is_going(id) {
            let message = format!("quota group {id}, whose subvolume's end is not counted yet");
            return Err(Error::new(ErrorKind::Busy, message));
        }
        let holds = self.forest.get(id).is_some_and(|group| group.usage != QgroupUsage::default());
        if self.mode == QuotaMode::Simple && holds {
            return Err(Error::new(ErrorKind::Busy, format!("quota group {id}, for which extents count")));
        }
        let above = self.forest.parents(id).next().is_some();
        for parent in self.forest.remove(id)? {
            self.write_relation(id, parent, false);
        }
        for key in [items::info_key(id), items::limit_key(id)] {
            self.writes.insert(key, None);
        }
        // Nothing has them any more: they were wrong, and so are those above.
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

    /// Makes `member` a member of `group`, or ends that. What all of it has is known where it is exclusive to the member; else
    /// the numbers are inconsistent from then on. A group above that reaches the member by another way, too, stays as it is.
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

    /// A snapshot has the limits of its source.
    pub(super) fn inherit_limits(&mut self, source: QgroupId, id: QgroupId) {
        let Some(limit) = self.forest.get(source).map(|group| group.limit) else { return };
        if let Some(group) = self.forest.get_mut(id) {
            group.limit = limit;
            self.write_limit(id, limit);
        }
    }

    /// Whether a new subvolume may come into a group. Errors: invalid: it is one of a subvolume; not found.
    pub(crate) fn check_joinable(&self, group: QgroupId) -> Result<()> {
        if group.level() == 0 {
            return Err(Error::invalid(format!(
                "a subvolume in quota group {group}, which is a subvolume's"
            )));
        }
        match self.forest.get(group) {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::NotFound, format!("quota group {group}"))),
        }
    }

    /// A subvolume has a group from its beginning, which is a member of `groups`.
    pub(super) fn subvolume_created(&mut self, id: TreeId, within: TreeId, groups: &[QgroupId]) {
        self.set_last_snapshot(id, Generation::default());
        self.begin_group(id, within, groups);
    }

    /// The group of a new subvolume, which may be there already, with limits. With simple quotas it is a member of the same as that
    /// of the subvolume that it is made in, where nothing else is said.
    pub(super) fn begin_group(&mut self, id: TreeId, within: TreeId, groups: &[QgroupId]) {
        if QgroupId::of(id).level() > 0 {
            return; // its number is that of a group of groups
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

    /// Groups of subvolumes that are no more go, when there is nothing in them.
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

    /// Begins to count from nothing, with the gate closed.
    pub(crate) fn begin_rescan(&mut self) {
        self.changed.clear();
        self.restart_rescan();
    }

    /// The same in the midst of a transaction: what it changes was noted, since a rescan runs.
    pub(super) fn restart_rescan(&mut self) {
        for (_, group) in self.forest.iter_mut() {
            (group.usage, group.dirty) = (QgroupUsage::default(), true);
        }
        (self.rescan, self.spoiled, self.inconsistent) = (Some(Logical::new(0)), false, true);
        self.failure = None;
    }

    /// What the commit has to write, and what begins anew with the next transaction. None, when it has it all.
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

    /// What was written is in the numbers, or came to nothing.
    pub(crate) fn forget_pending(&mut self) {
        self.forest.iter_mut().for_each(|(_, group)| group.pending = 0);
    }

    /// The transaction has closed.
    pub(super) fn begin_next(&mut self) {
        self.changed.clear();
        for taken in std::mem::take(&mut self.taken) {
            self.set_last_snapshot(taken.source, taken.generation);
            self.set_last_snapshot(taken.id, taken.generation);
        }
    }

    /// What it takes in memory, bytes, about.
    pub(crate) fn memory(&self) -> u64 {
        let changed = size_of::<(Logical, Changed)>() as u64 * self.changed.capacity() as u64;
        changed + (size_of::<(QgroupId, Group)>() * self.forest.items()) as u64
    }
}
