//! Copy on write: before a transaction changes a block, it makes a copy of its own.
//!
//! A subvolume's block may be shared with snapshots. A copy then turns one block into two that both point to
//! the same children, and the children's references must say so. The block determines how they are counted:
//!
//! - A block whose extent lacks FULL_BACKREF counts its children *by tree*: the references carry its owner's id.
//! - A block with FULL_BACKREF counts them *by parent*: the references carry the block's address.
//!
//! | the old block | is | the children gain | the children lose | the old block |
//! |---|---|---|---|---|
//! | shared, by tree | the owner's copy | by parent: old block | - | becomes FULL_BACKREF |
//! | shared, by tree | another tree's copy | by tree: that tree | - | stays |
//! | shared, by parent | any tree's copy | by tree: the copier | - | stays |
//! | not shared, by parent | any tree's copy | by tree: the copier | by parent: old block | is freed |
//! | not shared, by tree | the owner's copy | - | - | is freed |
//!
//! In every row the tree that copies gives up its own reference to the old block.

use std::sync::Arc;

use creamery_base::{ErrorKind, Generation, Logical, Result, Wait};
use creamery_device::AlignedBuffer;
use creamery_format::BlockRef;

use crate::buffer::{ExtentBuffer, WriteGuard};
use crate::host::{BlockReferences, CowHost, FreedBlock};
use crate::path::{NodeGuard, Path};
use crate::tree::{Tree, format_block, retitle};

impl Tree {
    /// Whether the running transaction must copy `block`, the content of `buffer`, instead of changing it in place (TREE-3).
    pub(crate) fn needs_copy(
        &self,
        buffer: &ExtentBuffer,
        block: BlockRef<'_>,
        generation: Generation,
    ) -> bool {
        let ours = block.generation() == generation && !block.is_written();
        // A block from the device is never the transaction's own: roots are not newer than the superblock, nor children than their node.
        assert!(
            !ours || buffer.is_dirty(),
            "block {} came from the device as the transaction's own",
            block.logical()
        );
        !ours || self.force_cow()
    }

    /// Whether a snapshot may share `block`. Root blocks are never shared: a snapshot copies them.
    fn may_be_shared(&self, block: BlockRef<'_>, is_root: bool) -> bool {
        self.id().is_shareable()
            && !is_root
            && (block.generation() <= self.last_snapshot()
                || block.flags() & creamery_format::HEADER_FLAG_RELOC != 0)
    }

    /// Replaces the write-locked block at `level` of the path by a copy that the running transaction owns, unless
    /// it owns the block already. The parent, if any, must be write-locked and owned. After an error the path lacks the level.
    /// Errors: would block (the record of the block's references is not in memory; nothing is changed); those of
    /// [`CowHost`].
    pub(crate) fn copy_on_write(&self, host: &dyn CowHost, path: &mut Path, level: usize) -> Result<()> {
        let NodeGuard::Write(old) = path.take(level) else {
            panic!("copying a block that is not write-locked")
        };
        // A root has no slot, and above the highest level there is no node with slots.
        let slot = path.slots.get(level + 1).copied().unwrap_or(0);
        let guard = self.own_child(host, path, level, slot, old)?;
        path.set(level, NodeGuard::Write(guard));
        Ok(())
    }

    /// Copies a child outside the path like [`Tree::copy_on_write`]: the child at `slot` of the path's node above `level`, or
    /// the root if the path holds nothing there.
    pub(crate) fn own_child(
        &self,
        host: &dyn CowHost,
        path: &mut Path,
        level: usize,
        slot: usize,
        old: WriteGuard,
    ) -> Result<WriteGuard> {
        if !self.needs_copy(old.buffer(), old.block(), host.generation()) {
            return Ok(old);
        }
        let is_root = !path.holds(level + 1);
        // Held until the old block is given up, so that its reference count stays true (`sharing`).
        let may_be_shared = self.may_be_shared(old.block(), is_root);
        let _turn = may_be_shared.then(|| self.store.turn(old.block().logical()));
        let (copy, last_reference) = self.copy_block(host, old.block(), may_be_shared)?;
        let guard = copy.write_as(self.hold_new(old.block().level()));
        if is_root {
            self.set_root(Arc::clone(guard.buffer()));
        } else {
            path.block_mut(level + 1).set_child(slot, guard.buffer().logical(), host.generation());
        }
        self.give_up(host, &old, last_reference)?;
        Ok(guard)
    }

    /// Copies the leaf at `slot` beside the path's leaf. `None`, and nothing changed, if that would have to wait for a device:
    /// room is not worth a wait.
    pub(crate) fn own_sibling(
        &self,
        host: &dyn CowHost,
        path: &mut Path,
        slot: usize,
        old: WriteGuard,
    ) -> Result<Option<WriteGuard>> {
        match self.own_child(host, path, 0, slot, old) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            owned => owned.map(Some),
        }
    }

    /// Gives up this tree's reference to a block that the tree does not point to any more.
    pub(crate) fn give_up(&self, host: &dyn CowHost, old: &WriteGuard, last_reference: bool) -> Result<()> {
        old.narrow();
        if last_reference {
            self.mark_given_up(old.buffer());
        }
        let block = old.block();
        let freed = FreedBlock {
            tree: self.id(),
            logical: block.logical(),
            level: block.level(),
            generation: block.generation(),
            by_parent: None,
            last_reference,
            owner: Some(block.owner()),
        };
        let unwritten = freed.generation == host.generation() && !block.is_written();
        if last_reference && unwritten {
            self.store.forget_dirty(old.buffer());
        }
        // A block that a snapshot shares stays, and stays counted in the tree that made it.
        self.count_given_up(freed.generation == host.generation() && last_reference);
        host.free(freed)
    }

    /// Makes the copy and queues the changes of references that the table above lists. The second value says
    /// whether this tree had the last reference to the old block.
    fn copy_block(
        &self,
        host: &dyn CowHost,
        old: BlockRef<'_>,
        may_be_shared: bool,
    ) -> Result<(Arc<ExtentBuffer>, bool)> {
        let references = if may_be_shared {
            host.references(old.logical(), old.level(), Wait::No)?
        } else {
            BlockReferences { count: 1, full_backref: false }
        };
        let logical = host.allocate(self.id(), old.level(), old.logical())?;
        let mut bytes = AlignedBuffer::from_slice(old.bytes());
        retitle(&mut bytes, self.id(), logical, host.generation());
        if references.count > 1 {
            if old.owner() == self.id() && !references.full_backref {
                host.add_references(self.id(), old, true)?;
                host.set_full_backref(old.logical(), old.level())?;
            } else {
                host.add_references(self.id(), BlockRef::new(&bytes), false)?;
            }
        } else if references.full_backref {
            host.add_references(self.id(), BlockRef::new(&bytes), false)?;
            host.drop_references(self.id(), old, true)?;
        }
        self.count(|counters| &counters.copies);
        let copy = self.store.create(logical, old.level(), bytes);
        self.count_new_block();
        Ok((copy, references.count <= 1))
    }

    /// A new, empty, write-locked block of this tree.
    pub(crate) fn new_block(&self, host: &dyn CowHost, level: u8, hint: Logical) -> Result<WriteGuard> {
        let logical = host.allocate(self.id(), level, hint)?;
        let mut bytes = AlignedBuffer::zeroed(self.store.volume().node_size() as usize);
        format_block(&self.store, &mut bytes, self.id(), logical, host.generation(), level);
        let buffer = self.store.create(logical, level, bytes);
        self.count_new_block();
        Ok(buffer.write_as(self.hold_new(level)))
    }
}
