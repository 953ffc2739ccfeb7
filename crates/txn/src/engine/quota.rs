//! Quotas, with the trees of the engine: counting and writing when a transaction closes (`qgroup`), rescans, and changes by users.

use std::sync::Arc;

use creamery_base::gate::{self, Reason};
use creamery_base::lock::{RankedGuard, rank};
use creamery_base::{Error, ErrorKind, Generation, Logical, ObjectId, QgroupId, Result, TreeId, Wait};
use creamery_format::{Incompat, Key, KeyType};
use creamery_tree::{Dropped, Tree, TreeDrop};

use super::Engine;
use crate::backref_walk::{ClosedBlocks, CommittedBlocks, Trees, Walk};
use crate::flush_policy::FlushPolicy;
use crate::handle::Handle;
use crate::held;
use crate::qgroup::{
    Changed, Counted, Qgroup, QgroupCounters, QuotaMode, QuotaStatus, RESCAN_STEP, State, Switch,
    quotas_are_off,
};
use crate::roots::find_root_item;
use crate::snapshot::NewSnapshot;
use crate::units::Units;

/// Keeps the groups of a new subvolume in place until this is dropped ([`Engine::keep_qgroups`]).
///
/// ```
/// fn is_kept(_: &creamery_txn::KeptGroups<'_>) {}
/// ```
#[must_use]
pub struct KeptGroups<'a> {
    _alone: RankedGuard<'a, (), { rank::QGROUP_CHANGE }>,
}

/// Items that a change of groups reserves: it may split leaves.
const ITEMS: u32 = 4;
/// Rounds of reclaiming before a limit refuses.
const RECLAIMS: usize = 4;
/// Groups whose items fill a leaf, at least.
const GROUPS_PER_LEAF: usize = 16;

impl Engine {
    /// Reads the quotas of the filesystem, if it has any.
    /// Errors: device errors; damage.
    pub(super) fn load_quotas(&self) -> Result<()> {
        if find_root_item(self.root_tree.tree(), TreeId::QUOTA)?.is_none() {
            return Ok(());
        }
        let last = self.volume().superblock().generation();
        let loaded = self.tree(TreeId::QUOTA).and_then(|tree| State::load(tree, last));
        let loaded = loaded.and_then(|state| self.check_mode(state));
        let Some(mut state) = (match loaded {
            // A read-only engine can do without them.
            Err(_) if self.read_only().is_some() => None,
            loaded => loaded?,
        }) else {
            return Ok(());
        };
        self.note_last_snapshots(&mut state)?;
        self.count_with(Some(state));
        Ok(())
    }

