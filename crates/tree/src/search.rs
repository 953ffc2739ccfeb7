//! The search for modification: finds a key's leaf with as few write locks, held as shortly, as correctness
//! allows.
//!
//! # How
//! From the root down, levels up to `write_level` are locked for writing, those above for reading. A search starts with the locks that most changes of its kind
//! need, and the leaf says whether this change needs more:
//!
//! | change | locks for writing first | more, where |
//! |---|---|---|
//! | insertion, or an item that grows | the leaf | the leaf lacks the room, or the key is smaller than the one by which the parent finds the leaf: the parent, too |
//! | change in place | the leaf | |
//! | greater key for an item | the leaf | the key belongs to the next leaf (`low_keys`) |
//! | smaller key for an item | the leaf and its parent | the parent says so |
//! | removal | the leaf | the leaf becomes thin (`remove`) |
//! | removal that may take the leaf away | the leaf and its parent | the parent says so |
//!
//! An insertion that keeps its parents (the switch of mechanism B) starts with the leaf and its parent locked for writing, as Linux does.
//! A removal that may take the leaf away keeps the leaf and its parent until it is done. A node that is locked for writing needs its parent, too, in three cases:
//! it is full and an insertion may give it a pointer, it is thin and a removal may take one, or its first key may become smaller.
//!
//! On the way the search copies every block that the transaction does not own. Among the nodes that it locks for writing, it splits full
//! ones before an insertion and merges thin ones before a removal, so that a change at the leaf never climbs further than the levels still
//! held. When a level turns out to need a stronger lock, the search unlocks everything and starts again with a higher `write_level`. That
//! level only rises, so there are eight such restarts at most. Before a read from a device the search unlocks everything, too (READ-1), and
//! starts again after the read.
//!
//! After each level the search unlocks the levels above, unless the first key of the block may become smaller and the slot chosen in it is 0: then the change
//! has to be able to climb. A first key that becomes greater is still not smaller than its parents' keys, and changes none of them (`low_keys`).
//!
//! # Early unlocking (mechanism B)
//! At the leaf, an insertion that fits first compares the leaf's first key with the wanted one. If the first key is
//! smaller, the new item cannot become slot 0 and no parent can change: the search unlocks all parents *before* the
//! binary search, which starts from slot 1. If the keys are equal, the item exists; if the first key is greater, the item becomes the first. In both cases the
//! parents are unlocked without a search. Only if the key is smaller than the one by which the parent finds the leaf do the parents stay locked, for writing,
//! because their keys must be rewritten. So nearly every insertion holds its parent only for one key comparison, and only for reading: insertions under one
//! parent run in parallel.
//!
//! Batches that continue where the thread's last one ended do not start at the root at all, and neither do removals in the leaf of the last one (see `finger`).
//!
//! | part of the mechanism | where |
//! |---|---|
//! | the binary search takes a low boundary | `BlockRef::search`, from slot 1 in `leaf_step` |
//! | parents let go before the leaf is searched | `leaf_step`, counted in `LeafSteps` |
//! | no second try at the leaf that would count the item's header twice | SEARCH-2; a search that begins again has the room that its caller asked for |
//! | the leaf step is a routine of its own | `leaf_step` |
//! | parents kept on demand (`keep_locks`) | the switch of the mechanism, counted as `keep`; no search looks beyond its leaf under locks: a cursor searches again by key |
//! | no room after a split is an error, neither a crash nor "not found" | `make_room` in `split` |
//!
//! # Invariants
//! - SEARCH-1: a parent is let go early only when the leaf has room for the whole insertion (no split follows).
//!   Shown by `an_insertion_locks_its_parent_for_writing_where_the_leaf_says_so`.
//! - SEARCH-2: a restart uses the intent as it was given.
//! - SEARCH-3: when `find` returns for an insertion, the leaf is write-locked, ours, and has the room asked for;
//!   every parent whose key must become smaller is write-locked and ours.

use creamery_base::{ErrorKind, Result, Wait};
use creamery_format::Key;

use crate::LEVELS;
use crate::block_read::{Loaded, Missing};
use crate::finger::Finger;
use crate::host::CowHost;
use crate::order::LevelPosition;
use crate::path::{NodeGuard, Path};
use crate::read::{child_slot, position};
use crate::rebalance::Merged;
use crate::split::SPARE_POINTERS;
use crate::tree::Tree;

/// The change that the caller is about to make at the leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    /// Insert items of this many bytes in all, item headers included, if the key does not exist.
    Insert(usize),
    /// Grow the data of an existing item by this many bytes.
    Extend(usize),
    /// Change data in place.
    Overwrite,
    /// Give an item a smaller key without changing its place.
    Rekey,
    /// Remove items.
    Delete,
}

impl Intent {
    pub(crate) fn room(self) -> usize {
        match self {
            Self::Insert(bytes) | Self::Extend(bytes) => bytes,
            Self::Overwrite | Self::Rekey | Self::Delete => 0,
        }
    }

