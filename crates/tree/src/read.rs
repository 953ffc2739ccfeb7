//! Reading: from the root to a leaf; a reader locks each child before it unlocks the parent.
//!
//! Frozen blocks (`buffer`) are not locked. Every block below a frozen block is frozen, so from the first one on a reader walks
//! the tree as it was when the reader arrived there. If the tree changed since, it may have given up the blocks below, and their
//! space may hold other data. The reader then finds a block that differs from the pointer to it, sees that the block with that
//! pointer was given up, and starts again. If that block is still in the tree, the difference is damage.

use std::sync::Arc;

use creamery_base::lock::HeldNote;
use creamery_base::{DamagedBlock, Error, ErrorKind, Result, Wait};
use creamery_format::{BlockRef, Expected, Key};

use crate::LEVELS;
use crate::block_read::Loaded;
use crate::buffer::{ExtentBuffer, ReadGuard, WriteGuard};
use crate::order::LevelPosition;
use crate::path::Path;
use crate::read_ahead::{ReadAhead, Walk};
use crate::tree::{RootPointer, Tree};

/// A leaf found by key.
pub(crate) struct FoundLeaf {
    pub(crate) guard: ReadGuard,
    pub(crate) slot: usize,
    pub(crate) there: There,
    /// The first key that belongs into this leaf, if the search asked for it. `None` also for the tree's first leaf.
    pub(crate) begins: Option<Key>,
    /// The first key that belongs into the next leaf, if there is one.
    pub(crate) next_leaf: Option<Key>,
}

/// Whether the leaf holds the key of the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)] // a one-byte tag would make the compiler copy the neighbouring fields in pieces
pub(crate) enum There {
    Yes,
    No,
}

impl There {
    pub(crate) const fn of(is_there: bool) -> Self {
        if is_there { Self::Yes } else { Self::No }
    }
}

/// How a reader goes down.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// Whether the reader may wait for locks.
    locks: Wait,
    /// Whether the reader may wait for a device.
    device: Wait,
    /// Also locks frozen blocks: no thread changes the leaf's items while the reader has it. Otherwise the reader sees the tree
    /// as it was at some moment since the search began.
    locks_all: bool,
    /// Whether the search returns the first key that belongs into the leaf.
    tells_begin: bool,
    /// The direction of the walk, for readahead.
    walk: Walk,
}

impl Manner {
    fn of(walk: impl Into<Walk>) -> Self {
        let walk = walk.into();
        Self { locks: walk.wait, device: walk.wait, locks_all: false, tells_begin: false, walk }
    }
}

/// A block on the reader's way down.
enum Node<'root> {
    /// A frozen block that the root's reference keeps in memory (`links`).
    Linked(&'root Arc<ExtentBuffer>),
    Held(ReadGuard),
}

impl<'root> Node<'root> {
    fn block(&self) -> BlockRef<'_> {
        match self {
            Self::Linked(buffer) => BlockRef::new(buffer.frozen().expect("what is frozen stays so")),
            Self::Held(guard) => guard.block(),
        }
    }

    fn buffer(&self) -> &Arc<ExtentBuffer> {
        match self {
            Self::Linked(buffer) => buffer,
            Self::Held(guard) => guard.buffer(),
        }
    }

    /// Returns the child at `slot` if a link leads to it, without a lookup.
    fn linked(&self, slot: usize) -> Option<&'root Arc<ExtentBuffer>> {
        match self {
            Self::Linked(buffer) => buffer.linked(slot),
            Self::Held(_) => None,
        }
    }

    const fn is_locked(&self) -> bool {
        match self {
            Self::Linked(_) => false,
            Self::Held(guard) => guard.is_locked(),
        }
    }

    fn into_guard(self) -> ReadGuard {
        match self {
            Self::Linked(buffer) => ReadGuard::of_frozen(Arc::clone(buffer)),
            Self::Held(guard) => guard,
        }
    }
}

/// How often in a row a search without locks may find its way gone. Each time takes a transaction.
const STALE_MAX: u32 = 8;

/// The outcome of one try to find a leaf.
enum Try {
    Found(FoundLeaf),
    /// A block was missing. The search held no lock while it read the block, and added it to `loaded`.
    Loaded,
    /// A block on the way was given up meanwhile, so its pointers may lead to other blocks.
    Stale,
}

