//! Counting extents by walks over their back references.

use creamery_base::{Logical, Result};

use super::QuotaAccounting;
use crate::backref_walk::{ClosedBlocks, CommittedBlocks, Trees, Walk};
use crate::qgroup::{Changed, Counted, QuotaState, RESCAN_STEP};

impl QuotaAccounting<'_> {
    /// Walks the back references of noted extents, in the last commit and in this transaction (QGROUP-1).
    pub(crate) fn count_changed(&self) -> Result<()> {
        let Some(changed) = self.qgroups.with(QuotaState::take_changed).filter(|changed| !changed.is_empty())
        else {
            return Ok(());
        };
        // The walks compare each node's key with its child's first key.
        self.store.settle_low_keys()?;
        let walked = self.walk_changed(changed);
        match walked {
            // A reference that leads nowhere, or an unreadable block, is no reason to end all writing.
            Err(error) if error.kind().is_damage() => {
                self.qgroups.with(QuotaState::mark_inconsistent);
                Ok(())
            }
            walked => walked,
        }
    }

    fn walk_changed(&self, changed: Vec<(Logical, Changed)>) -> Result<()> {
        let mut commit = self.committed_walk()?;
        let root = self.root_tree.tree().root_pointer()?;
        let mut closed = Walk::for_roots(Trees::new(ClosedBlocks(self.root_tree), root)?);
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
        let blocks = CommittedBlocks::new(self.store, self.commit_roots.guard());
        Ok(Walk::for_roots(Trees::new(blocks, self.root_tree.tree().commit_root())?))
    }

    /// Counts the next extents of a rescan. False when there is none.
    /// Errors: device errors and damage, which end the rescan: the numbers are inconsistent, and the next commit says so.
    pub fn rescan_step(&self) -> Result<bool> {
        // Changes of the running transaction are counted when it closes, relative to the state that is counted here.
        self.port.end_write_out()?;
        let running = self.transaction.join();
        let (before, guard) = (self.transaction.generation(), self.commit_roots.guard());
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
        let _running = self.transaction.join();
        if self.transaction.generation() != before {
            return Ok(true); // another transaction runs: the extents may have changed
        }
        self.qgroups.counting.rescanned.add(counted.extents.len() as u64);
        self.qgroups.with(|state| state.rescanned(from.into(), &counted));
        Ok(self.is_rescanning())
    }

    fn count_some(&self, mut walk: Walk<CommittedBlocks<'_>>, from: Logical) -> Result<Counted> {
        let (found, next) = walk.extents(from, RESCAN_STEP, self.store.volume().node_size().into())?;
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
}