    /// Refuses simple quotas without their feature in the superblock: they put owners into extent items, which only the feature announces.
    fn check_mode(&self, state: Option<Box<State>>) -> Result<Option<Box<State>>> {
        let is_simple = state.as_ref().is_some_and(|state| state.mode() == QuotaMode::Simple);
        if is_simple && !self.volume().superblock().incompat().contains(Incompat::SIMPLE_QUOTA) {
            let message = "quota status item: simple quotas, but the superblock lacks SIMPLE_QUOTA";
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(state)
    }

    fn count_with(&self, state: Option<Box<State>>) {
        self.qgroups.set(state);
        let mode = self.qgroups.mode();
        self.extent_tree.set_names_owners(mode == Some(QuotaMode::Simple));
        self.extent_tree.refs().set_keeps_cancelled(mode == Some(QuotaMode::Full));
    }

    /// Notes for each subvolume the generation up to which its blocks may be shared.
    fn note_last_snapshots(&self, state: &mut State) -> Result<()> {
        for (id, last_snapshot) in self.subvolume_roots()? {
            state.set_last_snapshot(id, last_snapshot);
        }
        Ok(())
    }

    fn subvolume_roots(&self) -> Result<Vec<(TreeId, Generation)>> {
        let mut found = Vec::new();
        let first = Key::new(TreeId::FS.objectid(), KeyType::ROOT_ITEM, 0);
        let mut cursor = self.root_tree.tree().cursor(&first, Wait::Yes)?;
        while let Some((key, data)) = cursor.item() {
            let id = TreeId::from(key.objectid);
            if key.objectid > ObjectId::LAST_FREE {
                break;
            }
            if key.kind == KeyType::ROOT_ITEM && id.is_subvolume() {
                let damaged = |kind| Error::with_source(ErrorKind::Corrupt, format!("root item {key}"), kind);
                let item = creamery_format::RawRootItem::from_item(data).map_err(damaged)?;
                found.push((id, Generation::new(item.last_snapshot.get())));
            }
            cursor.advance()?;
        }
        Ok(found)
    }

    /// Enables or disables quotas, or begins a rescan, if a switch waits. The gate is closed.
    pub(super) fn switch_quotas(&self, handle: &Handle<'_>) -> Result<()> {
        match self.qgroups.take_switch() {
            None => {}
            Some(Switch::Rescan) => {
                self.qgroups.with(State::begin_rescan);
            }
            Some(Switch::Enable(mode)) => {
                // Another program may have left a part of an earlier quota tree.
                self.drop_quota_tree(handle)?;
                let tree = handle.create_tree(TreeId::QUOTA)?;
                // Extents of the next transaction and later ones count.
                let mut state = Box::new(State::new(tree, mode, handle.generation().next()));
                for (id, last_snapshot) in self.subvolume_roots()? {
                    state.set_last_snapshot(id, last_snapshot);
                    if QgroupId::of(id).level() == 0 {
                        let _exists = state.create(QgroupId::of(id));
                    }
                }
                if state.mode() == QuotaMode::Full {
                    state.begin_rescan();
                } else {
                    handle.add_incompat(Incompat::SIMPLE_QUOTA);
                }
                self.count_with(Some(state));
            }
            Some(Switch::Disable) => {
                self.count_with(None);
                self.drop_quota_tree(handle)?;
            }
        }
        Ok(())
    }

    /// Removes the quota tree, if there is one, all of it in this transaction: Linux does not write to half a quota tree.
    fn drop_quota_tree(&self, handle: &Handle<'_>) -> Result<()> {
        if find_root_item(self.root_tree.tree(), TreeId::QUOTA)?.is_none() {
            return Ok(());
        }
        let dropped =
            TreeDrop::new(self.tree(TreeId::QUOTA)?, Generation::default(), None).step(handle, u32::MAX)?;
        assert_eq!(dropped, Dropped::Wholly, "there is room for all references that there may be");
        handle.remove_tree(TreeId::QUOTA)
    }

    /// Blocks of the quota tree that the commit may copy or make.
    pub(super) fn quota_blocks(&self) -> u64 {
        self.qgroups.with(|state| state.blocks_needed(self.node_size())).unwrap_or(0)
    }

    /// Takes a snapshot, with the commit's own handle. The source's tree contains all delayed changes that belong into the snapshot. Later changes
    /// of the source in the same transaction use [`Tree::copying_all`].
    /// Errors: not found; already exists; no space; device errors; damage. The transaction aborts.
    pub fn create_snapshot(&self, handle: &Handle<'_>, new: &NewSnapshot) -> Result<Arc<Tree>> {
        if self.qgroups.mode() == Some(QuotaMode::Full) {
            let record_chunks = || self.record_chunks(handle);
            while self.runner.turn().round(self.ports(&record_chunks), handle)? {}
            self.count_changed()?;
        }
        handle.create_snapshot(new)
    }

    /// Counts the changes of the closing transaction that are not counted yet, and writes the numbers. True when there
    /// was something to write.
    pub(super) fn settle_quotas(&self, handle: &Handle<'_>) -> Result<bool> {
        let is_idle = self.store().dirty_bytes() == 0 && !self.qgroups.has_work();
        if self.qgroups.mode().is_none() || is_idle {
            return Ok(false);
        }
        self.count_changed()?;
        let closed = self
            .qgroups
            .with(|state| state.close(handle.generation()).map(|writes| (Arc::clone(state.tree()), writes)));
        let Some((tree, writes)) = closed.flatten() else { return Ok(false) };
        for (key, data) in writes {
            match data {
                Some(data) => tree.upsert(handle, &key, &data)?,
                None => drop(tree.remove(handle, &key)?),
            }
        }
        Ok(true)
    }

    /// Walks the back references of noted extents, in the last commit and in this transaction (QGROUP-1).
    fn count_changed(&self) -> Result<()> {
        let Some(changed) = self.qgroups.with(State::take_changed).filter(|changed| !changed.is_empty())
        else {
            return Ok(());
        };
        // The walks compare each node's key with its child's first key.
        self.store().settle_low_keys()?;
        let walked = self.walk_changed(changed);
        match walked {
            // A reference that leads nowhere, or an unreadable block, is no reason to end all writing.
            Err(error) if error.kind().is_damage() => {
                self.qgroups.with(State::mark_inconsistent);
                Ok(())
            }
            walked => walked,
        }
    }

    fn walk_changed(&self, changed: Vec<(Logical, Changed)>) -> Result<()> {
        let mut commit = self.committed_walk()?;
        let root = self.root_tree.tree().root_pointer()?;
        let mut closed = Walk::for_roots(Trees::new(ClosedBlocks(&self.root_tree), root)?);
        for (at, changed) in changed {
            if self.qgroups.with(|state| state.counts(at)) != Some(true) {
                continue;
            }
            self.qgroups.counting.walked.add(1);
            let (len, kind) = (changed.len, changed.kind);
            let committed = match changed.needs_commit() {
                true => commit.roots(at, len, kind)?,
                false => Default::default(),
            };
            let after = closed.roots(at, len, kind)?;
            self.qgroups.with(|state| {
                let before = state.counted(at, &changed.before, committed);
                state.count(&before, &after, len);
                state.keep_counted(at, after);
            });
        }
        Ok(())
    }

    /// A walk over the last commit.
    fn committed_walk(&self) -> Result<Walk<CommittedBlocks<'_>>> {
        let blocks = CommittedBlocks::new(self.store(), self.commit_root_guard());
        Ok(Walk::for_roots(Trees::new(blocks, self.root_tree.tree().commit_root())?))
    }

