//! The owner of the extent tree: the tree and its queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_tree::Tree;

use super::delayed_refs::DelayedRefs;

/// The extent tree and its queued changes.
pub(crate) struct ExtentTree {
    pub(super) tree: Arc<Tree>,
    pub(super) refs: DelayedRefs,
    /// Bytes.
    pub(super) node_size: u32,
    /// Whether items of tree blocks have their level in the key.
    pub(super) is_skinny: bool,
    /// Whether the items of data name the tree that made the data, for simple quotas.
    names_owners: AtomicBool,
}

impl ExtentTree {
    pub(crate) fn new(tree: Arc<Tree>, node_size: u32, is_skinny: bool) -> Self {
        Self { tree, refs: DelayedRefs::new(), node_size, is_skinny, names_owners: AtomicBool::new(false) }
    }

    /// The tree, for operations on any tree.
    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The queued changes.
    pub(crate) fn refs(&self) -> &DelayedRefs {
        &self.refs
    }

    /// Sets whether the items of new data name the tree that made it, from now on.
    pub(crate) fn set_names_owners(&self, names: bool) {
        self.names_owners.store(names, Ordering::Relaxed);
    }

    pub(super) fn names_owners(&self) -> bool {
        self.names_owners.load(Ordering::Relaxed)
    }
}
