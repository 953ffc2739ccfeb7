//! The critical section: with the gate closed, all queued and deferred changes are applied, until nothing changes any more.

use creamery_base::{Error, ErrorKind, Generation, Logical, Result, TreeId};
use creamery_format::Superblock;

use super::Engine;
use crate::commit::{BlockList, Closed, CommitPhase, SuperblockUpdate};
use crate::handle::Handle;

/// More passes than trees can ripple into each other.
const PASSES_MAX: usize = 64;

impl Engine {
    /// The critical section. `None` when there was nothing to commit.
    pub(super) fn close_transaction(&self) -> Result<Option<(Closed, BlockList)>> {
        let begun = self.env().monotonic();
        self.transaction.enter(CommitPhase::CloseGate);
        let gate = self.transaction.close();
        self.check_writable()?;
        if self.has_nothing_to_commit() {
            // Releases space that a reader still needed when the last commit ended.
            self.discarder().release(&self.pipeline.roots.take_releasable())?;
            self.qgroups.with(|state| state.forget_pending());
            return gate.flush_written(self.volume()).map(|()| None);
        }
        self.transaction.enter(CommitPhase::Settle);
        let need = self.headroom().need.closed();
        let handle = self.committing_handle();
        let settled = self
            .converter()
            .run_waiting(&handle)
            .and_then(|()| self.quotas().run_switch(&handle))
            .and_then(|()| self.pipeline.participants.settle(&handle))
            .and_then(|()| self.settle(&handle, need));
        handle.end();
        settled?;
        self.check_writable()?;
        if self.store.dirty_bytes() == 0 {
            // Groups were to be removed and none could be: no superblock is written, for it would be newer than its root.
            return gate.flush_written(self.volume()).map(|()| None);
        }
        self.transaction.enter(CommitPhase::Take);
        let generation = self.generation();
        let superblock = self.next_superblock(generation)?;
        let own = self.root_tree.own_blocks();
        // Before a commit root leads to these blocks: readers without a handle compare the keys in them.
        let blocks = self.store.take_dirty()?;
        self.root_tree.switch_commit_roots()?;
        assert_eq!(
            own,
            blocks.len() as u64,
            "OWN-1: blocks that trees have made and those that wait to be written"
        );
        let mut pinned = self.runner.turn().take_freed();
        self.end_logs(generation, &mut pinned)?;
        let written = gate.take_written().unwrap_or_else(|| self.volume().nothing_written());
        assert!(self.extent_tree.refs().len() == 0, "COMMIT-1: no delayed ref is left");
        assert!(!self.chunks.has_work(), "COMMIT-1: no chunk is left");
        self.extent_tree.refs().close_lost(generation);
        self.qgroups.begin_next();
        gate.begin_next();
        self.counters.gate_closed(self.env().monotonic().saturating_sub(begun));
        let block_count = blocks.len();
        Ok(Some((Closed { generation, superblock, block_count, pinned, written, begun }, blocks)))
    }

    /// Pins the blocks of the logs, which are free when the transaction is durable (LOG-2).
    fn end_logs(&self, generation: Generation, pinned: &mut Vec<(Logical, u64)>) -> Result<()> {
        let len = u64::from(self.node_size());
        self.logs.end(generation).into_iter().try_for_each(|at| {
            pinned.push((at, len));
            self.space.pin(at, len)
        })
    }

    /// Whether anything has changed since the filesystem was opened. Until then automatic work (deleting orphans,
    /// counting for quotas, discarding) leaves the devices as they are ([`creamery_volume::Volume::is_untouched`]).
    pub fn has_changes(&self) -> bool {
        !self.volume().is_untouched() || self.delalloc.data() > 0 || !self.has_nothing_to_commit()
    }

    fn has_nothing_to_commit(&self) -> bool {
        self.store.dirty_bytes() == 0
            && self.extent_tree.refs().len() == 0
            && !self.chunks.has_work()
            && !self.pipeline.participants.have_work()
            && !self.qgroups.has_work()
            && !self.conversions.any()
    }

    /// Applies all queued changes until none is left (COMMIT-1).
    /// Deferred changes take at most `need` bytes of tree blocks; they are in the trees already.
    fn settle(&self, handle: &Handle<'_>, need: u64) -> Result<()> {
        #[cfg(feature = "faults")]
        if self.settles_nothing.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(());
        }
        handle.check_commit_need(need);
        // Removing groups is not part of `need`: it checks the available room itself, for each group.
        let removed = self.idle_groups().remove(handle)?;
        let need = if removed { handle.unpromised() + self.headroom().need.closed() } else { need };
        for _ in 0..PASSES_MAX {
            let mut changed = self.group_records().record_chunks(handle)?;
            changed |= self.runner.turn().round(self.ports(), handle)?;
            changed |= self.group_records().record_used(handle)?;
            changed |= self.root_tree.record_roots(handle, self.env().now())?;
            if !changed && !self.quotas().settle(handle)? {
                handle.check_commit_need(need);
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Aborted, format!("a commit did not settle in {PASSES_MAX} passes")))
    }

    fn next_superblock(&self, generation: Generation) -> Result<Superblock> {
        Ok(self.superblock.close(&SuperblockUpdate {
            generation,
            root: self.root_tree.tree().root_pointer()?,
            chunk_root: self.chunk_tree.root_pointer()?,
            extent_root: self.extent_tree.tree().root_pointer()?,
            dev_root: self.dev_tree.root_pointer()?,
            csum_root: self.csum_tree.tree().root_pointer()?,
            fs_root: self.tree(TreeId::FS)?.root_pointer()?,
            device: self.chunks.recorded_device(self.superblock.device())?,
            device_count: self.chunks.device_count(),
            bytes_used: self.space.bytes_used(),
        }))
    }
}
