//! The space of the filesystem, used and free, for `statfs(2)`.

use creamery_format::NAME_LEN_MAX;

use crate::context::Context;
use crate::statfs_of_set::SetSpace;

/// Figures of a filesystem. Numbers of files are not among them: inodes are made as long as there is room.
///
/// ```
/// fn percent_used(figures: &creamery_fs::FsStatistics) -> u64 {
///     100 * (figures.blocks - figures.blocks_free) / figures.blocks.max(1)
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FsStatistics {
    /// Bytes of a block in the figures below.
    pub block_size: u32,
    /// Blocks in total.
    pub blocks: u64,
    /// Blocks that are not in use.
    pub blocks_free: u64,
    /// Blocks that data can be written to.
    pub blocks_available: u64,
    /// Bytes of the longest name.
    pub name_len_max: u32,
}

impl FsStatistics {
    /// The figures of the filesystem with this context.
    pub(crate) fn of(context: &Context) -> Self {
        let (engine, dead) = (context.engine(), context.dead());
        // Kept room is read before used space, because data moves from one to the other.
        let kept = engine.delalloc_bytes();
        let space = engine.space();
        let block_size = engine.sector_size();
        let blocks = |bytes: u64| bytes / u64::from(block_size);
        let copies = space.data_copies.max(1);
        let data_used =
            space.data_used.saturating_add_signed(space.data_pending).saturating_sub(dead.bytes())
                + space.data_handed_out
                + kept;
        let metadata_used = space.metadata_used.saturating_mul(space.metadata_copies.max(1)) / copies;
        let total = space.total / copies;
        let free = total.saturating_sub(data_used + metadata_used);
        if let Some(set) = SetSpace::of(engine) {
            let [blocks, blocks_free, blocks_available] = [set.total, set.free, set.available].map(blocks);
            return Self {
                block_size,
                blocks,
                blocks_free,
                blocks_available,
                name_len_max: NAME_LEN_MAX as u32,
            };
        }
        let available = space.data_total.saturating_sub(data_used) + space.data_allocatable;
        Self {
            block_size,
            blocks: blocks(total),
            blocks_free: blocks(free),
            blocks_available: blocks(available.min(free)),
            name_len_max: NAME_LEN_MAX as u32,
        }
    }
}