    /// The highest level that a search locks for writing at first. `early_unlock` is the switch of mechanism B.
    fn write_level(self, early_unlock: bool) -> usize {
        match self {
            Self::Overwrite => 0,
            Self::Insert(_) | Self::Extend(_) => usize::from(!early_unlock),
            Self::Rekey | Self::Delete => 1,
        }
    }

    /// Levels below this stay locked until the caller is done.
    pub(crate) fn lowest_unlock(self) -> usize {
        if self == Self::Delete { 2 } else { 1 }
    }
}

/// The outcome of one round of the search.
enum SearchStep {
    /// At the leaf; true if it has the key.
    Done(bool),
    /// The search has to start again with this level locked for writing.
    Raise(usize),
    /// The search has to start again once this is in memory.
    Missing(Missing),
}

/// The outcome of preparing an inner node on the way down.
enum Prepared {
    Ready,
    /// The node's parent has to be locked for writing first.
    Raise,
    Missing(Missing),
    /// The node was the root, and its only child took its place.
    RootGone,
}

impl Tree {
    /// Finds the leaf slot of `key` for `intent`. Returns true if the key is there; else the slot is where it would go.
    /// Errors: no space, device errors, damage; the tree's items are unchanged then.
    pub(crate) fn find(&self, host: &dyn CowHost, key: &Key, intent: Intent) -> Result<(Path, bool)> {
        let mut write_level = intent.write_level(self.early_unlock());
        self.count(|counters| &counters.searches);
        if intent.room() > 0 {
            self.count(|counters| &counters.insertions);
        }
        let mut loaded = Loaded::new();
        loop {
            let mut path = Path::default();
            match self.descend(host, key, intent, write_level, &mut path)? {
                SearchStep::Done(found) => return Ok((path, found)),
                SearchStep::Raise(level) => {
                    assert!(
                        level > write_level && level <= LEVELS,
                        "a lock level rises, and to the root at most"
                    );
                    self.count(|counters| &counters.restarts);
                    write_level = level;
                }
                SearchStep::Missing(missing) => {
                    // The path still proves that the missing block is this tree's. After it is dropped, the guard keeps the block.
                    let kept = self.store.readers().guard();
                    drop(path);
                    match missing {
                        Missing::Block(want) => loaded.push(self.store.load(&want)?),
                        Missing::References(at, level) => drop(host.references(at, level, Wait::Yes)?),
                    }
                    drop(kept);
                }
            }
        }
    }

    /// Finds a slot like [`Tree::find`], for one of many changes side by side: an insertion behind this thread's last one, or a removal of items in one leaf.
    /// Looks first where the thread's fingers are, and leaves a finger.
    pub(crate) fn find_beside(&self, host: &dyn CowHost, key: &Key, intent: Intent) -> Result<(Path, bool)> {
        if !self.has_fingers() {
            return self.find(host, key, intent);
        }
        if let Some(found) = self.find_by_finger(host, key, intent) {
            return Ok(found);
        }
        let (path, found) = self.find(host, key, intent)?;
        let others_follow = found == (intent == Intent::Overwrite);
        if let (NodeGuard::Write(leaf), true) = (path.node(0), others_follow)
            && let Some(finger) = Finger::on(leaf, path.behind)
        {
            self.fingers.put(finger);
        }
        Ok((path, found))
    }

    fn find_by_finger(&self, host: &dyn CowHost, key: &Key, intent: Intent) -> Option<(Path, bool)> {
        let finger = self.fingers.on(key)?;
        let behind = finger.behind();
        let leaf = finger.lock(self.hold(0, LevelPosition::OnTheWay, Wait::Yes))?;
        let block = leaf.block();
        let first = block.first_key()?;
        let inserts = intent.room() > 0;
        let is_here = first < *key || !inserts && first == *key;
        if !is_here
            || block.free_space() < intent.room()
            || self.needs_copy(leaf.buffer(), block, host.generation())
        {
            return None;
        }
        self.count(|counters| &counters.searches);
        let (slot, found) = if inserts {
            self.count(|counters| &counters.insertions);
            self.count(|counters| &counters.finger);
            self.observe(key, false);
            self.search_above_slot_zero(block, key)
        } else {
            self.count(|counters| &counters.removals_by_finger);
            position(block, key, 0)
        };
        let mut path = Path::default();
        path.behind = behind;
        path.slots[0] = slot;
        path.set(0, NodeGuard::Write(leaf));
        Some((path, found))
    }

