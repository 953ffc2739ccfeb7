//! Dropping a tree: giving up everything that its root leads to, in steps.
//!
//! A subvolume may share blocks with its snapshots, so a block is freed only when no other tree references it. From the root down, the
//! drop looks at each pointer of a block that is this tree's alone:
//!
//! | the child | action |
//! |---|---|
//! | belongs to this tree alone | everything below it is given up, then the block |
//! | is shared, and older than this tree | the pointer is given up, and the block is not read |
//! | is shared, and counted by parent, or another tree's | the pointer is given up |
//! | is shared, by tree, and this tree's own | it and all such blocks below it are first counted by parent; then the pointer is given up |
//!
//! The last row is needed because "by tree" means "by every block found in that tree", and this tree will not be there to be
//! searched. (`cow` says how references are counted.) Linux begins with the upper blocks, so after an interrupted drop a block that is
//! counted by parent may have blocks below it that are not yet.
//!
//! A drop changes nothing in the tree, so a key and a level say where a step ended: everything before is given up ([`DropProgress`],
//! which is stored in the root item, like Linux does it). Counting by parent goes block by block, children first, and can stop
//! anywhere: each block is counted one way or the other.
//!
//! A step keeps a block locked from the query of its reference count until the changes that follow from the count are queued.
//! A copy has the block write-locked for the same reason: otherwise two threads that give up the last two references would each
//! see the other's reference. A block that is not read has no lock: the step waits for its turn (`sharing`).
//!
//! # Invariants
//! - TREEDROP-1: no other thread uses or changes the tree.
//! - TREEDROP-2: a step queues no more references than it has room for, except one for each level.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Logical, Result, TreeId, Wait};
use creamery_format::{BlockRef, Key, KeyType};

use crate::buffer::ReadGuard;
use crate::host::{BlockReferences, CowHost, FreedBlock};
use crate::order::LevelPosition;
use crate::sharing::SharedRefsGuard;
use crate::tree::Tree;

/// The progress of a drop: everything before `key`, in nodes of `level`, is dropped.
///
/// ```
/// use creamery_format::Key;
/// let progress = creamery_tree::DropProgress { key: Key::MIN, level: 1 };
/// assert_eq!(progress.level, 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DropProgress {
    /// The key of the next pointer to drop.
    pub key: Key,
    /// The level of the node with that pointer, at least 1.
    pub level: u8,
}

/// The outcome of a step.
///
/// ```
/// assert_ne!(creamery_tree::Dropped::Wholly, creamery_tree::Dropped::NeedsRoom(9));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// The drop goes on from here.
    Partly(DropProgress),
    /// The step did nothing: the next block alone needs room for this many references.
    NeedsRoom(u32),
    /// The whole tree is dropped.
    Wholly,
}

/// A tree that is being dropped.
///
/// ```no_run
/// # fn drop_all(tree: std::sync::Arc<creamery_tree::Tree>, host: &dyn creamery_tree::CowHost) -> creamery_base::Result<()> {
/// use creamery_tree::{Dropped, TreeDrop};
/// let mut drop = TreeDrop::new(tree, creamery_base::Generation::new(0), None);
/// while drop.step(host, 1000)? != Dropped::Wholly {}
/// # Ok(())
/// # }
/// ```
pub struct TreeDrop {
    tree: Arc<Tree>,
    /// The transaction that made the tree as a snapshot: no older block is its own. Zero for other trees.
    made: Generation,
    progress: Option<DropProgress>,
    /// Below the next pointer, the blocks before this key are counted by parent. Saves a look at each of them.
    by_parent_to: Option<Key>,
}

/// Whether a walk goes on.
enum DropWalk {
    On,
    Stop(Option<DropProgress>),
}

/// A child that is older than its tree.
enum Older {
    /// Other trees reference it, too: the pointer was given up, if there was room.
    Shared(DropWalk),
    /// This tree alone references it, and no other tree can gain a reference.
    Alone(BlockReferences),
}

/// The state of one step.
struct DropStep<'s> {
    host: &'s dyn CowHost,
    tree: &'s Tree,
    made: Generation,
    /// References that the step may still queue.
    room: u32,
    /// References that the first block needs, if there was no room for them.
    needs: u32,
    any: bool,
    by_parent_to: Option<Key>,
}

impl TreeDrop {
    /// Creates a drop of `tree` that goes on at `progress`. `made` is the transaction that made the tree as a snapshot, else zero.
    #[must_use]
    pub fn new(tree: Arc<Tree>, made: Generation, progress: Option<DropProgress>) -> Self {
        Self { tree, made, progress, by_parent_to: None }
    }

    /// Returns the tree's id.
    #[must_use]
    pub fn tree(&self) -> TreeId {
        self.tree.id()
    }

