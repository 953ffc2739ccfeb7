//! Snapshots: a second tree with all items of a tree, for the price of one block.
//!
//! The new tree gets a root block of its own, a copy of the old one's, and every child or extent of the root gets one more
//! reference. From then on both trees share the blocks below, and each tree copies a block before it changes it (`cow`). A block's
//! generation says whether it may be shared: blocks up to [`Tree::last_snapshot`] may be.
//!
//! The snapshot also shares the running transaction's blocks, which the transaction may change in place. So a snapshot is
//! taken when no other thread can change the tree any more until the transaction ends. The changes that are still needed
//! happen under [`Tree::copying_all`].

use std::sync::atomic::Ordering;

use creamery_base::{Result, TreeId, Wait};
use creamery_device::AlignedBuffer;
use creamery_format::BlockRef;

use crate::host::CowHost;
use crate::order::LevelPosition;
use crate::tree::{NO_COMMIT_ROOT, Tree, retitle};

impl Tree {
    /// Creates the tree `id` with all items of this one. Until the transaction ends, the caller must keep other threads from
    /// changing this tree, and change it only under [`Tree::copying_all`].
    /// Errors: those of [`CowHost`].
    pub fn snapshot(&self, id: TreeId, host: &dyn CowHost) -> Result<Self> {
        let root = self.root_buffer();
        let held = self.hold(root.level(), LevelPosition::OnTheWay, Wait::Yes);
        let guard = root.lock_shared(held, Wait::Yes)?;
        let old = guard.block();
        let logical = host.allocate(id, old.level(), old.logical())?;
        let mut bytes = AlignedBuffer::from_slice(old.bytes());
        retitle(&mut bytes, id, logical, host.generation());
        host.add_references(id, BlockRef::new(&bytes), false)?;
        let buffer = self.store.create(logical, old.level(), bytes);
        drop(guard);
        self.set_last_snapshot(host.generation());
        let blocks = self.blocks();
        let tree = Self::with_root(
            std::sync::Arc::clone(&self.store),
            id,
            buffer,
            NO_COMMIT_ROOT,
            blocks,
            host.generation(),
        );
        // All blocks but the root were there before (OWN-1).
        tree.begin_transaction();
        tree.count_own_root();
        Ok(tree)
    }

    /// Copies every block that `work` changes, even those that the running transaction owns: a snapshot was just taken.
    pub fn copying_all<R>(&self, work: impl FnOnce() -> R) -> R {
        /// Ends the copying, even if the work panics.
        struct Ends<'t>(&'t Tree);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.force_cow.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.force_cow.fetch_add(1, Ordering::AcqRel);
        let _ends = Ends(self);
        work()
    }
}
