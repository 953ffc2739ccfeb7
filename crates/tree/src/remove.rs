//! Removing items, and merging the leaves that become thin.
//!
//! Most removals change one leaf and no other block. Only the leaf says whether a removal does, so it begins with few locks and takes stronger ones as the
//! leaf needs them:
//!
//! | locks for writing | enough where |
//! |---|---|
//! | the leaf | other items stay in it, and it does not become thin |
//! | the leaf and its parent, prepared for losing a pointer, and more where the parent is thin | always: the leaf may be merged with a sibling, or removed |
//!
//! A leaf is thin if less than a third of it is used. The removal that makes a leaf thin merges it with a sibling in memory that has room. If no
//! sibling has, each removal that halves the rest tries again, and a sibling that becomes thin finds this leaf. So a removal in a leaf that stays thin
//! rarely looks at the siblings.

use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_format::{ITEM_LEN, Key};

use crate::buffer::WriteGuard;
use crate::division::Division;
use crate::host::CowHost;
use crate::path::Path;
use crate::search::Intent;
use crate::tree::Tree;

/// How often in a row a key that was just seen may be missing.
const MISSES_MAX: u32 = 64;

/// The searches of a removal, in ascending order of their locks.
const LOCKS: [Intent; 2] = [Intent::Overwrite, Intent::Delete];

/// A search for modification.
type Find = fn(&Tree, &dyn CowHost, &Key, Intent) -> Result<(Path, bool)>;

/// The outcome of removing a range in one leaf.
enum InLeaf {
    /// This many items were removed. The leaf has a later item behind the range, so the range ends here.
    All(u64),
    /// This many items were removed, up to the end of the leaf. The next leaf may have more.
    Some(u64),
}

/// The side of a leaf where its sibling is.
#[derive(Clone, Copy)]
enum SiblingSide {
    Left,
    Right,
}

/// The sibling for a merge.
struct Partner {
    leaf: WriteGuard,
    side: SiblingSide,
}

impl Tree {
    /// Removes the item at `key`. Returns false if there is none.
    /// Errors: no space (for copies), device errors, damage.
    pub fn remove(&self, host: &dyn CowHost, key: &Key) -> Result<bool> {
        self.remove_by(Self::find, host, key, &|_| true)
    }

    /// Removes the item at `key`, one of many in its leaf that this thread removes; false when there is none.
    /// Errors: those of [`Tree::remove`].
    pub fn remove_beside(&self, host: &dyn CowHost, key: &Key) -> Result<bool> {
        self.remove_by(Self::find_to_remove_beside, host, key, &|_| true)
    }

    /// Removes the item at `key` if `is` accepts its data. Returns false, and does nothing, if not, or if there is no item.
    /// Errors: those of [`Tree::remove`].
    pub(crate) fn remove_if(
        &self,
        host: &dyn CowHost,
        key: &Key,
        is: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.remove_by(Self::find, host, key, is)
    }

    fn remove_by(
        &self,
        find: Find,
        host: &dyn CowHost,
        key: &Key,
        is: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        for intent in LOCKS {
            let (mut path, found) = find(self, host, key, intent)?;
            if !found || !is(path.block(0).data(path.slots[0])) {
                return Ok(false);
            }
            if self.suffices(intent, &path, 1) {
                self.remove_items(host, &mut path, 1, intent)?;
                return Ok(true);
            }
        }
        unreachable!("the last locks are enough for each removal");
    }

    /// Finds a leaf by this thread's finger with the first locks, and from the root with stronger ones.
    fn find_to_remove_beside(&self, host: &dyn CowHost, key: &Key, intent: Intent) -> Result<(Path, bool)> {
        match intent {
            Intent::Overwrite => self.find_beside(host, key, intent),
            _ => self.find(host, key, intent),
        }
    }

