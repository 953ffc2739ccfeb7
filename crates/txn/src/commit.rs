//! The commit: from a running transaction to a durable one.
//!
//! ```text
//!   close the gate                  all handles have ended, none begins
//!     participants settle what they put off
//!     settle: chunks, delayed refs, block groups, roots - until nothing changes any more
//!     take the dirty blocks and the superblock; switch commit roots; next generation
//!   open the gate                   the next transaction runs; it copies whatever it changes
//!   write out                       the blocks, flush, the superblocks, flush (see `write_out`)
//! ```
//! A crash before the superblock is on the platter leaves the old superblock and everything that it reaches,
//! because nothing that it reaches was overwritten: freed space is handed out only after the last flush. A crash
//! after it leaves the new one, and everything that it reaches was flushed before.
//!
//! Settling is a fixed point: running a delayed ref changes the extent tree and the free space tree, which copies
//! blocks, which queues delayed refs; recording roots changes the root tree. A block is copied only once per
//! transaction, so it comes to rest; [`PASSES_MAX`] bounds it all the same.
//!
//! # Invariants
//! - COMMIT-1: when the gate opens, every block reachable from the new superblock is either durable or in the
//!   list to be written, and no delayed ref, pending chunk or unrecorded root is left.
//! - COMMIT-2: a block in the list to be written is not changed any more but for its checksum and WRITTEN mark.

use std::sync::Arc;

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedGuard, rank};
use creamery_base::{Error, ErrorKind, Generation, Logical, Result, TreeId};
use creamery_format::{RawDevItem, RawRootBackup, Superblock};
use creamery_tree::Tree;

use crate::delayed_refs::{ExtentKind, RefHead};
use crate::engine::Engine;
use crate::extent_tree::Outcome;
use crate::handle::Handle;
use crate::write_out::{Blocks, Closed};

/// More passes than trees can ripple into each other.
const PASSES_MAX: usize = 64;

impl Engine {
    /// Commits the running transaction: everything that ended before this call is durable when it returns. Never
    /// call it with a handle. What was opened for reading has nothing to commit.
    /// Errors: whatever made the transaction abort, now or before.
    pub fn commit(&self) -> Result<()> {
        if self.is_opened_for_reading() {
            return Ok(());
        }
        let committing = self.committing.lock_for(Reason::Commit);
        self.check_writable()?;
        self.close(&committing).and_then(|()| self.end_write_out()).map_err(|error| self.named(error))
    }

    /// Begins a commit when so much is waiting that memory or the commit's length asks for it, and takes part in writing it,
    /// as in all that others began. Waits for one only when the budget is used up.
    pub(crate) fn commit_if_due(&self) -> Result<()> {
        self.share_write_out()?;
        let budget = self.options.dirty_bytes;
        // Each commit copies blocks again that were just written, so the later the better; what is left of the budget is for
        // those who go on meanwhile.
        let due_at = budget / 4 * 3;
        if !self.is_commit_due(due_at) {
            return Ok(());
        }
        let used_up = || self.is_commit_due(budget.saturating_sub(self.store().writing_bytes()));
        let committing = match self.committing.try_lock() {
            Some(committing) => committing,
            None if !used_up() => return Ok(()),
            None => self.committing.lock_for(Reason::Commit),
        };
        // Who waited for another commit may have nothing left to do.
        if self.is_commit_due(due_at) && (self.write_out.is_over() || used_up()) {
            self.close(&committing)?;
        }
        Ok(())
    }

    fn is_commit_due(&self, dirty_max: u64) -> bool {
        self.store().dirty_bytes() > dirty_max || self.refs.len() > self.options.delayed_refs_max
    }

    /// Closes the running transaction, when the one before is over, and begins to write it out.
    fn close(&self, _alone: &RankedGuard<'_, (), { rank::COMMIT }>) -> Result<()> {
        self.end_write_out()?;
        if let Some((closed, blocks)) = self.or_abort(self.close_transaction())? {
            self.begin_write_out(closed, &blocks);
        }
        Ok(())
    }

