//! Operations on quotas.

use std::collections::BTreeMap;

use creamery_base::{ErrorKind, QgroupId, Result, TreeId};
use creamery_txn::{Qgroup, QuotaMode};

use super::Filesystem;
use crate::quota::{QgroupReport, QuotaChange, QuotaReport};
use crate::subvolume::ListedSubvolume;

/// Quotas.
impl Filesystem {
    /// Changes the quotas. `here` is the subvolume to use where the change names none. Durable when it returns.
    /// Errors: not found: there are no quotas, or no such group; already exists; invalid; in use; read-only; those of a commit.
    pub fn change_quotas(&self, change: &QuotaChange, here: TreeId) -> Result<()> {
        let (engine, quotas) = (self.engine(), self.engine().quotas());
        if let QuotaChange::Limit { .. } | QuotaChange::Assign { .. } | QuotaChange::Remove { .. } = change {
            // Delayed data has its room reserved in the groups before the change.
            self.make_durable()?;
        }
        match *change {
            QuotaChange::Enable { simple } => {
                quotas.enable(if simple { QuotaMode::Simple } else { QuotaMode::Full })?;
                engine.background().wake();
                Ok(())
            }
            QuotaChange::Disable => quotas.disable(),
            QuotaChange::Rescan => quotas.begin_rescan(),
            QuotaChange::Create(id) => quotas.create(id),
            QuotaChange::Destroy(id) => quotas.remove(id),
            QuotaChange::Assign { member, group } => quotas.assign(member, group, true),
            QuotaChange::Remove { member, group } => quotas.assign(member, group, false),
            QuotaChange::Limit { group, most, exclusive } => {
                quotas.limit(group.unwrap_or(QgroupId::of(here)), most, exclusive)
            }
            QuotaChange::ClearStale => self.clear_stale_qgroups(),
        }
    }

    fn clear_stale_qgroups(&self) -> Result<()> {
        let (engine, quotas) = (self.engine(), self.engine().quotas());
        for group in quotas.list()? {
            let is_stale = group.id.subvolume().is_some_and(|id| engine.root_item(id).is_err());
            if !is_stale || !group.members.is_empty() {
                continue;
            }
            match quotas.remove(group.id) {
                // Another thread was faster, or with simple quotas extents still count for it.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Busy) => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Takes a step of a rescan, where no background thread does that. False when nothing is left to count.
    /// Errors: device errors; damage.
    pub fn quota_rescan_step(&self) -> Result<bool> {
        self.engine().quotas().rescan_step()
    }

    /// Status, groups and numbers of the quotas. Numbers are as of the last commit, with later changes that are known.
    /// Errors: damage.
    pub fn quota_report(&self) -> Result<QuotaReport> {
        let status = self.engine().quotas().status();
        let groups = if status.is_some() { self.engine().quotas().list()? } else { Vec::new() };
        // Deleted subvolumes have no path any more.
        let place = |listed: ListedSubvolume| listed.path.filter(|_| !listed.info.is_deleted);
        let listed = self.subvolumes()?.into_iter();
        let mut paths: BTreeMap<TreeId, _> =
            listed.map(|listed| (listed.info.id, (listed.info.is_deleted, place(listed)))).collect();
        paths.insert(TreeId::FS, (false, Some(Vec::new())));
        let report = |group: Qgroup| {
            let of = group.id.subvolume().and_then(|id| paths.remove(&id));
            let (is_deleted, path) = of.unwrap_or_default();
            QgroupReport {
                id: group.id,
                referenced: group.usage.referenced,
                exclusive: group.usage.exclusive,
                max_referenced: group.limits.referenced,
                max_exclusive: group.limits.exclusive,
                parents: group.parents,
                members: group.members,
                path,
                is_deleted,
            }
        };
        let groups = groups.into_iter().map(report).collect();
        Ok(QuotaReport::new(status, self.engine().quotas().rescan_failure(), groups))
    }
}
