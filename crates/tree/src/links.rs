//! Links: a frozen node has references to its children in memory.
//!
//! Each search passes the root of its tree and the nodes below it. A look-up in the index shares the lock of a shard and counts a reference: it changes four cache lines, and
//! all processors want these lines. A frozen node has the same children for ever (`buffer`). So it keeps references to those children that are nodes, and a reader goes from one to
//! the next by reference. The reader counts none of them: the root's reference keeps all of them in memory.
//!
//! A link keeps its block in memory. So leaves have no links, and links may use only a part of the cache ([`Linked`]). In a tree with more nodes than that, the nodes that were
//! read first are linked. A node that is given up returns its share to the count, even while a reader may still be on its way through it.
//!
//! # Invariants
//! - LINK-1: a link leads one level down, so links form no circle. Asserted where one is made.
//! - LINK-2: the linked block has the address, generation and first key in the node's pointer. A thread checks that before it makes the link (`check_child`), and
//!   makes it only if both blocks are frozen. Shown by `a_change_is_seen_where_nodes_were_linked`.
//! - LINK-3: links keep at most a quarter of the cache, plus one block for each thread that makes a link at that moment. Shown by
//!   `links_keep_a_part_of_the_cache_at_most`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Blocks below this level have no links: their children are leaves, or they are leaves.
pub(crate) const LOWEST: u8 = 2;

type Slots<B> = Box<[OnceLock<Arc<B>>]>;

/// The linked children of one block, by slot; blocks are `B`.
pub(crate) struct Links<B> {
    slots: OnceLock<Slots<B>>,
    /// How many of these links count in [`Linked`].
    counted: AtomicU64,
}

impl<B> Default for Links<B> {
    fn default() -> Self {
        Self { slots: OnceLock::new(), counted: AtomicU64::new(0) }
    }
}

impl<B> Links<B> {
    /// Returns the child at `slot`, if it is linked.
    pub(crate) fn get(&self, slot: usize) -> Option<&Arc<B>> {
        self.slots.get()?.get(slot)?.get()
    }

    /// Links the child at `slot` of `count`. Does nothing if another thread linked it first, or if the links have used up their part of the cache.
    pub(crate) fn set(&self, count: usize, slot: usize, child: &Arc<B>, linked: &Linked) {
        if !linked.has_room() {
            return;
        }
        let slots = self.slots.get_or_init(|| {
            let slots: Slots<B> = (0..count).map(|_| OnceLock::new()).collect();
            linked.bytes.fetch_add(size_of_val(&*slots) as u64, Ordering::Relaxed);
            slots
        });
        if slots[slot].set(Arc::clone(child)).is_ok() {
            linked.blocks.fetch_add(1, Ordering::Relaxed);
            self.counted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the links of a block that was given up out of the count.
    pub(crate) fn give_back(&self, linked: &Linked) {
        linked.blocks.fetch_sub(self.counted.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Takes the links of a block that leaves memory out of all counts.
    pub(crate) fn leave(&self, linked: &Linked) {
        let Some(slots) = self.slots.get() else { return };
        self.give_back(linked);
        linked.bytes.fetch_sub(size_of_val(&**slots) as u64, Ordering::Relaxed);
    }
}

/// Links keep one of this many blocks of the cache.
const PART: u64 = 4;

/// The links in one cache.
#[derive(Default)]
pub(crate) struct Linked {
    /// The largest number of links.
    most: u64,
    blocks: AtomicU64,
    /// Memory of the links, bytes.
    bytes: AtomicU64,
}

impl Linked {
    /// Creates the counts for a cache of `blocks` blocks.
    pub(crate) fn of_cache(blocks: u64) -> Self {
        Self { most: blocks / PART, ..Self::default() }
    }

    /// Whether there is room for one more link.
    fn has_room(&self) -> bool {
        self.blocks.load(Ordering::Relaxed) < self.most
    }

    /// Memory of the links, bytes, without the blocks.
    pub(crate) fn memory(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