    /// Removes all items from `first` to `last`, both included, leaf by leaf. Calls `each` with every item before its
    /// removal; `each` must not touch this tree. Returns the number of items.
    /// Errors: those of `each`, no space, device errors, damage; items removed until then stay removed.
    pub fn remove_range(
        &self,
        host: &dyn CowHost,
        first: &Key,
        last: &Key,
        each: &mut dyn FnMut(&Key, &[u8]) -> Result<()>,
    ) -> Result<u64> {
        let (mut removed, mut misses, mut next) = (0, 0, *first);
        loop {
            match self.remove_in_leaf(host, &next, last, each)? {
                InLeaf::All(items) => return Ok(removed + items),
                InLeaf::Some(items) if items > 0 => (removed, misses) = (removed + items, 0),
                // The leaf has no item behind the key; or another thread just removed the item; or the leaf holds keys that its parent
                // looks for elsewhere.
                InLeaf::Some(_) => misses += 1,
            }
            if misses > MISSES_MAX {
                let message = format!("tree {}: {next} is out of place", self.id());
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            let behind = self.cursor(first, Wait::Yes)?.item().map(|(key, _)| key);
            let Some(key) = behind.filter(|key| key <= last) else { return Ok(removed) };
            next = key;
        }
    }

    /// Removes the items from `first` to `last` that lie in the leaf where `first` is, or would be.
    /// Errors: those of `each`, no space, device errors, damage; nothing is removed then.
    fn remove_in_leaf(
        &self,
        host: &dyn CowHost,
        first: &Key,
        last: &Key,
        each: &mut dyn FnMut(&Key, &[u8]) -> Result<()>,
    ) -> Result<InLeaf> {
        for intent in LOCKS {
            let (mut path, _) = self.find_to_remove_beside(host, first, intent)?;
            let (leaf, slot) = (path.block(0), path.slots[0]);
            let items = (slot..leaf.count()).take_while(|slot| leaf.key(*slot) <= *last).count();
            let is_all = slot + items < leaf.count();
            let ended = |items| if is_all { InLeaf::All(items) } else { InLeaf::Some(items) };
            if items == 0 {
                return Ok(ended(0));
            }
            if self.suffices(intent, &path, items) {
                for slot in slot..slot + items {
                    each(&leaf.key(slot), leaf.data(slot))?;
                }
                self.remove_items(host, &mut path, items, intent)?;
                return Ok(ended(items as u64));
            }
        }
        unreachable!("the last locks are enough for each removal");
    }

    /// Whether a search with this intent has locked every block that the removal of `items` items at the path's slot changes.
    fn suffices(&self, intent: Intent, path: &Path, items: usize) -> bool {
        intent == Intent::Delete || items < path.block(0).count() && !self.becomes_thin(path, items)
    }

    /// Whether the path's leaf becomes thin without `items` items at its slot, or is thin already and halved once more.
    fn becomes_thin(&self, path: &Path, items: usize) -> bool {
        let thin = self.leaf_capacity() / 3;
        // How often a thin leaf was halved: 0 if it is not thin.
        let halved = |used: usize| if used < thin { 1 + (thin / used.max(1)).ilog2() } else { 0 };
        halved(used_without(path, items)) > halved(path.block(0).used_space())
    }

    /// Removes `items` items at the path's slot; the locks of `intent` must [suffice](Self::suffices). Keeps the tree's invariants: the steps that can
    /// fail come first.
    fn remove_items(&self, host: &dyn CowHost, path: &mut Path, items: usize, intent: Intent) -> Result<()> {
        let slot = path.slots[0];
        if !path.holds(1) {
            // A root may have any size, and without the parent's lock the removal changes only the leaf.
            path.block_mut(0).remove_items(slot, items);
            return Ok(());
        }
        let partner = match intent {
            Intent::Delete if self.becomes_thin(path, items) => {
                let left = used_without(path, items);
                if left > 0 { self.merge_partner(host, path, left)? } else { None }
            }
            _ => None,
        };
        path.block_mut(0).remove_items(slot, items);
        if path.block(0).count() == 0 {
            self.count(|counters| &counters.leaf_merges);
            return self.remove_leaf(host, path);
        }
        match partner {
            Some(partner) => self.merge_leaf(host, path, partner),
            None => Ok(()),
        }
    }

    /// Returns a cached sibling of the path's leaf with room for the rest of that leaf, write-locked and ours.
    fn merge_partner(&self, host: &dyn CowHost, path: &mut Path, left: usize) -> Result<Option<Partner>> {
        let (here, siblings) = (path.slots[1], path.block(1).count());
        let before = here.checked_sub(1).map(|slot| (slot, SiblingSide::Left));
        let behind = Some((here + 1, SiblingSide::Right)).filter(|(slot, _)| *slot < siblings);
        for (slot, side) in before.into_iter().chain(behind) {
            let Some(leaf) = self.cached_sibling(path, 0, slot)? else { continue };
            if leaf.block().free_space() >= left {
                let owned = self.own_sibling(host, path, slot, leaf)?;
                return Ok(owned.map(|leaf| Partner { leaf, side }));
            }
        }
        Ok(None)
    }

    /// Merges the path's thin leaf with its partner, into the left one of the two.
    fn merge_leaf(&self, host: &dyn CowHost, path: &mut Path, partner: Partner) -> Result<()> {
        self.count(|counters| &counters.leaf_merges);
        let items = path.block(0).count();
        let Partner { mut leaf, side } = partner;
        let before = Division::of(leaf.block(), path.block(0));
        match side {
            SiblingSide::Left => {
                let at = leaf.block().count();
                leaf.block_mut().copy_items_from(at, path.block(0), 0, items);
                before.check(Division::of_one(leaf.block()));
                self.remove_leaf(host, path)
            }
            SiblingSide::Right => {
                let moved = leaf.block().count();
                path.block_mut(0).copy_items_from(items, leaf.block(), 0, moved);
                before.check(Division::of_one(path.block(0)));
                let slot = path.slots[1] + 1;
                path.block_mut(1).remove_ptrs(slot, 1);
                self.give_up(host, &leaf, true)
            }
        }
    }
}

/// Returns the used bytes of the path's leaf without `items` items at its slot.
fn used_without(path: &Path, items: usize) -> usize {
    let (leaf, slot) = (path.block(0), path.slots[0]);
    let gone: usize = (slot..slot + items).map(|slot| ITEM_LEN + leaf.item_size(slot)).sum();
    leaf.used_space() - gone
}
