//! Quotas, in operations that span other owners: snapshots, and limits that a change may exceed.

use std::sync::Arc;

use creamery_base::gate::{self, Reason};
use creamery_base::{ErrorKind, Result};
use creamery_tree::Tree;

use super::Engine;
use crate::flush_policy::FlushPolicy;
use crate::handle::Handle;
use crate::held;
use crate::qgroup::QuotaMode;
use crate::reserve_items::ReserveItems;
use crate::snapshot::NewSnapshot;

/// Rounds of reclaiming before a limit refuses.
const RECLAIMS: usize = 4;

impl Engine {
    /// Takes a snapshot, with the commit's own handle. The source's tree contains all delayed changes that belong into the snapshot. Later changes
    /// of the source in the same transaction use [`Tree::copying_all`].
    /// Errors: not found; already exists; no space; device errors; damage. The transaction aborts.
    pub fn create_snapshot(&self, handle: &Handle<'_>, new: &NewSnapshot) -> Result<Arc<Tree>> {
        if self.qgroups.mode() == Some(QuotaMode::Full) {
            while self.runner.turn().round(self.ports(), handle)? {}
            self.quotas().count_changed()?;
        }
        handle.create_snapshot(new)
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
    pub(super) fn charge_metadata(&self, units: ReserveItems) -> Result<()> {
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
