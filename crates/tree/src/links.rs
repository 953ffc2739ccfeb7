//! Links: a node that does not change any more knows its children in memory.
//!
//! All threads come by the root of a tree and by the nodes below it. To look such a node up in the index, a thread shares the lock of a shard and counts its reference with
//! everybody else's: four changes of cache lines that all processors want, for each node and each search. A frozen node has the same children for ever (`buffer`). So it keeps
//! references to those that are nodes themselves, and a reader goes from one to the next by reference. He counts none of them, for the root's reference keeps them all.
//!
//! A link keeps its block in memory. So leaves are not linked, for there are hundreds of them for each node, and of the nodes no more than a part of the
//! cache ([`Linked`]). Trees whose nodes are more than that have links on top.
//!
//! # Invariants
//! - LINK-1: a link leads one level down, so links form no circle. Asserted where one is made.
//! - LINK-2: the linked block is what the node's pointer says: it was checked against it (`check_child`), and neither changes. A link is made where both are frozen, and
//!   nowhere else. Shown by `a_change_is_seen_where_nodes_were_linked`.
//! - LINK-3: links keep a quarter of the cache at most. Shown by `links_keep_a_part_of_the_cache_at_most`.

use std::sync::atomic::{AtomicU64, Ordering};
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

    /// Links the child at `slot` of `count`, unless another thread did that first, or `linked` has its share.
    pub(crate) fn set(&self, count: usize, slot: usize, child: &Arc<B>, linked: &Linked) {
        if !linked.has_room() {
            return;
        }
        let slots = self.0.get_or_init(|| {
            let slots: Slots<B> = (0..count).map(|_| OnceLock::new()).collect();
            linked.bytes.fetch_add(size_of_val(&*slots) as u64, Ordering::Relaxed);
            slots
        });
        if slots[slot].set(Arc::clone(child)).is_ok() {
            linked.blocks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Their block goes.
    pub(crate) fn leave(&self, linked: &Linked) {
        let Some(slots) = self.0.get() else { return };
        let blocks = slots.iter().filter(|slot| slot.get().is_some()).count() as u64;
        linked.blocks.fetch_sub(blocks, Ordering::Relaxed);
        linked.bytes.fetch_sub(size_of_val(&**slots) as u64, Ordering::Relaxed);
    }
}

/// One of so many blocks of the cache may be linked.
const SHARE: u64 = 4;

/// What is linked of all blocks of a cache.
#[derive(Default)]
pub(crate) struct Linked {
    /// Links that there may be.
    most: u64,
    blocks: AtomicU64,
    /// Memory of the links.
    bytes: AtomicU64,
}

impl Linked {
    /// Of a cache of so many blocks.
    pub(crate) fn of_cache(blocks: u64) -> Self {
        Self { most: blocks / SHARE, ..Self::default() }
    }

    /// Threads that look at once may make a few links more.
    fn has_room(&self) -> bool {
        self.blocks.load(Ordering::Relaxed) < self.most
    }

    /// What the links take in memory, bytes, without the blocks.
    pub(crate) fn memory(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
