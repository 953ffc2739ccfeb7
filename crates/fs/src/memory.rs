//! The memory of a filesystem: one total, and its parts.
//!
//! Each figure comes from the owner of the memory, which counts capacities, not only contents. Where a collection does not say, it
//! is an estimate (`creamery_base::memory`). So the total is the memory that the filesystem has requested from the allocator,
//! within some per cent. The allocator's overhead, and the memory of running operations, come on top.

use creamery_txn::EngineMemory;
use serde::{Deserialize, Serialize};

use crate::inode::Inodes;
use crate::names::Names;

/// Memory of a filesystem, by owner, in bytes.
///
/// ```
/// let memory = creamery_fs::MemoryReport { inodes_bytes: 3, delayed_refs_bytes: 4, ..Default::default() };
/// assert_eq!(memory.parts().map(|(_, bytes)| bytes).sum::<u64>(), 7);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryReport {
    /// The sum of all parts.
    pub total_bytes: u64,
    /// Clean tree blocks, which are dropped when there are too many, and the index of all tree blocks.
    pub clean_blocks_bytes: u64,
    /// Tree blocks that wait for the next commit.
    pub dirty_blocks_bytes: u64,
    /// Tree blocks that a commit is writing out, and the memory of that write.
    pub writing_blocks_bytes: u64,
    /// Tree blocks of the logs of changes synced since the last commit.
    pub log_blocks_bytes: u64,
    /// Kept for later tree blocks. It belongs to the whole process, whichever filesystem is asked.
    pub spare_blocks_bytes: u64,
    /// Changes of references that are not yet in the extent tree.
    pub delayed_refs_bytes: u64,
    /// Lists of extents that were freed and wait for a commit.
    pub pinned_extents_bytes: u64,
    /// Free space of block groups, as extents or bitmaps.
    pub free_space_bytes: u64,
    /// Block groups, the map of chunks, and those of the devices.
    pub block_groups_bytes: u64,
    /// Open trees and subvolumes, their blocks left out.
    pub subvolumes_bytes: u64,
    /// Data that was written and waits to be written back, or is on its way.
    pub delayed_data_bytes: u64,
    /// Inodes, those in use among them, with the ranges that are locked.
    pub inodes_bytes: u64,
    /// Delayed entries of directories.
    pub delayed_items_bytes: u64,
    /// Directories that paths led through.
    pub known_directories_bytes: u64,
    /// Compressed extents that were unpacked last.
    pub unpacked_extents_bytes: u64,
    /// Quota groups, and extents that are to be counted for them.
    pub qgroups_bytes: u64,
    /// Recently verified blocks of files with fs-verity.
    pub verity_bytes: u64,
    /// The list of inodes that wait to be deleted.
    pub dead_inodes_bytes: u64,
    /// Writes that wait for the first change: a replayed log and repairs.
    pub held_writes_bytes: u64,
}

impl MemoryReport {
    pub(crate) fn of(inodes: &Inodes, names: &Names) -> Self {
        let context = inodes.context();
        let EngineMemory {
            clean_blocks,
            dirty_blocks,
            writing_blocks,
            log_blocks,
            spare_blocks,
            delayed_refs,
            pinned,
            free_space,
            block_groups,
            trees,
            qgroups,
            held_writes,
        } = inodes.engine().memory();
        let parts = Self {
            total_bytes: 0,
            clean_blocks_bytes: clean_blocks,
            dirty_blocks_bytes: dirty_blocks,
            writing_blocks_bytes: writing_blocks,
            log_blocks_bytes: log_blocks,
            spare_blocks_bytes: spare_blocks,
            delayed_refs_bytes: delayed_refs,
            pinned_extents_bytes: pinned,
            free_space_bytes: free_space,
            block_groups_bytes: block_groups,
            subvolumes_bytes: trees + inodes.subvolumes().memory(),
            delayed_data_bytes: context.writeback().bytes(),
            inodes_bytes: inodes.table().memory(),
            delayed_items_bytes: context.delayed().memory()
                + context.access_times().memory()
                + context.overwrite_times().memory(),
            known_directories_bytes: names.memory(),
            unpacked_extents_bytes: context.compression().unpacked.memory(),
            qgroups_bytes: qgroups,
            verity_bytes: context.kept_verity().memory(),
            dead_inodes_bytes: context.dead().memory(),
            held_writes_bytes: held_writes,
        };
        Self { total_bytes: parts.parts().map(|(_, bytes)| bytes).sum(), ..parts }
    }

    /// Each part of the total with its name.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        macro_rules! named {
            ($($field:ident,)*) => {{
                let Self { total_bytes: _, $($field,)* } = *self;
                [$((stringify!($field), $field),)*]
            }};
        }
        let parts = named! {
            clean_blocks_bytes,
            dirty_blocks_bytes,
            writing_blocks_bytes,
            log_blocks_bytes,
            spare_blocks_bytes,
            delayed_refs_bytes,
            pinned_extents_bytes,
            free_space_bytes,
            block_groups_bytes,
            subvolumes_bytes,
            delayed_data_bytes,
            inodes_bytes,
            delayed_items_bytes,
            known_directories_bytes,
            unpacked_extents_bytes,
            qgroups_bytes,
            verity_bytes,
            dead_inodes_bytes,
            held_writes_bytes,
        };
        parts.into_iter()
    }
}
