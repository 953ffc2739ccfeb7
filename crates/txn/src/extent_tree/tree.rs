//! The owner: the tree and its queue.

use std::sync::Arc;

use creamery_tree::Tree;

use super::delayed_refs::DelayedRefs;

/// The extent tree and what waits to be put into it.
pub(crate) struct ExtentTree {
    pub(super) tree: Arc<Tree>,
    pub(super) refs: DelayedRefs,
    /// Bytes.
    pub(super) node_size: u32,
    /// Whether items of tree blocks have their level in the key.
    pub(super) is_skinny: bool,
}

impl ExtentTree {
    pub(crate) fn new(tree: Arc<Tree>, node_size: u32, is_skinny: bool) -> Self {
        Self { tree, refs: DelayedRefs::new(), node_size, is_skinny }
    }

    /// The tree, for what all trees have.
    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// What is queued.
    pub(crate) fn refs(&self) -> &DelayedRefs {
        &self.refs
    }
}