impl Tree {
    /// Returns the leaf in which `key` is or would be.
    pub(crate) fn find_leaf(&self, key: &Key, walk: Walk) -> Result<FoundLeaf> {
        self.find_leaf_in(key, Manner::of(walk))
    }

    /// Returns the leaf in which `key` is or would be, with the first key that belongs there.
    pub(crate) fn find_leaf_and_begin(&self, key: &Key, walk: Walk) -> Result<FoundLeaf> {
        self.find_leaf_in(key, Manner { tells_begin: true, ..Manner::of(walk) })
    }

    /// Returns the leaf in which `key` is or would be, locked: no thread changes it while the caller has it.
    pub(crate) fn find_leaf_locked(&self, key: &Key, wait: Wait) -> Result<FoundLeaf> {
        self.find_leaf_in(key, Manner { locks_all: true, ..Manner::of(wait) })
    }

    fn find_leaf_in(&self, key: &Key, mut manner: Manner) -> Result<FoundLeaf> {
        let (mut loaded, mut stale) = (Loaded::new(), 0);
        loop {
            match self.try_leaf(key, manner, &mut loaded)? {
                Try::Found(leaf) => return Ok(leaf),
                Try::Loaded => {}
                Try::Stale => {
                    stale += 1;
                    manner.locks_all |= stale >= STALE_MAX;
                }
            }
        }
    }

    fn try_leaf(&self, key: &Key, manner: Manner, loaded: &mut Loaded) -> Result<Try> {
        let root = self.root_borrowed();
        let mut node = if root.frozen().is_some() && !manner.locks_all {
            Node::Linked(&root)
        } else {
            Node::Held(self.read_root(manner)?)
        };
        let (mut begins, mut next_leaf) = (None, None);
        for _ in 0..LEVELS {
            let block = node.block();
            if block.is_leaf() {
                let found = block.search_before(key, next_leaf.as_ref());
                let (there, Ok(slot) | Err(slot)) = (There::of(found.is_ok()), found);
                return Ok(Try::Found(FoundLeaf {
                    guard: node.into_guard(),
                    slot,
                    there,
                    begins,
                    next_leaf,
                }));
            }
            let slot =
                block.search_before(key, next_leaf.as_ref()).unwrap_or_else(|slot| slot.saturating_sub(1));
            if manner.tells_begin && slot > 0 {
                begins = Some(block.key(slot));
            }
            if slot + 1 < block.count() {
                next_leaf = Some(block.key(slot + 1));
            }
            let linked = node.linked(slot);
            let cached = if linked.is_some() { None } else { self.store.cached(block.child(slot).0) };
            if manner.walk.ahead != ReadAhead::None {
                self.read_ahead(&node, slot, manner.walk, linked.is_none() && cached.is_none());
            }
            if let Some(child) = linked {
                // Another tree may have made the link. Each tree checks the owner for itself.
                self.check_child(block, slot, Node::Linked(child).block())?;
                node = Node::Linked(child);
                continue;
            }
            let Some(child) = cached else { return self.missed(node, slot, manner, loaded) };
            #[cfg(feature = "shuttle")]
            if self.is_uncoupled() {
                drop(node);
                node = Node::Held(self.read_buffer(child, manner)?);
                continue;
            }
            match self.step_down(&node, slot, child, manner) {
                Ok(child) => node = Node::Held(child),
                Err(error) if is_stale(&node, &error) => return Ok(Try::Stale),
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Corrupt, format!("tree {} is deeper than {LEVELS} levels", self.id())))
    }

    /// Reads the child at `slot` of a node into `loaded`, with nothing locked.
    #[cold]
    fn missed(&self, node: Node<'_>, slot: usize, manner: Manner, loaded: &mut Loaded) -> Result<Try> {
        if !manner.device.allowed() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let want = self.expected_child(node.block(), slot);
        let _kept = self.store.readers().guard();
        if !node.is_locked() && node.buffer().is_given_up() {
            return Ok(Try::Stale);
        }
        drop(node);
        loaded.push(self.store.load(&want)?);
        Ok(Try::Loaded)
    }

