//! Reading: from the root to a leaf with read locks, the child's taken before the parent's is let go.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_format::{BlockRef, Key};

use crate::LEVELS;
use crate::buffer::{ExtentBuffer, ReadGuard, WriteGuard};
use crate::order::Side;
use crate::path::Path;
use crate::tree::{RootPointer, Tree};

/// A leaf found by key.
pub(crate) struct FoundLeaf {
    pub(crate) guard: ReadGuard,
    pub(crate) slot: usize,
    pub(crate) exact: bool,
    /// First key of the next leaf, when there is one.
    pub(crate) next_leaf: Option<Key>,
}

impl Tree {
    /// The leaf in which `key` is or would be.
    pub(crate) fn find_leaf(&self, key: &Key, wait: Wait) -> Result<FoundLeaf> {
        let mut guard = self.read_root(wait)?;
        let mut next_leaf = None;
        for _ in 0..LEVELS {
            let block = guard.block();
            if block.is_leaf() {
                let (slot, exact) = position(block, key, 0);
                return Ok(FoundLeaf { guard, slot, exact, next_leaf });
            }
            let slot = child_slot(block, key);
            if slot + 1 < block.count() {
                next_leaf = Some(block.key(slot + 1));
            }
            let child = self.child_buffer(block, slot, wait)?;
            let level = child.level();
            #[cfg(feature = "shuttle")]
            if self.is_uncoupled() {
                drop(guard);
                guard = child.read_as(self.hold(level, Side::OnTheWay, wait), wait)?;
                continue;
            }
            let child = child.read_as(self.hold(level, Side::OnTheWay, wait), wait)?;
            self.check_child(block, slot, child.block())?;
            guard = child;
        }
        Err(Error::new(ErrorKind::Corrupt, format!("tree {} is deeper than {LEVELS} levels", self.id())))
    }

    /// Read-locks the root and makes sure that it still is the root.
    fn read_root(&self, wait: Wait) -> Result<ReadGuard> {
        loop {
            let root = self.root_buffer();
            let held = self.hold(root.level(), Side::OnTheWay, wait);
            let guard = root.read_as(held, wait)?;
            if self.is_root(guard.buffer()) {
                return Ok(guard);
            }
        }
    }

    /// The buffer of the child at `slot` of an inner node.
    pub(crate) fn child_buffer(
        &self,
        node: BlockRef<'_>,
        slot: usize,
        wait: Wait,
    ) -> Result<Arc<ExtentBuffer>> {
        let (logical, generation) = node.child(slot);
        let at = RootPointer { logical, generation, level: node.level() - 1 };
        let buffer = self.store.get(&self.expected(at, Some(node.key(slot))), wait)?;
        if buffer.level() != at.level {
            let found = buffer.level();
            let message = format!(
                "tree {} block {logical} has level {found}, its parent wants {}",
                self.id(),
                at.level
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(buffer)
    }

    /// The child at `slot` of the path's node above `level`, beside the one that the path holds: write-locked, and
    /// checked as on the way down. Nothing was changed when this fails.
    /// Errors: would block (not cached or locked, and waiting is not allowed), device errors, damage.
    pub(crate) fn sibling(&self, path: &Path, level: usize, slot: usize, wait: Wait) -> Result<WriteGuard> {
        let parent = path.block(level + 1);
        let buffer = self.child_buffer(parent, slot, wait)?;
        if path.holds(level) && Arc::ptr_eq(&buffer, path.node(level).buffer()) {
            // Locking it would wait for ourselves.
            let (id, at, child) = (self.id(), parent.logical(), buffer.logical());
            let message =
                format!("corrupt node: tree={id} logical={at} slot={slot}, it points to {child} twice");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let held = self.hold(buffer.level(), Side::Beside, wait);
        let guard = if wait.allowed() { buffer.write_as(held) } else { buffer.try_write(held)? };
        self.check_child(parent, slot, guard.block())?;
        Ok(guard)
    }

    /// The same if the sibling is cached and nobody is there: room is worth neither a device read nor a wait.
    pub(crate) fn cached_sibling(
        &self,
        path: &Path,
        level: usize,
        slot: usize,
    ) -> Result<Option<WriteGuard>> {
        match self.sibling(path, level, slot, Wait::No) {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a locked child is what its parent says. A block was verified when it was read, but it may have been
    /// reached by another pointer then; on a damaged filesystem the two need not agree.
    pub(crate) fn check_child(&self, parent: BlockRef<'_>, slot: usize, child: BlockRef<'_>) -> Result<()> {
        let (logical, generation) = parent.child(slot);
        let (key, found) = (parent.key(slot), child.first_key());
        let belongs = child.may_belong_to(self.id());
        if child.generation() == generation && found == Some(key) && belongs {
            return Ok(());
        }
        let message = match found {
            None => {
                format!("corrupt leaf: tree={} logical={logical}, it is empty and not the root", self.id())
            }
            Some(_) if !belongs => format!(
                "corrupt node: tree={} logical={} slot={slot}, its pointer to {logical} leads to another tree's \
                 block, found owner {}, want {}",
                self.id(),
                parent.logical(),
                child.owner(),
                self.id()
            ),
            Some(found) => format!(
                "corrupt node: tree={} logical={} slot={slot}, its pointer to {logical} disagrees with that block, \
                 found generation {} first key {found}, want generation {generation} first key {key}",
                self.id(),
                parent.logical(),
                child.generation()
            ),
        };
        Err(Error::new(ErrorKind::Corrupt, message))
    }

    /// Calls `read` with the data of the item at `key`, under the leaf's read lock; none when there is no such
    /// item.
    /// Errors: would block, device errors, damage.
    pub fn get<R>(&self, key: &Key, wait: Wait, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let found = self.find_leaf(key, wait)?;
        if !found.exact {
            return Ok(None);
        }
        Ok(Some(read(found.guard.block().data(found.slot))))
    }
}

/// Where `key` is in a leaf, or would be inserted, searching from slot `low`.
pub(crate) fn position(block: BlockRef<'_>, key: &Key, low: usize) -> (usize, bool) {
    match block.search(key, low) {
        Ok(slot) => (slot, true),
        Err(slot) => (slot, false),
    }
}

/// The child of an inner node under which `key` is or would be.
pub(crate) fn child_slot(block: BlockRef<'_>, key: &Key) -> usize {
    match block.search(key, 0) {
        Ok(slot) => slot,
        Err(slot) => slot.saturating_sub(1),
    }
}