    /// Whether a rescan has extents before it.
    pub(super) fn is_rescanning(&self) -> bool {
        self.qgroups.with(|state| state.status().rescan.is_some()).unwrap_or(false)
    }

    /// Counts the next extents of a rescan. False when there is none.
    /// Errors: device errors and damage, which end the rescan: the numbers are inconsistent, and the next commit says so.
    pub fn quota_rescan_step(&self) -> Result<bool> {
        // Changes of the running transaction are counted when it closes, relative to the state that is counted here.
        self.end_write_out()?;
        let running = self.join();
        let (before, guard) = (self.generation(), self.commit_root_guard());
        let Some(from) = self.qgroups.with(|state| state.status().rescan).flatten() else { return Ok(false) };
        if guard.generation().next() != before {
            return Ok(true); // another transaction has closed meanwhile
        }
        let walk = self.committed_walk();
        // Other threads do not wait for the device.
        drop(running);
        let counted = match walk.and_then(|walk| self.count_some(walk, from.into())) {
            // Linux also ends the rescan: the next rescan tries the unreadable block again, not this one again and again.
            Err(error) if error.kind().is_damage() => {
                self.qgroups.with(|state| state.give_up_rescan(error.without_kind()));
                return Err(error.context("counting for quotas, which ends here"));
            }
            counted => counted?,
        };
        let _running = self.join();
        if self.generation() != before {
            return Ok(true); // another transaction runs: the extents may have changed
        }
        self.qgroups.counting.rescanned.add(counted.extents.len() as u64);
        self.qgroups.with(|state| state.rescanned(from.into(), &counted));
        Ok(self.is_rescanning())
    }

    fn count_some(&self, mut walk: Walk<CommittedBlocks<'_>>, from: Logical) -> Result<Counted> {
        let (found, next) = walk.extents(from, RESCAN_STEP, self.node_size().into())?;
        let mut counted = Counted { extents: Vec::with_capacity(found.len()), next };
        for extent in found {
            let known = self.qgroups.with(|state| state.known(extent.owners)).flatten();
            let roots = match known {
                Some(roots) => roots,
                None => walk.roots(extent.at, extent.len, extent.kind)?,
            };
            counted.extents.push((roots, extent.len));
        }
        Ok(counted)
    }