    fn descend(
        &self,
        host: &dyn CowHost,
        key: &Key,
        intent: Intent,
        write_level: usize,
        path: &mut Path,
    ) -> Result<SearchStep> {
        let mut level = self.lock_root(path, write_level);
        path.behind = None;
        loop {
            if self.needs_copy(path.node(level).buffer(), path.block(level), host.generation()) {
                // The parent is always held here: only the levels above it were unlocked.
                let parent_ready = !path.holds(level + 1) || path.holds_write(level + 1);
                if level > write_level || !parent_ready {
                    return Ok(SearchStep::Raise(level + 1));
                }
                let at = path.block(level).logical();
                match self.copy_on_write(host, path, level) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        return Ok(SearchStep::Missing(Missing::References(
                            at,
                            u8::try_from(level).expect("a level"),
                        )));
                    }
                    copied => copied?,
                }
            }
            if level == 0 {
                if changes_read_locked_parents(path, key, intent) {
                    return Ok(SearchStep::Raise(1));
                }
                return self.leaf_step(host, key, intent, path).map(SearchStep::Done);
            }
            path.slots[level] = child_slot(path.block(level), key);
            match self.prepare_node(host, key, intent, write_level, path, level)? {
                Prepared::Ready => {}
                Prepared::Raise => return Ok(SearchStep::Raise(level + 1)),
                Prepared::Missing(missing) => return Ok(SearchStep::Missing(missing)),
                Prepared::RootGone => {
                    level -= 1;
                    continue;
                }
            }
            path.note_behind(level);
            let lowers = match intent {
                Intent::Insert(_) | Intent::Extend(_) => *key < path.block(level).key(0),
                Intent::Rekey => true,
                Intent::Overwrite | Intent::Delete => false,
            };
            path.unlock_up(level, intent.lowest_unlock(), lowers);
            let slot = path.slots[level];
            let want = self.expected_child(path.block(level), slot);
            let Some(child) = self.store.cached(want.logical) else {
                return Ok(SearchStep::Missing(Missing::Block(want)));
            };
            self.check_level(path.block(level), slot, child.level())?;
            level -= 1;
            let held = self.hold(child.level(), LevelPosition::OnTheWay, Wait::Yes);
            let guard = if level <= write_level {
                NodeGuard::Write(child.write_as(held))
            } else {
                NodeGuard::Read(child.lock_shared(held, Wait::Yes)?)
            };
            self.check_child(path.block(level + 1), slot, guard.block())?;
            path.set(level, guard);
        }
    }

    /// Locks the root block, and makes sure that it still is the root. Returns its level.
    fn lock_root(&self, path: &mut Path, write_level: usize) -> usize {
        loop {
            let buffer = self.root_buffer();
            let level = usize::from(buffer.level());
            let held = self.hold(buffer.level(), LevelPosition::OnTheWay, Wait::Yes);
            let guard = if level <= write_level {
                NodeGuard::Write(buffer.write_as(held))
            } else {
                NodeGuard::Read(buffer.lock_shared(held, Wait::Yes).expect("waiting is allowed"))
            };
            if self.is_root(guard.buffer()) {
                path.set(level, guard);
                return level;
            }
        }
    }

    /// Splits or merges the inner node at `level` if the change below may need it, and asks for the stronger
    /// locks for that. A split may move the path to the new node or add a root above.
    fn prepare_node(
        &self,
        host: &dyn CowHost,
        key: &Key,
        intent: Intent,
        write_level: usize,
        path: &mut Path,
        level: usize,
    ) -> Result<Prepared> {
        if level > write_level {
            // Nothing changes here, or the level below asks for more.
            return Ok(Prepared::Ready);
        }
        let weak = level == write_level;
        match intent {
            Intent::Insert(_) | Intent::Extend(_) => {
                if path.block(level).count() + SPARE_POINTERS >= self.pointers_max() {
                    if weak {
                        return Ok(Prepared::Raise);
                    }
                    self.split_node(host, path, level)?;
                }
                // A key smaller than all others becomes the first key of every block up to the root.
                if weak && path.holds(level + 1) && *key < path.block(level).key(0) {
                    return Ok(Prepared::Raise);
                }
            }
            Intent::Delete => {
                if self.is_thin(path, level) {
                    if weak {
                        return Ok(Prepared::Raise);
                    }
                    match self.merge_node(host, path, level)? {
                        Merged::Node => {}
                        Merged::Root => return Ok(Prepared::RootGone),
                        Merged::Missing(missing) => return Ok(Prepared::Missing(missing)),
                    }
                    path.slots[level] = child_slot(path.block(level), key);
                }
            }
            Intent::Rekey => {
                // The first key below slot 0 may become smaller, and that climbs.
                if weak && path.slots[level] == 0 && path.holds(level + 1) {
                    return Ok(Prepared::Raise);
                }
            }
            Intent::Overwrite => {}
        }
        Ok(Prepared::Ready)
    }

    pub(crate) fn pointers_max(&self) -> usize {
        creamery_format::node_ptr_max(self.store.volume().node_size() as usize)
    }
}

/// Whether an insertion at the path's leaf changes its parents, too, while they are locked only for reading: a split gives them a pointer, and a key that is
/// smaller than theirs lowers it.
fn changes_read_locked_parents(path: &Path, key: &Key, intent: Intent) -> bool {
    let leaf = path.block(0);
    let climbs = || leaf.free_space() < intent.room() || path.is_below_low_key(key);
    intent.room() > 0 && path.holds(1) && !path.holds_write(1) && climbs()
}
