//! Block groups, as their items tell of them.

use creamery_base::TreeId;
use creamery_format::BlockGroupFlags;

/// A block group as its item says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockGroup {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) used: u64,
    pub(crate) flags: BlockGroupFlags,
    pub(crate) tree: TreeId,
}