    /// Queues the blocks beside the child at `slot` of a node to be read ahead. `missed` says whether that child is not cached.
    fn read_ahead(&self, node: &Node<'_>, slot: usize, walk: Walk, missed: bool) {
        if !self.store.ahead.is_on() {
            return;
        }
        let block = node.block();
        let wants = self.wants_ahead(block, slot, walk, missed);
        if wants.is_empty() {
            return;
        }
        let kept = self.store.readers().guard();
        if node.is_locked() || !node.buffer().is_given_up() {
            self.store.ahead.push(wants, block.bytes().len() as u64, kept);
        }
    }

    /// Returns the blocks beside the child at `slot` of a node that are worth reading ahead and not cached.
    pub(crate) fn wants_ahead(
        &self,
        node: BlockRef<'_>,
        slot: usize,
        walk: Walk,
        missed: bool,
    ) -> Vec<Expected> {
        let slots = walk.slots_ahead(node, slot, missed);
        let wants = slots.into_iter().map(|slot| self.expected_child(node, slot));
        wants.filter(|want| !self.store.is_cached(want.logical)).collect()
    }

    /// Returns a read guard of the child at `slot` of a node.
    fn step_down(
        &self,
        parent: &Node<'_>,
        slot: usize,
        child: Arc<ExtentBuffer>,
        manner: Manner,
    ) -> Result<ReadGuard> {
        self.check_level(parent.block(), slot, child.level())?;
        let child = self.read_buffer(child, manner)?;
        self.check_child(parent.block(), slot, child.block())?;
        parent.buffer().link(slot, child.buffer());
        Ok(child)
    }

    fn read_buffer(&self, buffer: Arc<ExtentBuffer>, manner: Manner) -> Result<ReadGuard> {
        let (place, wait) = (self.place_on_the_way(buffer.level()), manner.locks);
        if manner.locks_all {
            buffer.lock_shared(HeldNote::before(place, wait), wait)
        } else {
            buffer.read_at(place, wait)
        }
    }

    /// Returns a read guard of the root. If the guard holds a lock, the block is still the root.
    fn read_root(&self, manner: Manner) -> Result<ReadGuard> {
        loop {
            let guard = self.read_buffer(self.root_buffer(), manner)?;
            if !guard.is_locked() || self.is_root(guard.buffer()) {
                return Ok(guard);
            }
        }
    }

    /// Returns the values that a node promises for its child at `slot`.
    pub(crate) fn expected_child(&self, node: BlockRef<'_>, slot: usize) -> Expected {
        let (logical, generation) = node.child(slot);
        let at = RootPointer { logical, generation, level: node.level() - 1 };
        self.expected(at, Some(node.key(slot)))
    }

    /// Checks that a block has the level that its parent wants.
    pub(crate) fn check_level(&self, node: BlockRef<'_>, slot: usize, found: u8) -> Result<()> {
        let want = node.level() - 1;
        if found == want {
            return Ok(());
        }
        let (id, at) = (self.id(), node.child(slot).0);
        let message =
            format!("tree {id} block {at}: expected level {want}, as its parent says, found {found}");
        Err(Error::new(ErrorKind::Corrupt, message))
    }

    /// Returns the buffer of the child at `slot` of an inner node. The caller must have no block locked for writing.
    /// Errors: device errors, damage.
    pub(crate) fn child_buffer(&self, node: BlockRef<'_>, slot: usize) -> Result<Arc<ExtentBuffer>> {
        let buffer = self.store.get(&self.expected_child(node, slot), Wait::Yes)?;
        self.check_level(node, slot, buffer.level())?;
        Ok(buffer)
    }

