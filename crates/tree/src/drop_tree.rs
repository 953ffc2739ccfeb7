//! Dropping a tree: giving up everything that its root leads to, in steps.
//!
//! A subvolume may share blocks with its snapshots, so a block goes only when nobody else refers to it. From the root down, each
//! pointer of a block that is this tree's alone is looked at:
//!
//! | what it points to | is done |
//! |---|---|
//! | belongs to this tree alone | everything that it points to in turn is given up, then the block |
//! | is shared, and older than this tree | the pointer is given up, and the block is not read |
//! | is shared, and counted by parent, or another tree's | the pointer is given up |
//! | is shared, by tree, and this tree's own | it and all such below it are first counted by parent; then the pointer is given up |
//!
//! The last row is needed because "by tree" means "by whoever finds it in that tree", and this tree will not be there to be
//! searched. (What is counted how: `cow`.) Linux begins with the upper blocks, so where it was interrupted one that is counted by
//! parent may have others below it that are not yet.
//!
//! Nothing of the tree is changed, so where a step ends is a key and a level: everything before it is given up ([`DropProgress`],
//! which stands in the root item, as Linux has it). Counting by parent is done block by block, children first, and can stop
//! anywhere: a block is counted one way or the other.
//!
//! How often a block is referred to is asked with the block locked, and what follows from it is queued before it is let go.
//! Whoever copies a block has it locked alone for the same reason: two that give up the last two references would else both
//! take themselves for the last but one. Of a block that is not read there is nothing to lock: its turn is waited for (`sharing`).
//!
//! # Invariants
//! - DROP-1: nobody else uses or changes the tree.
//! - DROP-2: a step queues no more references than it has room for, but for one for each level.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Logical, Result, TreeId, Wait};
use creamery_format::{BlockRef, Key, KeyType};

use crate::buffer::ReadGuard;
use crate::host::{BlockReferences, CowHost, FreedBlock};
use crate::order::Side;
use crate::sharing::Turn;
use crate::tree::Tree;

/// Up to where a tree was dropped: everything before `key`, in nodes of `level`.
///
/// ```
/// use creamery_format::Key;
/// let progress = creamery_tree::DropProgress { key: Key::MIN, level: 1 };
/// assert_eq!(progress.level, 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DropProgress {
    /// The key of the pointer that is next.
    pub key: Key,
    /// The level of the node that has it, at least 1.
    pub level: u8,
}

/// How far a step went.
///
/// ```
/// assert_ne!(creamery_tree::Dropped::Wholly, creamery_tree::Dropped::NeedsRoom(9));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// There is more, from here on.
    Partly(DropProgress),
    /// Nothing was done: the next block alone needs room for so many references.
    NeedsRoom(u32),
    /// Nothing is left of the tree.
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
    /// When it was made as a snapshot: no older block is its own. Zero for others.
    made: Generation,
    progress: Option<DropProgress>,
    /// Below the next pointer, the blocks before this key are counted by parent. Worth a look at each of them.
    by_parent_to: Option<Key>,
}

/// Whether a walk goes on.
enum Walk {
    On,
    Stop(Option<DropProgress>),
}

/// A block that is older than the tree that points to it.
enum Older {
    /// Others refer to it, too: the pointer was given up, if there was room.
    Shared(Walk),
    /// This tree alone has it, and nobody else can come by it.
    Alone(BlockReferences),
}

/// One step.
struct Step<'s> {
    host: &'s dyn CowHost,
    tree: &'s Tree,
    made: Generation,
    /// References that it may still queue.
    room: u32,
    /// References that the block needs for which there was no room.
    needs: u32,
    any: bool,
    by_parent_to: Option<Key>,
}

impl TreeDrop {
    /// Drops `tree`, which was made in `made` if it was made as a snapshot, from where an earlier drop ended.
    #[must_use]
    pub fn new(tree: Arc<Tree>, made: Generation, progress: Option<DropProgress>) -> Self {
        Self { tree, made, progress, by_parent_to: None }
    }

    /// The tree.
    #[must_use]
    pub fn tree(&self) -> TreeId {
        self.tree.id()
    }

    /// Goes on, queueing about `room` references at most. Nobody else uses the tree (DROP-1).
    /// Errors: device errors; damage; those of [`CowHost`]. What was queued before stays queued.
    pub fn step(&mut self, host: &dyn CowHost, room: u32) -> Result<Dropped> {
        let tree = Arc::clone(&self.tree);
        let root = tree.root_buffer();
        let level = root.level();
        let guard = root.lock_shared(tree.hold(level, Side::OnTheWay, Wait::Yes), Wait::Yes)?;
        let by_parent_to = self.by_parent_to;
        let mut step = Step { host, tree: &tree, made: self.made, room, needs: 0, any: false, by_parent_to };
        let sole = BlockReferences { count: 1, full_backref: false };
        let walked = step.drop_block(&guard, sole, None, self.progress.as_ref())?;
        self.by_parent_to = step.by_parent_to;
        Ok(match walked {
            Walk::On => Dropped::Wholly,
            Walk::Stop(progress) if step.any => {
                let progress = progress.expect("something was given up of a node");
                self.progress = Some(progress);
                Dropped::Partly(progress)
            }
            Walk::Stop(_) => Dropped::NeedsRoom(step.needs),
        })
    }
}

