//! Reading a block from a device: once for all threads that miss it.
//!
//! The first thread that misses a block reads it, and threads that miss it meanwhile wait for that read. No thread waits for a device with a
//! block locked for writing, because many threads may wait for that block. Instead, a search unlocks all its blocks, reads, and starts again.
//! The blocks that it has read stay cached until it ends, so it gets further every time.
//!
//! No lock of the parent protects such a read. A guard does ([`crate::Readers`]): a thread that is about to read takes a guard, and then
//! makes sure that the parent was not given up before. So only a transaction that the guard holds back can free the block, and a bad
//! copy may be rewritten from a good one.
//!
//! # Invariants
//! - READ-1: no thread waits for a device with a block locked for writing.
//! - READ-2: at most one read of a block that is not cached is on its way at a time. Shown by `a_block_that_several_miss_is_read_once`.

use std::sync::Arc;

use creamery_base::Logical;
use creamery_base::gate::Reason;
use creamery_base::lock::{RankedCondvar, RankedMutex, rank};
use creamery_format::Expected;
use smallvec::SmallVec;

use crate::buffer::{self, ExtentBuffer};

/// Blocks that a search has read. They stay cached until the search ends.
pub(crate) type Loaded = SmallVec<[Arc<ExtentBuffer>; 2]>;

/// A read on its way, for the threads that wait for it.
#[derive(Default)]
pub(crate) struct PendingRead {
    is_over: RankedMutex<bool, { rank::LEAF }>,
    over: RankedCondvar,
}

impl PendingRead {
    /// Waits until the block is cached or the read has failed.
    pub(crate) fn wait(&self) {
        buffer::assert_none_locked_for_writing();
        let is_over = self.is_over.lock();
        if !*is_over {
            drop(self.over.pass_while(Reason::Device, is_over, |is_over| !*is_over));
        }
    }

    /// Wakes all waiting threads.
    pub(crate) fn end(&self) {
        *self.is_over.lock() = true;
        self.over.notify_all();
    }
}

/// A block that must be in memory before a search that may hold write locks goes on.
pub(crate) enum Missing {
    /// A block of the tree.
    Block(Expected),
    /// The record of how often this block, of this level, is referenced.
    References(Logical, u8),
}