    /// The critical section. None when there was nothing to commit.
    fn close_transaction(&self) -> Result<Option<(Closed, Blocks)>> {
        let begun = self.env().monotonic();
        let parts = self.running.all().zip(0..);
        let _gate: Vec<_> = parts.map(|(running, part)| running.write_for(Reason::Commit, part)).collect();
        self.check_writable()?;
        if self.store().dirty_bytes() == 0 && self.refs.len() == 0 && !self.has_pending_chunks() {
            return Ok(None);
        }
        let handle = self.committing_handle();
        let mut pinned = Vec::new();
        let settled = self.participants.settle(&handle).and_then(|()| self.settle(&handle, &mut pinned));
        handle.end();
        settled?;
        self.check_writable()?;
        let generation = self.generation();
        let superblock = self.next_superblock(generation)?;
        let trees: Vec<Arc<Tree>> = self.trees.read().values().cloned().collect();
        for tree in trees {
            tree.switch_commit_root(tree.root_pointer()?);
        }
        let blocks = self.store().take_dirty();
        self.begin_next_generation();
        self.counters.gate_closed(self.env().monotonic().saturating_sub(begun));
        Ok(Some((Closed { generation, superblock, block_count: blocks.len(), pinned, begun }, blocks)))
    }

    /// Runs everything that is queued until nothing is (COMMIT-1).
    fn settle(&self, handle: &Handle<'_>, pinned: &mut Vec<(Logical, u64)>) -> Result<()> {
        self.remove_idle_groups(handle)?;
        for _ in 0..PASSES_MAX {
            let mut changed = self.record_chunks(handle)?;
            changed |= self.run_delayed_refs(handle, pinned)?;
            changed |= self.record_groups(handle)?;
            changed |= self.record_roots(handle)?;
            if !changed {
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Aborted, format!("a commit did not come to rest in {PASSES_MAX} passes")))
    }

    fn record_roots(&self, handle: &Handle<'_>) -> Result<bool> {
        let mut trees: Vec<Arc<Tree>> = self.trees.read().values().cloned().collect();
        trees.sort_unstable_by_key(|tree| tree.id());
        let mut any = false;
        for tree in trees.iter().filter(|tree| ![TreeId::ROOT, TreeId::CHUNK].contains(&tree.id())) {
            if tree.root_pointer()? != tree.commit_root() {
                any |= self.record_root(handle, tree)?;
            }
        }
        Ok(any)
    }

    /// Runs all delayed refs, in order of address. True when there were any.
    fn run_delayed_refs(&self, handle: &Handle<'_>, pinned: &mut Vec<(Logical, u64)>) -> Result<bool> {
        let heads = self.refs.take();
        let mut changes = SpaceChanges::default();
        for (at, head) in &heads {
            match self.run_head(handle, *at, head)? {
                Outcome::Inserted => {
                    self.space.count_used(*at, head.len, true)?;
                    self.apply_space(handle, changes.push(*at, head.len, false))?;
                }
                Outcome::Freed => {
                    self.space.count_used(*at, head.len, false)?;
                    self.free_extent(handle, *at, head, pinned)?;
                    self.apply_space(handle, changes.push(*at, head.len, true))?;
                }
                Outcome::NeverThere => self.free_extent(handle, *at, head, pinned)?,
                Outcome::Changed => {}
            }
            self.refs.has_run(head);
        }
        self.apply_space(handle, changes.0.take())?;
        Ok(!heads.is_empty())
    }

    fn free_extent(
        &self,
        handle: &Handle<'_>,
        at: Logical,
        head: &RefHead,
        pinned: &mut Vec<(Logical, u64)>,
    ) -> Result<()> {
        if head.kind == ExtentKind::Data {
            self.csum_tree.remove(handle, at, head.len)?;
        }
        self.space.pin(at, head.len)?;
        pinned.push((at, head.len));
        Ok(())
    }

