//! How much memory an engine has, and who in it.
//!
//! Everybody who keeps something that grows with the filesystem or with the work says what that takes: its capacity where a
//! collection tells it, else an estimate (`base::memory`). What an operation needs while it runs is in none of the figures, nor
//! is what the allocator adds to each piece. A test holds the sum against what a process really has (`sim/tests/memory`).

use creamery_device::AlignedBuffer;
use creamery_tree::StoreMemory;

use super::Engine;

/// Memory of an engine, bytes.
///
/// ```
/// assert_eq!(creamery_txn::EngineMemory::default().delayed_refs, 0);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct EngineMemory {
    /// Clean tree blocks, and the index of all tree blocks.
    pub clean_blocks: u64,
    /// Tree blocks that wait for the next commit.
    pub dirty_blocks: u64,
    /// Tree blocks that a commit is writing out, and what it needs for that.
    pub writing_blocks: u64,
    /// Tree blocks of logs.
    pub log_blocks: u64,
    /// Kept for tree blocks to come; the process has it, not this engine alone.
    pub spare_blocks: u64,
    /// Changes of references that are not yet in the extent tree.
    pub delayed_refs: u64,
    /// Lists of what was freed and waits for a commit, or to be discarded.
    pub pinned: u64,
    /// Free space of block groups.
    pub free_space: u64,
    /// Block groups, chunks, and the maps of devices.
    pub block_groups: u64,
    /// Open trees, their blocks left out.
    pub trees: u64,
    /// Quota groups, and extents that are to be counted for them.
    pub qgroups: u64,
    /// Writes that wait for the first change: a replayed log and repairs.
    pub held_writes: u64,
}

impl Engine {
    /// How much memory it has. Takes some milliseconds where very much waits for a commit.
    #[must_use]
    pub fn memory(&self) -> EngineMemory {
        let StoreMemory { clean, dirty, writing } = self.store().memory();
        let (to_run, freed) = self.runner.try_turn().map_or((0, 0), |turn| turn.memory());
        let (write_out, freed_before) = self.pipeline.memory();
        EngineMemory {
            clean_blocks: clean,
            dirty_blocks: dirty,
            writing_blocks: writing + write_out,
            log_blocks: self.logs.memory(),
            spare_blocks: AlignedBuffer::spare_bytes(),
            delayed_refs: self.extent_tree.refs().memory() + to_run,
            pinned: freed + freed_before + self.discards.memory(),
            free_space: self.space.free_space_memory(),
            block_groups: self.space.groups_memory()
                + self.volume().chunk_map_memory()
                + self.chunks.memory(),
            trees: self.root_tree.memory(),
            qgroups: self.qgroups.with(|state| state.memory()).unwrap_or(0),
            held_writes: self.volume().held_memory(),
        }
    }
}
