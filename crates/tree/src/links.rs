//! Links: a node that does not change any more knows its children in memory.
//!
//! All threads come by the root of a tree and by the nodes below it. To look such a node up in the index, a thread shares the lock of a shard and counts its reference with
//! everybody else's: four changes of cache lines that all processors want, for each node and each search. A frozen node has the same children for ever (`buffer`). So it keeps
//! references to those that are nodes themselves, and a reader goes from one to the next by reference. He counts none of them, for the root's reference keeps them all.
//!
//! Leaves are not linked: there are hundreds of them for each node, and a link keeps its block in memory. So a block has links where its level is 2 or more,
//! which is one of some tens of thousands of blocks.
//!
//! # Invariants
//! - LINK-1: a link leads one level down, so links form no circle. Asserted where one is made.
//! - LINK-2: the linked block is what the node's pointer says: it was checked against it (`check_child`), and neither changes. A link is made where both are frozen, and
//!   nowhere else. Shown by `a_change_is_seen_where_nodes_were_linked`.

use std::sync::{Arc, OnceLock};

/// Blocks below this level have no links: their children are leaves, or nothing.
pub(crate) const LOWEST: u8 = 2;

type Slots<B> = Box<[OnceLock<Arc<B>>]>;

/// The linked children of one block, by slot; blocks are `B`.
pub(crate) struct Links<B>(OnceLock<Slots<B>>);

impl<B> Default for Links<B> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<B> Links<B> {
    /// The child at `slot`, if it is linked.
    pub(crate) fn get(&self, slot: usize) -> Option<&Arc<B>> {
        self.0.get()?.get(slot)?.get()
    }

    /// Links the child at `slot` of `count`, unless another thread did that first. True when these are the first ones of the block.
    pub(crate) fn set(&self, count: usize, slot: usize, child: &Arc<B>) -> bool {
        let mut is_new = false;
        let slots = self.0.get_or_init(|| {
            is_new = true;
            (0..count).map(|_| OnceLock::new()).collect()
        });
        drop(slots[slot].set(Arc::clone(child)));
        is_new
    }

    /// What the links take in memory, bytes, without the blocks.
    pub(crate) fn memory(&self) -> u64 {
        self.0.get().map_or(0, |slots| size_of_val(&**slots) as u64)
    }
}