    /// The state of the quotas; `None` while they are off.
    #[must_use]
    pub fn quota_status(&self) -> Option<QuotaStatus> {
        self.qgroups.with(|state| state.status())
    }

    /// The error that ended the last rescan early, if one did since the filesystem was opened.
    #[must_use]
    pub fn quota_rescan_failure(&self) -> Option<String> {
        self.qgroups.with(|state| state.rescan_failure()).flatten()
    }

    /// The quota groups, in the order of their ids. Errors: not found, while quotas are off.
    pub fn qgroups(&self) -> Result<Vec<Qgroup>> {
        self.qgroups.with(|state| state.list()).ok_or_else(quotas_are_off)
    }

    /// Figures of counting.
    #[must_use]
    pub fn qgroup_counters(&self) -> QgroupCounters {
        self.qgroups.counting.figures()
    }

    /// Enables quotas: every subvolume gets a group. Full quotas are inconsistent until a rescan has counted everything
    /// ([`Engine::quota_rescan_step`]). It does nothing when quotas are on already. Never call it with a handle.
    /// Errors: read-only; no space; device errors; damage.
    pub fn enable_quotas(&self, mode: QuotaMode) -> Result<()> {
        self.check_writable()?;
        let _alone = self.qgroups.changing.lock();
        if self.qgroups.mode().is_some() {
            return Ok(());
        }
        let groups = self.subvolume_roots()?.len();
        let items = u32::try_from(groups / GROUPS_PER_LEAF).unwrap_or(u32::MAX);
        self.switch(items.saturating_add(self.quota_tree_items()?), Switch::Enable(mode))
    }

    /// Disables quotas, and removes all groups. It does nothing when quotas are off. Never call it with a handle.
    /// Errors: those of [`Engine::enable_quotas`].
    pub fn disable_quotas(&self) -> Result<()> {
        self.check_writable()?;
        let _alone = self.qgroups.changing.lock();
        if self.qgroups.mode().is_none() {
            return Ok(());
        }
        self.switch(self.quota_tree_items()?, Switch::Disable)
    }

    /// Items to reserve for dropping the existing quota tree, and for creating one.
    fn quota_tree_items(&self) -> Result<u32> {
        let blocks = match find_root_item(self.root_tree.tree(), TreeId::QUOTA)? {
            Some(_) => self.tree(TreeId::QUOTA)?.blocks(),
            None => 0,
        };
        Ok(ITEMS.saturating_add(u32::try_from(blocks).unwrap_or(u32::MAX)))
    }

    /// Begins a rescan, which counts everything anew, when the running transaction closes. Never call it with a handle.
    /// Errors: not found, while quotas are off; invalid, with simple ones; in use: a rescan runs.
    pub fn begin_quota_rescan(&self) -> Result<()> {
        self.check_writable()?;
        let _alone = self.qgroups.changing.lock();
        match self.quota_status() {
            None => return Err(quotas_are_off()),
            Some(QuotaStatus { mode: QuotaMode::Simple, .. }) => {
                return Err(Error::invalid("simple quotas cannot be rescanned"));
            }
            Some(QuotaStatus { rescan: Some(_), .. }) => {
                return Err(Error::new(ErrorKind::Busy, "a quota rescan is running"));
            }
            Some(_) => {}
        }
        self.switch(ITEMS, Switch::Rescan)?;
        self.wake_background();
        Ok(())
    }

    /// Creates a group. Errors: not found, while quotas are off; already exists; invalid: the group of a subvolume that does not exist;
    /// those of a commit.
    pub fn create_qgroup(&self, id: QgroupId) -> Result<()> {
        let lives =
            id.subvolume().map(|subvolume| find_root_item(self.root_tree.tree(), subvolume)).transpose()?;
        if id.level() == 0 && lives.flatten().is_none() {
            return Err(Error::invalid(format!("quota group {id} has no subvolume")));
        }
        self.edit_qgroups(|state| state.create(id))
    }

