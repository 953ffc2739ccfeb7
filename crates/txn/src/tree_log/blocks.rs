//! The blocks of a transaction's logs: they come from metadata space, and no tree counts them.
//!
//! A log is written again and again, each time with copies of its changed blocks. The last superblock may lead to a written
//! block; so it is not reused before a superblock without it is on the platter. Then the same logs reuse it:
//! they take no more space the more often files are synced.
//!
//! # Invariants
//! - LOG-2: blocks of logs have no extent items, and are freed when the transaction that ends the logs is durable.
//!   Shown by `what_logs_took_is_free_again_with_the_commit`.
//! - LOG-3: no block is reused while a superblock that may be found after a crash leads to it.
//!   Shown by `blocks_of_logs_are_used_again_and_never_too_early`.

use std::cell::RefCell;
use std::collections::HashSet;

use creamery_base::{Generation, Logical, Result, TreeId, Wait};
use creamery_format::BlockRef;
use creamery_tree::{BlockReferences, CowHost, FreedBlock};

use crate::handle::Handle;

/// The blocks of a transaction's logs.
#[derive(Default)]
pub(super) struct LogBlocks {
    /// All of them.
    all: Vec<Logical>,
    /// Blocks that nothing leads to.
    unused: Vec<Logical>,
    /// Blocks made since the last seal: not on the way to a device.
    fresh: HashSet<Logical>,
    /// Blocks dropped since then that are on a device: the last superblock may lead to them.
    given_up: Vec<Logical>,
}

/// Blocks that were dropped before the logs were sealed.
#[must_use]
pub(super) struct DroppedBlocks(Vec<Logical>);

impl LogBlocks {
    /// The number of blocks.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// All blocks, when the transaction ends.
    pub(super) fn into_all(self) -> Vec<Logical> {
        self.all
    }

    fn take(&mut self, new: impl FnOnce() -> Result<Logical>) -> Result<Logical> {
        let at = match self.unused.pop() {
            Some(at) => at,
            None => {
                let at = new()?;
                self.all.push(at);
                at
            }
        };
        self.fresh.insert(at);
        Ok(at)
    }

    fn give_up(&mut self, at: Logical) {
        if self.fresh.remove(&at) {
            self.unused.push(at);
        } else {
            self.given_up.push(at);
        }
    }

    /// Seals the blocks: from now on changes are made in copies.
    pub(super) fn seal(&mut self) -> DroppedBlocks {
        self.fresh.clear();
        DroppedBlocks(std::mem::take(&mut self.given_up))
    }

    /// Makes dropped blocks reusable: a superblock that leads to the sealed logs is on the platter (LOG-3).
    pub(super) fn durable(&mut self, given_up: DroppedBlocks) {
        self.unused.extend(given_up.0);
    }
}

/// The host of copy on write for trees of logs.
pub(super) struct LogHost<'a, 'e> {
    pub(super) handle: &'a Handle<'e>,
    pub(super) blocks: &'a RefCell<LogBlocks>,
}

impl CowHost for LogHost<'_, '_> {
    fn generation(&self) -> Generation {
        self.handle.generation()
    }

    fn allocate(&self, _: TreeId, _: u8, hint: Logical) -> Result<Logical> {
        self.blocks.borrow_mut().take(|| self.handle.take_log_block(hint))
    }

    fn free(&self, block: FreedBlock) -> Result<()> {
        self.blocks.borrow_mut().give_up(block.logical);
        Ok(())
    }

    fn references(&self, _: Logical, _: u8, _: Wait) -> Result<BlockReferences> {
        Ok(BlockReferences { count: 1, full_backref: false })
    }

    fn add_references(&self, _: TreeId, _: BlockRef<'_>, _: bool) -> Result<()> {
        unreachable!("no log shares blocks")
    }

    fn drop_references(&self, _: TreeId, _: BlockRef<'_>, _: bool) -> Result<()> {
        unreachable!("no log shares blocks")
    }

    fn set_full_backref(&self, _: Logical, _: u8) -> Result<()> {
        unreachable!("no log shares blocks")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_logs_are_used_again_and_never_too_early() {
        let mut blocks = LogBlocks::default();
        let mut next = 0;
        let mut take = |blocks: &mut LogBlocks| {
            blocks.take(|| {
                next += 1;
                Ok(Logical::new(next))
            })
        };
        let [one, two, three, four] = [1, 2, 3, 4].map(Logical::new);
        assert_eq!(take(&mut blocks).expect("space"), one);
        blocks.give_up(one);
        assert_eq!(take(&mut blocks).expect("space"), one, "nobody has written it");
        let nothing = blocks.seal();
        assert_eq!(take(&mut blocks).expect("space"), two);
        blocks.give_up(one);
        assert_eq!(take(&mut blocks).expect("space"), three, "the superblock on its way leads to block 1");
        blocks.durable(nothing);
        assert_eq!(take(&mut blocks).expect("space"), four, "the superblock leads to block 1");
        let given_up = blocks.seal();
        blocks.durable(given_up);
        assert_eq!(take(&mut blocks).expect("space"), one);
        assert_eq!(blocks.into_all(), [one, two, three, four]);
    }
}
