//! The items of chunks, block groups and their free space, which the owners of these keep in several trees.

use creamery_base::Result;
use creamery_tree::CowHost;

use crate::block_group_items::BlockGroupItems;
use crate::chunk_allocator::ChunkAllocator;
use crate::commit::NextSuperblock;
use crate::free_space_tree::FreeSpaceTree;
use crate::space_info::{BlockGroup, Space};

/// Writes and removes the items of block groups, in the trees of these owners.
#[derive(Clone, Copy)]
pub(crate) struct GroupRecords<'e> {
    pub(crate) chunks: &'e ChunkAllocator,
    pub(crate) space: &'e Space,
    pub(crate) block_groups: &'e BlockGroupItems,
    pub(crate) free_space_tree: &'e FreeSpaceTree,
    pub(crate) superblock: &'e NextSuperblock,
}

impl GroupRecords<'_> {
    /// Writes the items of all pending chunks. True when there were any.
    ///
    /// # Errors
    /// No space in the superblock's array of system chunks; those of the trees. The caller aborts.
    pub(crate) fn record_chunks(&self, host: &dyn CowHost) -> Result<bool> {
        let pending = self.chunks.take_pending(host.generation());
        for chunk in &pending {
            self.chunks.record(host, chunk, self.superblock)?;
            let group = self.space.group_at(chunk.start).expect("a pending chunk has its group");
            self.block_groups.insert(host, &group)?;
            if let Some(free) = self.free_space_tree.of_group(&group) {
                free.create(host)?;
            }
        }
        if !pending.is_empty() {
            self.chunks.record_device_use(host)?;
            self.chunks.recorded();
        }
        Ok(!pending.is_empty())
    }

    /// Writes the used bytes of every group in which they changed. True when there were any.
    ///
    /// # Errors
    /// Damage; those of the trees. The caller aborts.
    pub(crate) fn record_used(&self, host: &dyn CowHost) -> Result<bool> {
        let mut any = false;
        for group in self.space.changed_groups() {
            if let Some(used) = group.take_change() {
                self.block_groups.set_used(host, &group, used)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Removes a group that has left.
    ///
    /// # Errors
    /// Those of the trees. The caller aborts.
    pub(crate) fn remove(&self, host: &dyn CowHost, group: &BlockGroup) -> Result<()> {
        self.block_groups.remove(host, group)?;
        if let Some(free) = self.free_space_tree.of_group(group) {
            free.delete(host)?;
        }
        self.chunks.remove(host, group.start)?;
        self.space.remove_group(group.start);
        Ok(())
    }
}
