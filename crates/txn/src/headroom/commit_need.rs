//! The tree blocks that a commit may have to allocate.
//!
//! Two bounds limit them: a queued reference change touches one leaf of each of the trees that every commit may have to update (extent,
//! free space, block groups, checksums, devices, roots), and a tree cannot be copied more than once as a whole. Blocks that this
//! transaction has copied already, by heads that ran before its commit (`run_refs`), are not copied again (OWN-1): they take more room
//! only by splitting.
//!
//! So one promise needs less room the later it is given, and all of it again in the next transaction.
//!
//! Where trees share blocks, copying one queues references that no handle reserved. Their room at the next commit is within
//! the general reckoning; the room that they take for good, because they split leaves of the extent tree, is left besides.

use std::sync::Arc;

use creamery_tree::{BufferStore, Tree};

use crate::block_group_items::BlockGroupItems;
use crate::chunk_allocator::ChunkAllocator;
use crate::csum_tree::CsumTree;
use crate::extent_tree::ExtentTree;
use crate::free_space_tree::FreeSpaceTree;
use crate::qgroup::Qgroups;
use crate::reserve_items::ReserveItems;
use crate::roots::RootTree;
use crate::space_info::{Reservations, Space, SpaceKind};

/// Blocks that every commit may need besides: roots, device items, chunk items.
const BLOCKS_PER_COMMIT: u64 = 24;
/// Bytes that one queued change adds to the extent tree and the free space tree at most.
const BYTES_PER_HEAD: u64 = 256;
/// Bytes of a tree block's item in a leaf of the extent tree.
const BYTES_PER_BLOCK_ITEM: u64 = 58;
/// Leaves per queued change: in the extent tree, the free space tree and the checksum tree, and as many again for
/// the changes that copying those queues.
const LEAVES_PER_HEAD: u64 = 8;
/// Blocks by which each of the trees may become higher.
const GROWTH: u64 = 2;
/// A new chunk changes leaves of the device, block group and free space trees, like a queued change.
const HEADS_PER_CHUNK: u64 = 1;
/// Changes that copying a block queues: of the new one and of the old one.
const HEADS_PER_BLOCK: u64 = 2;

/// Reckons the bytes of tree blocks that a commit may have to allocate, by the present state of these owners.
#[derive(Clone, Copy)]
pub(crate) struct CommitNeed<'e> {
    pub(crate) store: &'e BufferStore,
    pub(crate) root_tree: &'e RootTree,
    pub(crate) dev_tree: &'e Arc<Tree>,
    pub(crate) extent_tree: &'e ExtentTree,
    pub(crate) csum_tree: &'e CsumTree,
    pub(crate) free_space_tree: &'e FreeSpaceTree,
    pub(crate) block_groups: &'e BlockGroupItems,
    pub(crate) space: &'e Space,
    pub(crate) chunks: &'e ChunkAllocator,
    pub(crate) reservations: &'e Arc<Reservations>,
    pub(crate) qgroups: &'e Qgroups,
    /// Bytes.
    pub(crate) node_size: u32,
}

/// Blocks of the trees that a commit may have to update.
#[derive(Clone, Copy)]
struct CommitTreeBlocks {
    all: u64,
    /// Those that this transaction has not copied yet.
    to_copy: u64,
}

impl CommitTreeBlocks {
    const fn none_copied(self) -> Self {
        Self { to_copy: self.all, ..self }
    }
}

impl CommitNeed<'_> {
    /// Bytes that this transaction's commit may have to allocate when handles copy `more` blocks until then.
    pub(crate) fn running(&self, more: u64) -> u64 {
        let trees = self.tree_blocks();
        #[cfg(feature = "faults")]
        let trees = if self.reservations.are_copies_reckoned_twice() { trees.none_copied() } else { trees };
        self.bytes(more, trees)
    }

    /// Bytes that the commit of a transaction that has copied nothing yet, like the next one, may have to allocate when handles copy `more` blocks until then.
    pub(crate) fn whole(&self, more: u64) -> u64 {
        self.bytes(more, self.tree_blocks().none_copied())
    }

    /// Bytes that the commit with the closed gate may allocate: for itself and for changes that were put off. Every promise
    /// left that much for it (RESERVE-1).
    pub(crate) fn closed(&self) -> u64 {
        let kept = self.reservations.promised_to_handles();
        kept + self.running(kept / u64::from(self.node_size))
    }

    /// Bytes that copying one leaf that a snapshot shares may take for good: the copy adds a reference to each extent that the leaf
    /// names, and each of these may split another leaf of the extent tree.
    pub(super) fn growth_by_a_shared_copy(&self) -> u64 {
        if !self.root_tree.shares_blocks() {
            return 0;
        }
        let references = ReserveItems::references_of_a_block(self.node_size);
        u64::from(references).min(self.tree_blocks().all) * u64::from(self.node_size)
    }

    /// Visits the trees that every commit may have to update.
    fn each_tree(&self, visit: impl FnMut(&Arc<Tree>)) {
        let (free_space, block_groups) = (self.free_space_tree.loaded(), self.block_groups.own_tree());
        let optional = [free_space.as_ref(), block_groups.as_ref()];
        let always = [self.extent_tree.tree(), self.csum_tree.tree(), self.root_tree.tree(), self.dev_tree];
        always.into_iter().chain(optional.into_iter().flatten()).for_each(visit);
    }

    /// Counts blocks of all these trees. On a damaged filesystem a root may claim any number.
    fn tree_blocks(&self) -> CommitTreeBlocks {
        let mut sum = CommitTreeBlocks { all: 0, to_copy: 0 };
        self.each_tree(|tree| {
            sum.all = sum.all.saturating_add(tree.blocks().saturating_add(GROWTH));
            sum.to_copy = sum.to_copy.saturating_add(tree.blocks_to_copy().saturating_add(GROWTH));
        });
        sum
    }

    fn bytes(&self, more: u64, trees: CommitTreeBlocks) -> u64 {
        let node = u64::from(self.node_size);
        let promised = self.reservations.references();
        let queued =
            self.extent_tree.refs().len() as u64 + promised + HEADS_PER_CHUNK * self.chunks.pending();
        let heads = queued + self.store.dirty_bytes() / node + HEADS_PER_BLOCK * more;
        let reached = heads.saturating_mul(LEAVES_PER_HEAD).saturating_add(self.ripple());
        let copied = trees.to_copy.min(reached);
        // Full leaves split at their first insertion from now on, copied or not. Each copy is a change of the
        // extent tree, too.
        let split = trees.all.min(reached);
        let changes = heads.saturating_add(copied);
        let grown = split.saturating_add(changes.saturating_mul(BYTES_PER_HEAD) / (node / 2));
        (copied + grown + BLOCKS_PER_COMMIT + self.qgroups.blocks_needed(self.node_size)) * node
    }

    /// Leaves that a commit may copy only because other leaves were copied: the leaf of the extent tree that has a copied block's item changes,
    /// so it is copied, too, and its own old place changes another leaf, and so on until that chain meets a leaf that was
    /// copied already. It goes through all leaves that have items of tree blocks at most, and through those of the free space
    /// tree beside them.
    fn ripple(&self) -> u64 {
        let node = u64::from(self.node_size);
        let blocks = self.space.figures(SpaceKind::Metadata).used / node;
        2 + 2 * blocks.saturating_mul(BYTES_PER_BLOCK_ITEM) / (node / 2)
    }
}