    /// Write-locks the child at `slot` of the path's node above `level`, beside the child that the path holds, and
    /// checks it like a child on the way down. `None` if it is not cached. An error leaves everything unchanged.
    /// Errors: would block (locked, and waiting is not allowed), damage.
    pub(crate) fn sibling(
        &self,
        path: &Path,
        level: usize,
        slot: usize,
        wait: Wait,
    ) -> Result<Option<WriteGuard>> {
        let parent = path.block(level + 1);
        let Some(buffer) = self.store.cached(parent.child(slot).0) else { return Ok(None) };
        self.check_level(parent, slot, buffer.level())?;
        if path.holds(level) && Arc::ptr_eq(&buffer, path.node(level).buffer()) {
            // Locking it would deadlock with this path's own lock.
            let (id, at, child) = (self.id(), parent.logical(), buffer.logical());
            let message =
                format!("corrupt node: tree={id} logical={at} slot={slot}, it points to {child} twice");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let held = self.hold(buffer.level(), LevelPosition::Beside, wait);
        let guard = if wait.allowed() { buffer.write_as(held) } else { buffer.try_write(held)? };
        self.check_child(parent, slot, guard.block())?;
        Ok(Some(guard))
    }

    /// Write-locks the child at `slot` if it is cached and unlocked, else `None`: room is worth neither a device read nor a wait.
    pub(crate) fn cached_sibling(
        &self,
        path: &Path,
        level: usize,
        slot: usize,
    ) -> Result<Option<WriteGuard>> {
        match self.sibling(path, level, slot, Wait::No) {
            Ok(guard) => Ok(guard),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks that a locked child agrees with its parent. A block was verified when it was read, but perhaps through
    /// another pointer; on a damaged filesystem the two need not agree.
    pub(crate) fn check_child(&self, parent: BlockRef<'_>, slot: usize, child: BlockRef<'_>) -> Result<()> {
        let (logical, generation) = parent.child(slot);
        let (key, found) = (parent.key(slot), child.first_key());
        let belongs = child.may_belong_to(self.id());
        // LOW-KEY-1.
        let is_exact = parent.is_written() || child.is_written();
        let begins_there = if is_exact { found == Some(key) } else { found >= Some(key) };
        if child.generation() == generation && begins_there && belongs {
            return Ok(());
        }
        let message = match found {
            None => {
                format!("corrupt leaf: tree={} logical={logical}, it is empty and not the root", self.id())
            }
            Some(_) if !belongs => format!(
                "corrupt node: tree={} logical={} slot={slot}, its pointer to {logical} leads to another tree's \
                 block, expected owner {}, found {}",
                self.id(),
                parent.logical(),
                self.id(),
                child.owner()
            ),
            Some(found) => format!(
                "corrupt node: tree={} logical={} slot={slot}, its pointer to {logical} disagrees with that block, \
                 expected generation {generation} first key {key}, found generation {} first key {found}",
                self.id(),
                parent.logical(),
                child.generation()
            ),
        };
        Err(Error::new(ErrorKind::Corrupt, message).of_block(DamagedBlock::Tree(logical)))
    }

    /// Calls `read` with the data of the item at `key`. `None` if there is no such item.
    /// Errors: would block, device errors, damage.
    pub fn get<R>(&self, key: &Key, wait: Wait, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.get_in(key, Manner::of(wait), read)
    }

    /// Calls `read` with the data of the item at `key`, like [`Tree::get`], and keeps the leaf locked: no thread changes the item
    /// until `read` returns. For callers that compare the item with state that changes along with it.
    /// Errors: would block, device errors, damage.
    pub fn get_locked<R>(&self, key: &Key, wait: Wait, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.get_in(key, Manner { locks_all: true, ..Manner::of(wait) }, read)
    }

    /// Calls `read` like [`Tree::get_locked`], but waits for locks only, never for a device (READ-1).
    /// Errors: would block (a block is not cached), damage.
    pub fn get_cached<R>(&self, key: &Key, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.get_in(key, Manner { device: Wait::No, locks_all: true, ..Manner::of(Wait::Yes) }, read)
    }

    fn get_in<R>(&self, key: &Key, manner: Manner, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let found = self.find_leaf_in(key, manner)?;
        if found.there == There::No {
            return Ok(None);
        }
        Ok(Some(read(found.guard.block().data(found.slot))))
    }
}

/// Whether an error is no damage: the block that held the pointer was given up, so the child may be another block.
fn is_stale(parent: &Node<'_>, error: &Error) -> bool {
    error.kind() == ErrorKind::Corrupt && !parent.is_locked() && parent.buffer().is_given_up()
}

/// Returns the slot of `key` in a leaf, or the slot where it would be inserted, and whether it is there. Searches from slot `low`.
pub(crate) fn position(block: BlockRef<'_>, key: &Key, low: usize) -> (usize, bool) {
    match block.search(key, low) {
        Ok(slot) => (slot, true),
        Err(slot) => (slot, false),
    }
}

/// Returns the slot of an inner node under which `key` is or would be.
pub(crate) fn child_slot(block: BlockRef<'_>, key: &Key) -> usize {
    match block.search(key, 0) {
        Ok(slot) => slot,
        Err(slot) => slot.saturating_sub(1),
    }
}
