//! Node ids, and the inodes that must stay alive although they have no name left.

use std::collections::HashMap;
use std::sync::Arc;

use creamery_base::{InodeId, ObjectId, TreeId};
use creamery_fs::Inode;
use creamery_fuse::{Errno, NodeId};
use parking_lot::Mutex;

/// Bits of a node id that hold the inode number.
const INO_BITS: u32 = 48;
const INO_MASK: u64 = (1 << INO_BITS) - 1;

/// Translates between inodes and node ids of one mount.
pub(crate) struct Nodes {
    subvolume: TreeId,
    root: InodeId,
    /// Inodes that lost their last name while the kernel could still name them.
    unlinked: Mutex<HashMap<NodeId, Arc<Inode>>>,
}

impl Nodes {
    pub(crate) fn new(root: InodeId) -> Self {
        Self { subvolume: root.subvolume, root, unlinked: Mutex::default() }
    }

    /// The number of an inode in this mount: its node id, but for the root, and its `st_ino`.
    pub(crate) fn number(&self, id: InodeId) -> Result<u64, Errno> {
        let (subvolume, ino) = (id.subvolume.get(), id.ino.get());
        if ino > INO_MASK || ino <= NodeId::ROOT.get() {
            return Err(Errno::EOVERFLOW);
        }
        if id.subvolume == self.subvolume {
            return Ok(ino);
        }
        if subvolume > u64::MAX >> INO_BITS {
            return Err(Errno::EOVERFLOW);
        }
        Ok(subvolume << INO_BITS | ino)
    }

    pub(crate) fn node(&self, id: InodeId) -> Result<NodeId, Errno> {
        if id == self.root { Ok(NodeId::ROOT) } else { self.number(id).map(NodeId::new) }
    }

    pub(crate) fn inode(&self, node: NodeId) -> InodeId {
        if node == NodeId::ROOT {
            return self.root;
        }
        let subvolume = match node.get() >> INO_BITS {
            0 => self.subvolume,
            other => TreeId::new(other),
        };
        InodeId::new(subvolume, ObjectId::new(node.get() & INO_MASK))
    }

    /// Keeps an inode that is about to lose a name until the kernel forgets it.
    pub(crate) fn keep(&self, inode: Arc<Inode>) {
        if let Ok(node) = self.node(inode.id) {
            self.unlinked.lock().insert(node, inode);
        }
    }

    /// The kernel will not name the node again.
    pub(crate) fn forget(&self, node: NodeId) {
        let kept = self.unlinked.lock().remove(&node);
        drop(kept); // outside the lock: letting go may delete the file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_over_subvolumes_and_lead_back() {
        let root = InodeId::new(TreeId::FS, ObjectId::FIRST_FREE);
        let nodes = Nodes::new(root);
        let ids = [(5, 257), (5, 1 << 40), (256, 256), (256, 257), (65535, 300)];
        let mut seen = std::collections::HashSet::new();
        for (subvolume, ino) in ids {
            let id = InodeId::new(TreeId::new(subvolume), ObjectId::new(ino));
            let node = nodes.node(id).expect("in range");
            assert_eq!(nodes.inode(node), id);
            assert!(seen.insert(node));
        }
        assert_eq!(nodes.node(root), Ok(NodeId::ROOT));
        assert_eq!(nodes.number(root), Ok(256));
        assert_eq!(nodes.node(InodeId::new(TreeId::new(1 << 20), ObjectId::new(300))), Err(Errno::EOVERFLOW));
    }
}