impl Step<'_> {
    /// Whether there is room for `references` more, which are queued then.
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

    /// Gives up a block that is this tree's alone, to which `parent` points, by its address if that is said, and everything
    /// below.
    fn drop_block(
        &mut self,
        block: &ReadGuard,
        references: BlockReferences,
        by_parent: Option<Logical>,
        resume: Option<&DropProgress>,
    ) -> Result<Walk> {
        // Before anything that it leads to goes (FROZEN-2).
        self.tree.mark_given_up(block.buffer());
        if block.block().is_leaf() {
            if resume.is_some() {
                return Err(self.damaged(block.block(), "is a leaf, and dropping is to go on in a node"));
            }
            if !self.takes(references_of(block.block()) + 1) {
                return Ok(Walk::Stop(None));
            }
            self.host.drop_references(self.tree.id(), block.block(), references.full_backref)?;
        } else if let stop @ Walk::Stop(_) = self.drop_children(block, references.full_backref, resume)? {
            return Ok(stop);
        }
        self.any = true;
        self.give_up(block, by_parent, true)?;
        Ok(Walk::On)
    }

    /// Gives up what a node points to that is this tree's alone.
    fn drop_children(
        &mut self,
        node: &ReadGuard,
        by_parent: bool,
        resume: Option<&DropProgress>,
    ) -> Result<Walk> {
        let block = node.block();
        let (first, mut below) = match resume {
            None => (0, None),
            Some(progress) if block.level() > progress.level => (block.child_slot(&progress.key), resume),
            // Nothing of the tree has changed since. To go on elsewhere would leave what is between to nobody.
            Some(progress) if block.level() == progress.level => match block.search(&progress.key, 0) {
                Ok(slot) => (slot, None),
                Err(_) => return Err(self.damaged(block, "has not the key at which dropping is to go on")),
            },
            Some(_) => return Err(self.damaged(block, "is below the level at which dropping is to go on")),
        };
        for slot in first..block.count() {
            let parent = by_parent.then(|| block.logical());
            if let Walk::Stop(within) = self.drop_child(node, slot, parent, below.take())? {
                let here = DropProgress { key: block.key(slot), level: block.level() };
                return Ok(Walk::Stop(Some(within.unwrap_or(here))));
            }
            self.by_parent_to = None;
        }
        Ok(Walk::On)
    }

    fn drop_child(
        &mut self,
        node: &ReadGuard,
        slot: usize,
        by_parent: Option<Logical>,
        resume: Option<&DropProgress>,
    ) -> Result<Walk> {
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
            return Err(self.damaged(child.block(), "is shared, and dropping is to go on within it"));
        }
        if self.is_own(child.block(), references) && !self.count_by_parent(&child, references)? {
            return Ok(Walk::Stop(None));
        }
        if !self.takes(1) {
            return Ok(Walk::Stop(None));
        }
        self.host.leaves_shared(child.block().logical(), child.block().level())?;
        self.give_up(&child, by_parent, false)?;
        Ok(Walk::On)
    }

    /// Gives up the pointer to a block that is older than this tree, unless nobody else has one: nothing that it leads to is
    /// counted by this tree, so it need not be read.
    fn give_up_older(&mut self, node: &ReadGuard, slot: usize, by_parent: Option<Logical>) -> Result<Older> {
        let (at, generation) = node.block().child(slot);
        let level = node.block().level() - 1;
        // Without the turn, with which nobody waits for a device (READ-1). Whether it is shared then is seen once more.
        if self.host.traces_shared() && self.host.references(at, level, Wait::Yes)?.count > 1 {
            self.host.leaves_shared(at, level)?;
        }
        let (_turn, references) = take_turn(self.tree, self.host, at, level)?;
        if references.count == 1 {
            return Ok(Older::Alone(references));
        }
        if !self.takes(1) {
            return Ok(Older::Shared(Walk::Stop(None)));
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
        Ok(Older::Shared(Walk::On))
    }

    /// How often a block is referred to that is locked: no copy of it is made meanwhile.
    fn references(&self, generation: Generation, block: BlockRef<'_>) -> Result<BlockReferences> {
        // What Linux has moved to another place is newer than the snapshots that share it.
        let is_moved = block.flags() & creamery_format::HEADER_FLAG_RELOC != 0;
        if generation > self.tree.last_snapshot() && !is_moved {
            return Ok(BlockReferences { count: 1, full_backref: false });
        }
        self.host.references(block.logical(), block.level(), Wait::Yes)
    }

    /// Whether something that a shared block leads to may be counted by this tree.
    fn is_own(&self, block: BlockRef<'_>, references: BlockReferences) -> bool {
        let is_done = references.full_backref && block.is_leaf();
        !is_done && block.generation() > self.made && block.owner() == self.tree.id()
    }

    /// Has everything that a block of this tree's own points to counted by the block's address, and so on below it. False when
    /// the room did not reach.
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
        let held = self.tree.hold(child.level(), Side::OnTheWay, Wait::Yes);
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

/// The turn of a block that is not read, and how often it is referred to. Whoever waits for a turn has blocks locked, so a device is
/// waited for without one (READ-1).
fn take_turn<'t>(
    tree: &'t Tree,
    host: &dyn CowHost,
    at: Logical,
    level: u8,
) -> Result<(Turn<'t>, BlockReferences)> {
    loop {
        let turn = tree.store.turn(at);
        match host.references(at, level, Wait::No) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => drop(turn),
            references => return Ok((turn, references?)),
        }
        host.references(at, level, Wait::Yes)?;
    }
}

/// How many references what a block points to has from it, at most.
fn references_of(block: BlockRef<'_>) -> usize {
    if block.is_leaf() {
        (0..block.count()).filter(|slot| block.key(*slot).kind == KeyType::EXTENT_DATA).count()
    } else {
        block.count()
    }
}