    /// Drops more of the tree, and queues about `room` references at most. The caller keeps TREEDROP-1.
    /// Errors: device errors; damage; those of [`CowHost`]. References queued before the error stay queued.
    pub fn step(&mut self, host: &dyn CowHost, room: u32) -> Result<Dropped> {
        let tree = Arc::clone(&self.tree);
        let root = tree.root_buffer();
        let level = root.level();
        let guard = root.lock_shared(tree.hold(level, LevelPosition::OnTheWay, Wait::Yes), Wait::Yes)?;
        let by_parent_to = self.by_parent_to;
        let mut step =
            DropStep { host, tree: &tree, made: self.made, room, needs: 0, any: false, by_parent_to };
        let sole = BlockReferences { count: 1, full_backref: false };
        let walked = step.drop_block(&guard, sole, None, self.progress.as_ref())?;
        self.by_parent_to = step.by_parent_to;
        Ok(match walked {
            DropWalk::On => Dropped::Wholly,
            DropWalk::Stop(progress) if step.any => {
                let progress = progress.expect("something was given up of a node");
                self.progress = Some(progress);
                Dropped::Partly(progress)
            }
            DropWalk::Stop(_) => Dropped::NeedsRoom(step.needs),
        })
    }
}

impl DropStep<'_> {
    /// Takes room for `references` more. Returns false if they do not fit.
    fn takes(&mut self, references: usize) -> bool {
        let references = u32::try_from(references).expect("bounded by the size of a block");
        let fits = references <= self.room;
        if fits {
            (self.room, self.any) = (self.room - references, true);
        } else if !self.any {
            self.needs = references;
        }
        fits
    }

    /// Gives up a block that is this tree's alone, and everything below it. `by_parent` is the parent's address if the parent
    /// counts its children by its address.
    fn drop_block(
        &mut self,
        block: &ReadGuard,
        references: BlockReferences,
        by_parent: Option<Logical>,
        resume: Option<&DropProgress>,
    ) -> Result<DropWalk> {
        // First, before any block below it is freed (FROZEN-2).
        self.tree.mark_given_up(block.buffer());
        if block.block().is_leaf() {
            if resume.is_some() {
                return Err(self.damaged(block.block(), "is a leaf, expected a node to continue dropping"));
            }
            if !self.takes(references_of(block.block()) + 1) {
                return Ok(DropWalk::Stop(None));
            }
            self.host.drop_references(self.tree.id(), block.block(), references.full_backref)?;
        } else if let stop @ DropWalk::Stop(_) = self.drop_children(block, references.full_backref, resume)? {
            return Ok(stop);
        }
        self.any = true;
        self.give_up(block, by_parent, true)?;
        Ok(DropWalk::On)
    }

    /// Gives up all children of a node that is this tree's alone.
    fn drop_children(
        &mut self,
        node: &ReadGuard,
        by_parent: bool,
        resume: Option<&DropProgress>,
    ) -> Result<DropWalk> {
        let block = node.block();
        let (first, mut below) = match resume {
            None => (0, None),
            Some(progress) if block.level() > progress.level => (block.child_slot(&progress.key), resume),
            // The tree has not changed since. To go on at another key would lose the blocks in between.
            Some(progress) if block.level() == progress.level => match block.search(&progress.key, 0) {
                Ok(slot) => (slot, None),
                Err(_) => return Err(self.damaged(block, "lacks the key at which dropping continues")),
            },
            Some(_) => return Err(self.damaged(block, "is below the level at which dropping continues")),
        };
        for slot in first..block.count() {
            let parent = by_parent.then(|| block.logical());
            if let DropWalk::Stop(within) = self.drop_child(node, slot, parent, below.take())? {
                let here = DropProgress { key: block.key(slot), level: block.level() };
                return Ok(DropWalk::Stop(Some(within.unwrap_or(here))));
            }
            self.by_parent_to = None;
        }
        Ok(DropWalk::On)
    }

    fn drop_child(
        &mut self,
        node: &ReadGuard,
        slot: usize,
        by_parent: Option<Logical>,
        resume: Option<&DropProgress>,
    ) -> Result<DropWalk> {
        let older = match resume {
            None if node.block().child(slot).1 <= self.made => {
                match self.give_up_older(node, slot, by_parent)? {
                    Older::Shared(walk) => return Ok(walk),
                    Older::Alone(references) => Some(references),
                }
            }
            _ => None,
        };
        let child = self.read_child(node, slot)?;
        let references = match older {
            Some(references) => references,
            None => self.references(node.block().child(slot).1, child.block())?,
        };
        if references.count == 1 {
            return self.drop_block(&child, references, by_parent, resume);
        }
        if resume.is_some() {
            return Err(self.damaged(child.block(), "is shared, but dropping continues within it"));
        }
        if self.is_own(child.block(), references) && !self.count_by_parent(&child, references)? {
            return Ok(DropWalk::Stop(None));
        }
        if !self.takes(1) {
            return Ok(DropWalk::Stop(None));
        }
        self.host.leaves_shared(child.block().logical(), child.block().level())?;
        self.give_up(&child, by_parent, false)?;
        Ok(DropWalk::On)
    }

    /// Gives up the pointer to a block that is older than this tree, unless it is the only one. This tree counts nothing below
    /// such a block, so the block is not read.
    fn give_up_older(&mut self, node: &ReadGuard, slot: usize, by_parent: Option<Logical>) -> Result<Older> {
        let (at, generation) = node.block().child(slot);
        let level = node.block().level() - 1;
        // Before the turn, because no thread waits for a device during a turn (READ-1). The count is read again under the turn.
        if self.host.traces_shared() && self.host.references(at, level, Wait::Yes)?.count > 1 {
            self.host.leaves_shared(at, level)?;
        }
        let (_turn, references) = take_turn(self.tree, self.host, at, level)?;
        if references.count == 1 {
            return Ok(Older::Alone(references));
        }
        if !self.takes(1) {
            return Ok(Older::Shared(DropWalk::Stop(None)));
        }
        let tree = self.tree.id();
        self.tree.count_given_up(false);
        let (last_reference, owner) = (false, None);
        self.host.free(FreedBlock {
            tree,
            logical: at,
            level,
            generation,
            by_parent,
            last_reference,
            owner,
        })?;
        Ok(Older::Shared(DropWalk::On))
    }

    /// Returns the references of a locked block. The lock keeps other threads from copying it meanwhile.
    fn references(&self, generation: Generation, block: BlockRef<'_>) -> Result<BlockReferences> {
        // A block that Linux relocated is newer than the snapshots that share it.
        let is_moved = block.flags() & creamery_format::HEADER_FLAG_RELOC != 0;
        if generation > self.tree.last_snapshot() && !is_moved {
            return Ok(BlockReferences { count: 1, full_backref: false });
        }
        self.host.references(block.logical(), block.level(), Wait::Yes)
    }

    /// Whether this tree may count a block or an extent below a shared block.
    fn is_own(&self, block: BlockRef<'_>, references: BlockReferences) -> bool {
        let is_done = references.full_backref && block.is_leaf();
        !is_done && block.generation() > self.made && block.owner() == self.tree.id()
    }

    /// Counts the children of this tree's own block by the block's address, and likewise in the blocks below it. Returns false if
    /// there is not enough room.
    fn count_by_parent(&mut self, node: &ReadGuard, references: BlockReferences) -> Result<bool> {
        let block = node.block();
        let children = if block.is_leaf() { 0 } else { block.count() };
        for slot in 0..children {
            let next = (slot + 1 < children).then(|| block.key(slot + 1));
            let is_done = self.by_parent_to.is_some_and(|to| next.is_some_and(|next| next <= to));
            if is_done || block.child(slot).1 <= self.made {
                continue;
            }
            let child = self.read_child(node, slot)?;
            let references = self.references(block.child(slot).1, child.block())?;
            if self.is_own(child.block(), references) && !self.count_by_parent(&child, references)? {
                return Ok(false);
            }
        }
        if references.full_backref {
            return Ok(true);
        }
        if !self.takes(2 * references_of(block) + 1) {
            return Ok(false);
        }
        let tree = self.tree.id();
        self.host.add_references(tree, block, true)?;
        self.host.drop_references(tree, block, false)?;
        self.host.set_full_backref(block.logical(), block.level())?;
        self.by_parent_to = block.first_key().max(self.by_parent_to);
        Ok(true)
    }

    fn read_child(&self, node: &ReadGuard, slot: usize) -> Result<ReadGuard> {
        let child = self.tree.child_buffer(node.block(), slot)?;
        let held = self.tree.hold(child.level(), LevelPosition::OnTheWay, Wait::Yes);
        let child = child.lock_shared(held, Wait::Yes)?;
        self.tree.check_child(node.block(), slot, child.block())?;
        Ok(child)
    }

    fn give_up(&self, block: &ReadGuard, by_parent: Option<Logical>, last_reference: bool) -> Result<()> {
        let header = block.block();
        let freed = FreedBlock {
            tree: self.tree.id(),
            logical: header.logical(),
            level: header.level(),
            generation: header.generation(),
            by_parent,
            last_reference,
            owner: Some(header.owner()),
        };
        let own = freed.generation == self.host.generation() && last_reference;
        if own && !header.is_written() {
            self.tree.store.forget_dirty(block.buffer());
        }
        self.tree.count_given_up(own);
        self.host.free(freed)
    }

    fn damaged(&self, block: BlockRef<'_>, what: &str) -> Error {
        let (tree, at) = (self.tree.id(), block.logical());
        Error::new(ErrorKind::Corrupt, format!("dropping tree {tree}: block {at} {what}"))
    }
}

/// Takes the turn of a block that is not read, and returns its references. Threads that wait for a turn have blocks locked, so this
/// waits for a device only outside the turn (READ-1).
fn take_turn<'t>(
    tree: &'t Tree,
    host: &dyn CowHost,
    at: Logical,
    level: u8,
) -> Result<(SharedRefsGuard<'t>, BlockReferences)> {
    loop {
        let turn = tree.store.turn(at);
        match host.references(at, level, Wait::No) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => drop(turn),
            references => return Ok((turn, references?)),
        }
        host.references(at, level, Wait::Yes)?;
    }
}

/// Returns how many references a block gives to its children and extents, at most.
fn references_of(block: BlockRef<'_>) -> usize {
    if block.is_leaf() {
        (0..block.count()).filter(|slot| block.key(*slot).kind == KeyType::EXTENT_DATA).count()
    } else {
        block.count()
    }
}
