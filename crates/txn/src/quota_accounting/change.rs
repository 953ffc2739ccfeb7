//! Changes of quotas by users. Each is durable on return.

use creamery_base::lock::{RankedGuard, rank};
use creamery_base::{Error, ErrorKind, QgroupId, Result, TreeId};

use super::QuotaAccounting;
use crate::qgroup::{QuotaMode, QuotaState, QuotaStatus, Switch, quotas_are_off};
use crate::reserve_items::ReserveItems;
use crate::roots::find_root_item;

/// Items that a change of groups reserves: it may split leaves.
const ITEMS: u32 = 4;
/// Groups whose items fill a leaf, at least.
const GROUPS_PER_LEAF: usize = 16;

/// Keeps the groups of a new subvolume in place until this is dropped ([`QuotaAccounting::keep`]).
///
/// ```
/// fn is_kept(_: &creamery_txn::KeptGroups<'_>) {}
/// ```
#[must_use]
pub struct KeptGroups<'a> {
    _alone: RankedGuard<'a, (), { rank::QGROUP_CHANGE }>,
}

impl<'e> QuotaAccounting<'e> {
    /// Enables quotas: every subvolume gets a group. Full quotas are inconsistent until a rescan has counted everything
    /// ([`QuotaAccounting::rescan_step`]). It does nothing when quotas are on already. Never call it with a handle.
    /// Errors: read-only; no space; device errors; damage.
    pub fn enable(&self, mode: QuotaMode) -> Result<()> {
        self.port.check_writable()?;
        let _alone = self.qgroups.changing.lock();
        if self.qgroups.mode().is_some() {
            return Ok(());
        }
        let groups = self.subvolume_roots()?.len();
        let items = u32::try_from(groups / GROUPS_PER_LEAF).unwrap_or(u32::MAX);
        self.switch(items.saturating_add(self.tree_items()?), Switch::Enable(mode))
    }

    /// Disables quotas, and removes all groups. It does nothing when quotas are off. Never call it with a handle.
    /// Errors: those of [`QuotaAccounting::enable`].
    pub fn disable(&self) -> Result<()> {
        self.port.check_writable()?;
        let _alone = self.qgroups.changing.lock();
        if self.qgroups.mode().is_none() {
            return Ok(());
        }
        self.switch(self.tree_items()?, Switch::Disable)
    }

    /// Items to reserve for dropping the existing quota tree, and for creating one.
    fn tree_items(&self) -> Result<u32> {
        let blocks = match find_root_item(self.root_tree.tree(), TreeId::QUOTA)? {
            Some(_) => self.root_tree.get(TreeId::QUOTA)?.blocks(),
            None => 0,
        };
        Ok(ITEMS.saturating_add(u32::try_from(blocks).unwrap_or(u32::MAX)))
    }

    /// Begins a rescan, which counts everything anew, when the running transaction closes. Never call it with a handle.
    /// Errors: not found, while quotas are off; invalid, with simple ones; in use: a rescan runs.
    pub fn begin_rescan(&self) -> Result<()> {
        self.port.check_writable()?;
        let _alone = self.qgroups.changing.lock();
        match self.status() {
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
        self.background.wake();
        Ok(())
    }

    /// Creates a group. Errors: not found, while quotas are off; already exists; invalid: the group of a subvolume that does not exist;
    /// those of a commit.
    pub fn create(&self, id: QgroupId) -> Result<()> {
        let lives =
            id.subvolume().map(|subvolume| find_root_item(self.root_tree.tree(), subvolume)).transpose()?;
        if id.level() == 0 && lives.flatten().is_none() {
            return Err(Error::invalid(format!("quota group {id} has no subvolume")));
        }
        self.edit(|state| state.create(id))
    }

    /// Removes a group. If its subvolume was just dropped, a commit counts that first. Never call it with a handle.
    /// Errors: not found; in use: it has members, or its subvolume is there; those of a commit.
    pub fn remove(&self, id: QgroupId) -> Result<()> {
        let lives = match id.subvolume() {
            Some(subvolume) => find_root_item(self.root_tree.tree(), subvolume)?.is_some(),
            None => false,
        };
        if lives {
            return Err(Error::new(ErrorKind::Busy, format!("the subvolume of quota group {id} exists")));
        }
        if self.qgroups.with(|state| state.is_going(id)) == Some(true) {
            self.port.commit()?;
            if self.qgroups.with(|state| state.has(id)) == Some(false) {
                return Ok(()); // it was empty, and the commit removed it
            }
        }
        self.edit(|state| state.remove(id))
    }

    /// Makes `member` a member of `group`, or ends that. Full quotas may be inconsistent then: [`QuotaAccounting::status`].
    /// Errors: not found; invalid; already exists; those of a commit.
    pub fn assign(&self, member: QgroupId, group: QgroupId, is: bool) -> Result<()> {
        self.edit(|state| state.assign(member, group, is))
    }

    /// Checks the groups of which a new subvolume is to be a member. They stay, and quotas neither begin nor end, as long as
    /// the result lives. Without quotas the groups are ignored, as in Linux.
    /// Errors: not found; invalid: one is a subvolume's.
    pub fn keep(&self, groups: &[QgroupId]) -> Result<Option<KeptGroups<'e>>> {
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
    pub fn limit(&self, id: QgroupId, most: Option<u64>, exclusive: bool) -> Result<()> {
        self.edit(|state| state.limit(id, most, exclusive))
    }

    fn edit(&self, edit: impl FnOnce(&mut QuotaState) -> Result<()>) -> Result<()> {
        self.port.check_writable()?;
        let _alone = self.qgroups.changing.lock();
        let handle = self.port.start(ReserveItems::items(ITEMS))?;
        let (running, room) = (handle.generation(), handle.keep_all());
        let edited = self.qgroups.edit(edit);
        handle.end();
        edited?;
        let committed = self.port.commit_through(running);
        drop(room);
        committed
    }

    fn switch(&self, items: u32, switch: Switch) -> Result<()> {
        let handle = self.port.start(ReserveItems::items(items))?;
        let (running, room) = (handle.generation(), handle.keep_all());
        let waits = self.qgroups.switch_at_close(switch);
        handle.end();
        waits?;
        let committed = self.port.commit_through(running);
        drop(room);
        committed
    }
}
