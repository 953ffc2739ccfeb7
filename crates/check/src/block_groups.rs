//! Block groups, from their items.

use creamery_base::TreeId;
use creamery_format::BlockGroupFlags;

/// A block group, from its item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockGroup {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) used: u64,
    pub(crate) flags: BlockGroupFlags,
    pub(crate) tree: TreeId,
}
