//! Reading a block from a device: once for all who miss it.
//!
//! Who finds that a block is not cached reads it, and whoever misses it meanwhile waits for that. Nobody waits for a device with a
//! block locked for writing, for a crowd may stand before that one: a search lets go of all that it has, reads, and starts again;
//! what it has read stays until it is over, so that it comes further every time.
//!
//! What is read so is not protected by a lock of the block that points there. It is by a guard ([`crate::Readers`]): who is about to
//! read takes one and then makes sure that the block that points there was not given up before. So what it points to is freed by
//! a transaction that the guard holds back, if at all, and a copy that is found bad may be rewritten from a good one.
//!
//! # Invariants
//! - READ-1: no thread waits for a device with a block locked for writing.
//! - READ-2: of a block that is not cached one read is on its way at a time.

use std::sync::Arc;

use creamery_base::Logical;
use creamery_base::gate::Reason;
use creamery_base::lock::{RankedCondvar, RankedMutex, rank};
use creamery_format::Expected;
use smallvec::SmallVec;

use crate::buffer::{self, ExtentBuffer};

/// Blocks that a search has read: they stay cached until it is over.
pub(crate) type Loaded = SmallVec<[Arc<ExtentBuffer>; 2]>;

/// A read that is on its way, as those know it who wait for it.
#[derive(Default)]
pub(crate) struct PendingRead {
    is_over: RankedMutex<bool, { rank::LEAF }>,
    over: RankedCondvar,
}

impl PendingRead {
    /// Waits until the block is cached, or could not be read.
    pub(crate) fn wait(&self) {
        buffer::assert_none_locked_for_writing();
        let is_over = self.is_over.lock();
        if !*is_over {
            drop(self.over.pass_while(Reason::Device, is_over, |is_over| !*is_over));
        }
    }

    /// Nobody has to wait any more.
    pub(crate) fn end(&self) {
        *self.is_over.lock() = true;
        self.over.notify_all();
    }
}

/// What has to be in memory before a search goes on that may have blocks locked for writing.
pub(crate) enum Missing {
    /// A block of the tree.
    Block(Expected),
    /// What says how often a block of this level is referred to.
    References(Logical, u8),
}
