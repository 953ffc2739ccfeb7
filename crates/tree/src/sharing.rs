//! Whose turn it is to change the references of a block that trees share.
//!
//! Who copies a shared block, or gives it up, asks how often it is referred to. What follows from the answer is queued in several
//! steps: who counts what it points to, and whether the block goes. Two that did so at once would each take the other for the one
//! who stays. Copying has the block locked alone, which keeps out whoever has it locked, too. Dropping a tree gives up blocks
//! that it has not even read (`drop_tree`), and there is nothing to lock: so both wait for the block's turn.
//!
//! A turn is taken with blocks of file trees locked, and the extent tree is searched within it. It is a block's own but by
//! chance: a few blocks have one together.

use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_base::{CachePadded, Logical};

const TURNS: usize = 64;

/// The turns of all blocks.
pub(crate) struct Sharing {
    turns: Vec<CachePadded<RankedMutex<(), { rank::SHARED_BLOCK }>>>,
    #[cfg(feature = "shuttle")]
    forgotten: std::sync::atomic::AtomicBool,
}

/// The right to change the references of a shared block, from asking how many there are until what follows is queued.
pub(crate) struct Turn<'s> {
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

    /// Waits for a block's turn. The thread has no other one, and no block of the extent tree.
    pub(crate) fn turn(&self, at: Logical) -> Turn<'_> {
        #[cfg(feature = "shuttle")]
        if self.forgotten.load(std::sync::atomic::Ordering::Relaxed) {
            return Turn { _turn: None };
        }
        let mixed = (at.get() >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        Turn { _turn: Some(self.turns[usize::try_from(mixed).expect("six bits")].lock()) }
    }

    /// Plants a fault: nobody waits for a turn.
    #[cfg(feature = "shuttle")]
    pub(crate) fn forget_turns(&self) {
        self.forgotten.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