    /// Brings the free space tree up to date for one run of space.
    fn apply_space(&self, handle: &Handle<'_>, run: Option<SpaceRun>) -> Result<()> {
        let Some(SpaceRun { start, len, freed }) = run else { return Ok(()) };
        let (mut at, end) = (start, start + len);
        while at < end {
            let group = self.space.group_at(at).ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, format!("extent {at} lies in no block group"))
            })?;
            let piece = end.min(group.end()).get() - at.get();
            if let Some(free) = self.group_free_space(&group) {
                if freed { free.add(handle, at, piece)? } else { free.remove(handle, at, piece)? }
            }
            at = at + piece;
        }
        Ok(())
    }

    fn next_superblock(&self, generation: Generation) -> Result<Superblock> {
        let root = self.root_tree.root_pointer()?;
        let chunk_root = self.chunk_tree.root_pointer()?;
        let extent_root = self.extent_tree.root_pointer()?;
        let dev_root = self.dev_tree.root_pointer()?;
        let csum_root = self.csum_tree.tree().root_pointer()?;
        let fs_root = self.tree(TreeId::FS)?.root_pointer()?;
        let (device, devices) = (self.recorded_device()?, self.device_count());
        let mut superblock = self.superblock.lock();
        let raw = superblock.raw_mut();
        if raw.uuid_tree_generation == raw.generation {
            raw.uuid_tree_generation = generation.get().into(); // the UUID tree stays complete
        }
        raw.generation = generation.get().into();
        raw.num_devices = devices.into();
        raw.dev_item = RawDevItem { generation: 0.into(), ..device };
        raw.root = root.logical.get().into();
        raw.root_level = root.level;
        raw.chunk_root = chunk_root.logical.get().into();
        raw.chunk_root_level = chunk_root.level;
        raw.chunk_root_generation = chunk_root.generation.get().into();
        raw.bytes_used = self.space.bytes_used().into();
        raw.cache_generation = 0.into();
        let backup = RawRootBackup {
            tree_root: root.logical.get().into(),
            tree_root_gen: root.generation.get().into(),
            tree_root_level: root.level,
            chunk_root: chunk_root.logical.get().into(),
            chunk_root_gen: chunk_root.generation.get().into(),
            chunk_root_level: chunk_root.level,
            extent_root: extent_root.logical.get().into(),
            extent_root_gen: extent_root.generation.get().into(),
            extent_root_level: extent_root.level,
            fs_root: fs_root.logical.get().into(),
            fs_root_gen: fs_root.generation.get().into(),
            fs_root_level: fs_root.level,
            dev_root: dev_root.logical.get().into(),
            dev_root_gen: dev_root.generation.get().into(),
            dev_root_level: dev_root.level,
            csum_root: csum_root.logical.get().into(),
            csum_root_gen: csum_root.generation.get().into(),
            csum_root_level: csum_root.level,
            total_bytes: raw.total_bytes,
            bytes_used: raw.bytes_used,
            num_devices: raw.num_devices,
            unused_64: [0.into(); 4],
            unused_8: [0; 10],
        };
        let newest = (0..4).max_by_key(|&slot| raw.super_roots[slot].tree_root_gen.get()).unwrap_or(3);
        raw.super_roots[(newest + 1) % 4] = backup;
        Ok(superblock.clone())
    }
}

/// A run of space that became used or free.
#[derive(Clone, Copy, Debug)]
struct SpaceRun {
    start: Logical,
    len: u64,
    freed: bool,
}

/// Joins runs that follow each other, so that the free space tree is changed once for many extents side by side.
#[derive(Default)]
struct SpaceChanges(Option<SpaceRun>);

impl SpaceChanges {
    /// Adds an extent; returns the run that it does not continue.
    fn push(&mut self, start: Logical, len: u64, freed: bool) -> Option<SpaceRun> {
        if let Some(run) = &mut self.0
            && run.freed == freed
            && run.start + run.len == start
        {
            run.len += len;
            return None;
        }
        self.0.replace(SpaceRun { start, len, freed })
    }
}
