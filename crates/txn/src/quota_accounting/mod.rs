//! Quotas over the trees of a filesystem: reading them when it is opened, and counting and writing them when a transaction closes.
//!
//! [`Qgroups`] has the groups and their numbers, and describes how extents are counted. Here are the steps that need trees besides: the
//! quota tree itself, the trees of the last commit and of the closing transaction, which walks compare, and the roots of subvolumes.
//!
//! | file | |
//! |---|---|
//! | `count` | walks over back references, when a transaction closes and for a rescan |
//! | `change` | changes by users: modes, groups, limits |

mod change;
mod count;

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, ObjectId, QgroupId, Result, TreeId, Wait};
use creamery_format::{Incompat, Key, KeyType};
use creamery_tree::{BufferStore, Dropped, TreeDrop};

use crate::background::Background;
use crate::commit::CommitRoots;
use crate::extent_tree::ExtentTree;
use crate::handle::Handle;
use crate::qgroup::{
    Qgroup, QgroupCounters, Qgroups, QuotaMode, QuotaState, QuotaStatus, Switch, quotas_are_off,
};
use crate::roots::{RootTree, find_root_item};
use crate::transaction::Transaction;
use crate::transaction_port::TransactionPort;

pub use change::KeptGroups;

/// The quotas of a filesystem: the usage of subvolumes and their groups, and their limits.
///
/// ```no_run
/// # fn show(engine: &creamery_txn::Engine) -> creamery_base::Result<()> {
/// let quotas = engine.quotas();
/// quotas.enable(creamery_txn::QuotaMode::Full)?;
/// while quotas.rescan_step()? {}
/// println!("{:?}", quotas.status());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct QuotaAccounting<'e> {
    pub(crate) qgroups: &'e Arc<Qgroups>,
    pub(crate) store: &'e Arc<BufferStore>,
    pub(crate) root_tree: &'e RootTree,
    pub(crate) extent_tree: &'e ExtentTree,
    pub(crate) commit_roots: &'e CommitRoots,
    pub(crate) transaction: &'e Transaction,
    pub(crate) background: &'e Background,
    pub(crate) port: &'e dyn TransactionPort,
}

impl QuotaAccounting<'_> {
    /// The state of the quotas; `None` while they are off.
    #[must_use]
    pub fn status(&self) -> Option<QuotaStatus> {
        self.qgroups.with(|state| state.status())
    }

    /// The error that ended the last rescan early, if one did since the filesystem was opened.
    #[must_use]
    pub fn rescan_failure(&self) -> Option<String> {
        self.qgroups.with(|state| state.rescan_failure()).flatten()
    }

    /// The quota groups, in the order of their ids. Errors: not found, while quotas are off.
    pub fn list(&self) -> Result<Vec<Qgroup>> {
        self.qgroups.with(|state| state.list()).ok_or_else(quotas_are_off)
    }

    /// Figures of counting.
    #[must_use]
    pub fn counters(&self) -> QgroupCounters {
        self.qgroups.counting.figures()
    }

    /// Whether a rescan has extents before it.
    pub(crate) fn is_rescanning(&self) -> bool {
        self.qgroups.with(|state| state.status().rescan.is_some()).unwrap_or(false)
    }

    /// Reads the quotas of the filesystem, if it has any.
    /// Errors: device errors; damage.
    pub(crate) fn load(&self) -> Result<()> {
        if find_root_item(self.root_tree.tree(), TreeId::QUOTA)?.is_none() {
            return Ok(());
        }
        let last = self.store.volume().superblock().generation();
        let loaded = self.root_tree.get(TreeId::QUOTA).and_then(|tree| QuotaState::load(tree, last));
        let loaded = loaded.and_then(|state| self.check_mode(state));
        let Some(mut state) = (match loaded {
            // A read-only engine can do without them.
            Err(_) if self.port.check_writable().is_err() => None,
            loaded => loaded?,
        }) else {
            return Ok(());
        };
        self.note_last_snapshots(&mut state)?;
        self.count_with(Some(state));
        Ok(())
    }

    /// Refuses simple quotas without their feature in the superblock: they put owners into extent items, which only the feature announces.
    fn check_mode(&self, state: Option<Box<QuotaState>>) -> Result<Option<Box<QuotaState>>> {
        let is_simple = state.as_ref().is_some_and(|state| state.mode() == QuotaMode::Simple);
        if is_simple && !self.store.volume().superblock().incompat().contains(Incompat::SIMPLE_QUOTA) {
            let message = "quota status item: simple quotas, but the superblock lacks SIMPLE_QUOTA";
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(state)
    }

    fn count_with(&self, state: Option<Box<QuotaState>>) {
        self.qgroups.set(state);
        let mode = self.qgroups.mode();
        self.extent_tree.set_names_owners(mode == Some(QuotaMode::Simple));
        self.extent_tree.refs().set_keeps_cancelled(mode == Some(QuotaMode::Full));
    }

    /// Notes for each subvolume the generation up to which its blocks may be shared.
    fn note_last_snapshots(&self, state: &mut QuotaState) -> Result<()> {
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
    pub(crate) fn run_switch(&self, handle: &Handle<'_>) -> Result<()> {
        match self.qgroups.take_switch() {
            None => {}
            Some(Switch::Rescan) => {
                self.qgroups.with(QuotaState::begin_rescan);
            }
            Some(Switch::Enable(mode)) => {
                // Another program may have left a part of an earlier quota tree.
                self.drop_tree(handle)?;
                let tree = handle.create_tree(TreeId::QUOTA)?;
                // Extents of the next transaction and later ones count.
                let mut state = Box::new(QuotaState::new(tree, mode, handle.generation().next()));
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
                self.drop_tree(handle)?;
            }
        }
        Ok(())
    }

    /// Removes the quota tree, if there is one, all of it in this transaction: Linux does not write to half a quota tree.
    fn drop_tree(&self, handle: &Handle<'_>) -> Result<()> {
        if find_root_item(self.root_tree.tree(), TreeId::QUOTA)?.is_none() {
            return Ok(());
        }
        let dropped = TreeDrop::new(self.root_tree.get(TreeId::QUOTA)?, Generation::default(), None)
            .step(handle, u32::MAX)?;
        assert_eq!(dropped, Dropped::Wholly, "there is room for all references that there may be");
        handle.remove_tree(TreeId::QUOTA)
    }

    /// Counts the changes of the closing transaction that are not counted yet, and writes the numbers. True when there
    /// was something to write.
    pub(crate) fn settle(&self, handle: &Handle<'_>) -> Result<bool> {
        let is_idle = self.store.dirty_bytes() == 0 && !self.qgroups.has_work();
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
}
