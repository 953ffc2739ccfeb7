//! Turns to change the references of a block that trees share.
//!
//! To copy a shared block or to give it up, a thread first asks for the block's reference count. From the answer follow several queued
//! changes: which tree counts the block's children, and whether the block is freed. If two threads did so at once, each would count the
//! other's reference as one that stays. A copy holds the block's write lock, which excludes every other holder of the lock. A drop of a
//! tree gives up blocks that it has not even read (`drop_tree`), so there is nothing to lock. So both wait for the block's turn.
//!
//! A thread takes a turn while it has blocks of file trees locked, and searches the extent tree during the turn. Blocks share
//! turns by a hash of their address, so a thread may wait for another block's turn.

use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_base::{CachePadded, Logical};

const TURNS: usize = 64;

/// The turns of all blocks.
pub(crate) struct Sharing {
    turns: Vec<CachePadded<RankedMutex<(), { rank::SHARED_BLOCK }>>>,
    #[cfg(feature = "shuttle")]
    forgotten: std::sync::atomic::AtomicBool,
}

/// The right to change the references of a shared block, held from the query of the count until the changes are queued.
pub(crate) struct SharedRefsGuard<'s> {
    _turn: Option<RankedGuard<'s, (), { rank::SHARED_BLOCK }>>,
}

impl Sharing {
    pub(crate) fn new() -> Self {
        Self {
            turns: (0..TURNS).map(|_| CachePadded::default()).collect(),
            #[cfg(feature = "shuttle")]
            forgotten: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Waits for a block's turn. The thread must hold no other turn, and no lock on a block of the extent tree.
    pub(crate) fn turn(&self, at: Logical) -> SharedRefsGuard<'_> {
        #[cfg(feature = "shuttle")]
        if self.forgotten.load(std::sync::atomic::Ordering::Relaxed) {
            return SharedRefsGuard { _turn: None };
        }
        let mixed = (at.get() >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        SharedRefsGuard { _turn: Some(self.turns[usize::try_from(mixed).expect("six bits")].lock()) }
    }

    /// Plants a fault: threads do not wait for turns.
    #[cfg(feature = "shuttle")]
    pub(crate) fn forget_turns(&self) {
        self.forgotten.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
