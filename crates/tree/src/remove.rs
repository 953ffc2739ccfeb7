//! Removing items, and merging the leaves that this leaves thin.

use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_format::{ITEM_LEN, Keep, Key};

use crate::host::CowHost;
use crate::path::Path;
use crate::search::Intent;
use crate::tree::Tree;

/// How often in a row a key that was just seen may be gone.
const MISSES_MAX: u32 = 64;

impl Tree {
    /// Removes the item at `key`; false when there is none.
    /// Errors: no space (for copies), device errors, damage.
    pub fn remove(&self, host: &dyn CowHost, key: &Key) -> Result<bool> {
        let (mut path, found) = self.find(host, key, Intent::Delete)?;
        if found {
            self.remove_items(host, &mut path, 1)?;
        }
        Ok(found)
    }

    /// Cuts an item's data down to its first or last `len` bytes; false when there is no such item.
    /// Errors: no space, device errors, damage.
    pub fn truncate_item(&self, host: &dyn CowHost, key: &Key, len: usize, keep: Keep) -> Result<bool> {
        let (mut path, found) = self.find(host, key, Intent::Overwrite)?;
        if found {
            let slot = path.slots[0];
            path.block_mut(0).shrink_item(slot, len, keep);
        }
        Ok(found)
    }

    /// Removes all items from `first` to `last`, both included, leaf by leaf; `each` sees every item before it
    /// goes and must not touch this tree. Returns how many went.
    /// Errors: those of `each`, no space, device errors, damage; items removed until then stay removed.
    pub fn remove_range(
        &self,
        host: &dyn CowHost,
        first: &Key,
        last: &Key,
        each: &mut dyn FnMut(&Key, &[u8]) -> Result<()>,
    ) -> Result<u64> {
        let (mut removed, mut misses) = (0, 0);
        loop {
            let next = self.cursor(first, Wait::Yes)?.item().map(|(key, _)| key);
            let Some(next) = next.filter(|key| key <= last) else { return Ok(removed) };
            let (mut path, found) = self.find(host, &next, Intent::Delete)?;
            if !found {
                // Somebody else removed it meanwhile; or its leaf holds keys that its parent looks for elsewhere.
                misses += 1;
                if misses > MISSES_MAX {
                    return Err(Error::new(
                        ErrorKind::Corrupt,
                        format!("tree {}: {next} is out of place", self.id()),
                    ));
                }
                continue;
            }
            misses = 0;
            let (block, slot) = (path.block(0), path.slots[0]);
            let mut items = 0;
            while slot + items < block.count() && block.key(slot + items) <= *last {
                each(&block.key(slot + items), block.data(slot + items))?;
                items += 1;
            }
            self.remove_items(host, &mut path, items)?;
            removed += items as u64;
        }
    }

    /// Removes `items` items at the path's slot; keeps the tree's invariants.
    fn remove_items(&self, host: &dyn CowHost, path: &mut Path, items: usize) -> Result<()> {
        let slot = path.slots[0];
        path.block_mut(0).remove_items(slot, items);
        if !path.holds(1) {
            return Ok(()); // the root may be any size
        }
        let Some(first) = path.block(0).first_key() else {
            self.count(|counters| &counters.leaf_merges);
            return self.remove_leaf(host, path);
        };
        if slot == 0 {
            self.fix_low_keys(path, 1, &first);
        }
        let capacity = self.max_item_size() + ITEM_LEN;
        if capacity - path.block(0).free_space() < capacity / 3 {
            self.merge_leaf(host, path)?;
        }
        Ok(())
    }

    /// Merges the path's thin leaf with a cached sibling that has the room.
    fn merge_leaf(&self, host: &dyn CowHost, path: &mut Path) -> Result<()> {
        let capacity = self.max_item_size() + ITEM_LEN;
        let used = capacity - path.block(0).free_space();
        let (items, parent_slot) = (path.block(0).count(), path.slots[1]);
        if path.block(1).count() < 2 {
            return Ok(());
        }
        if parent_slot > 0
            && let Ok(sibling) = self.child_buffer(path.block(1), parent_slot - 1, Wait::No)
        {
            let sibling = sibling.write();
            if sibling.block().free_space() >= used {
                let mut left = self.own_child(host, path, 0, parent_slot - 1, sibling)?;
                let at = left.block().count();
                left.block_mut().copy_items_from(at, path.block(0), 0, items);
                self.count(|counters| &counters.leaf_merges);
                return self.remove_leaf(host, path);
            }
        }
        if parent_slot + 1 < path.block(1).count()
            && let Ok(sibling) = self.child_buffer(path.block(1), parent_slot + 1, Wait::No)
        {
            let sibling = sibling.write();
            if capacity - sibling.block().free_space() + used <= capacity {
                let right = self.own_child(host, path, 0, parent_slot + 1, sibling)?;
                let moved = right.block().count();
                path.block_mut(0).copy_items_from(items, right.block(), 0, moved);
                path.block_mut(1).remove_ptrs(parent_slot + 1, 1);
                self.count(|counters| &counters.leaf_merges);
                return self.give_up(host, &right, true);
            }
        }
        Ok(())
    }
}