    /// Removes a group. If its subvolume was just dropped, a commit counts that first. Never call it with a handle.
    /// Errors: not found; in use: it has members, or its subvolume is there; those of a commit.
    pub fn remove_qgroup(&self, id: QgroupId) -> Result<()> {
        let lives = match id.subvolume() {
            Some(subvolume) => find_root_item(self.root_tree.tree(), subvolume)?.is_some(),
            None => false,
        };
        if lives {
            return Err(Error::new(ErrorKind::Busy, format!("the subvolume of quota group {id} exists")));
        }
        if self.qgroups.with(|state| state.is_going(id)) == Some(true) {
            self.commit()?;
            if self.qgroups.with(|state| state.has(id)) == Some(false) {
                return Ok(()); // it was empty, and the commit removed it
            }
        }
        self.edit_qgroups(|state| state.remove(id))
    }

    /// Makes `member` a member of `group`, or ends that. Full quotas may be inconsistent then: [`Engine::quota_status`].
    /// Errors: not found; invalid; already exists; those of a commit.
    pub fn assign_qgroup(&self, member: QgroupId, group: QgroupId, is: bool) -> Result<()> {
        self.edit_qgroups(|state| state.assign(member, group, is))
    }

    /// Checks the groups of which a new subvolume is to be a member. They stay, and quotas neither begin nor end, as long as
    /// the result lives. Without quotas the groups are ignored, as in Linux.
    /// Errors: not found; invalid: one is a subvolume's.
    pub fn keep_qgroups(&self, groups: &[QgroupId]) -> Result<Option<KeptGroups<'_>>> {
        if groups.is_empty() {
            return Ok(None);
        }
        let kept = KeptGroups { _alone: self.qgroups.changing.lock() };
        let checked =
            self.qgroups.with(|state| groups.iter().try_for_each(|&group| state.check_joinable(group)));
        checked.transpose()?;
        Ok(Some(kept))
    }

    /// Sets or clears a group's limit of referenced bytes, or of exclusive bytes. Errors: not found; those of a commit.
    pub fn limit_qgroup(&self, id: QgroupId, most: Option<u64>, exclusive: bool) -> Result<()> {
        self.edit_qgroups(|state| state.limit(id, most, exclusive))
    }

    fn edit_qgroups(&self, edit: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        self.check_writable()?;
        let _alone = self.qgroups.changing.lock();
        let handle = self.start(Units::items(ITEMS))?;
        let (running, room) = (handle.generation(), handle.keep_all());
        let edited = self.qgroups.edit(edit);
        handle.end();
        edited?;
        let committed = self.commit_through(running);
        drop(room);
        committed
    }

    fn switch(&self, items: u32, switch: Switch) -> Result<()> {
        let handle = self.start(Units::items(items))?;
        let (running, room) = (handle.generation(), handle.keep_all());
        let waits = self.qgroups.switch_at_close(switch);
        handle.end();
        waits?;
        let committed = self.commit_through(running);
        drop(room);
        committed
    }

    /// Runs steps of the reclaimers, and commits: a change that a limit refuses may fit when that is counted. Never call it with a
    /// handle. Errors: those of the commit.
    pub fn count_what_is_freed(&self) -> Result<()> {
        held::assert_none("RECLAIM-2: nobody who holds a handle reclaims");
        for _ in 0..RECLAIMS {
            self.reclaimers.reclaim();
        }
        self.reclaimers.wait();
        gate::passing(Reason::Reservation, || self.commit_running())
    }

    /// Takes the possible growth of metadata from the limits of the subvolume that changes; it is given back when the transaction
    /// closes. Changes that free space are never refused.
    /// Errors: a limit would be exceeded, after a commit, too.
    pub(super) fn charge_metadata(&self, units: Units) -> Result<()> {
        if !self.qgroups.is_limited() || units.policy != FlushPolicy::FlushAll || !units.grows {
            return Ok(());
        }
        let Some(subvolume) = units.subvolume else { return Ok(()) };
        let bytes = u64::from(units.items) * u64::from(self.node_size());
        let charge = match self.qgroups.charge(subvolume, bytes) {
            Err(error) if error.kind() == ErrorKind::QuotaExceeded => {
                self.count_what_is_freed()?;
                self.qgroups.charge(subvolume, bytes)?
            }
            charge => charge?,
        };
        if let Some(charge) = charge {
            charge.written();
        }
        Ok(())
    }
}
