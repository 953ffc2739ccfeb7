//! Reading block groups when a filesystem is opened.

use std::collections::HashSet;

use creamery_base::{Logical, Result};
use creamery_volume::{Chunk, Volume};

use crate::block_group_items::BlockGroupItems;
use crate::chunk_allocator::{ChunkAllocator, excluded_ranges};
use crate::extent_tree::ExtentTree;
use crate::free_space_tree::{FreeSpaceTree, GroupFreeSpace};
use crate::space_info::{BlockGroup, Space};

/// Reads block groups from the trees of these owners into [`Space`].
#[derive(Clone, Copy)]
pub(crate) struct GroupLoader<'e> {
    pub(crate) volume: &'e Volume,
    pub(crate) chunks: &'e ChunkAllocator,
    pub(crate) space: &'e Space,
    pub(crate) block_groups: &'e BlockGroupItems,
    pub(crate) extent_tree: &'e ExtentTree,
    pub(crate) free_space_tree: &'e FreeSpaceTree,
}

impl GroupLoader<'_> {
    /// Reads the block group of every chunk, and its free space where that is needed.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(crate) fn load(&self, with_free_space: bool) -> Result<()> {
        let mut claimed = HashSet::new();
        for chunk in self.volume.chunks() {
            let used = self.used_of(&chunk)?;
            if with_free_space {
                self.chunks.claim_device_extents(&chunk, &mut claimed)?;
            }
            let sector = self.volume.sector_size();
            let excluded = excluded_ranges(&chunk);
            let group = BlockGroup::new(chunk.start, chunk.len, chunk.flags, sector, used, excluded);
            if with_free_space {
                self.each_free_extent(&chunk, used, &mut |start, len| {
                    let free = group.give_back(Logical::new(start), len);
                    assert!(free, "free extents were checked when they were read");
                })?;
            }
            self.space.add_group(group);
        }
        if with_free_space { self.chunks.check_claimed(&claimed) } else { Ok(()) }
    }

    /// Used bytes of a group: all of it, when its item cannot be read and the rescue option ignores that.
    fn used_of(&self, chunk: &Chunk) -> Result<u64> {
        match self.block_groups.used(chunk) {
            Err(_) if self.volume.rescue().ignore_bad_roots => Ok(chunk.len),
            used => used,
        }
    }

    /// Visits the free extents of a chunk with `used` bytes in use, in the last commit, in order. Errors: device errors; damage.
    fn each_free_extent(&self, chunk: &Chunk, used: u64, visit: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let sector = self.volume.sector_size();
        match self.free_space_tree.tree() {
            Some(tree) => GroupFreeSpace::new(tree, chunk.start, chunk.len, sector).each_extent(visit),
            None => self.extent_tree.each_gap((chunk.start, chunk.len), used, u64::from(sector), visit),
        }
    }
}
