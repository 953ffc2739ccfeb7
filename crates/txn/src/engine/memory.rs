//! The memory of an engine, by component.
//!
//! Each component whose memory grows with the filesystem or with the work reports it: its capacity where a
//! collection tells it, else an estimate (`base::memory`). No figure contains the memory of an operation while it runs, nor
//! the allocator's overhead. A test compares the sum with the memory of a real process (`sim/tests/memory`).

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
    /// Tree blocks that a commit is writing out, and its memory for that.
    pub writing_blocks: u64,
    /// Tree blocks of logs.
    pub log_blocks: u64,
    /// Kept for later tree blocks; it belongs to the process, not to this engine alone.
    pub spare_blocks: u64,
    /// Changes of references that are not yet in the extent tree.
    pub delayed_refs: u64,
    /// Lists of freed extents that wait for a commit, or to be discarded.
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
    /// The memory in use. Takes some milliseconds where very many changes wait for a commit.
    #[must_use]
    pub fn memory(&self) -> EngineMemory {
        let StoreMemory { clean, dirty, writing } = self.store.memory();
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
