//! Removing items, and merging the leaves that this leaves thin.

use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_format::{ITEM_LEN, Key};

use crate::buffer::WriteGuard;
use crate::host::CowHost;
use crate::path::Path;
use crate::search::Intent;
use crate::tree::Tree;

/// How often in a row a key that was just seen may be gone.
const MISSES_MAX: u32 = 64;

/// On which side of a leaf its sibling is.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

/// The sibling with which a leaf is going to be merged.
struct Partner {
    leaf: WriteGuard,
    side: Side,
}

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

    /// Removes `items` items at the path's slot; keeps the tree's invariants. What can fail comes first.
    pub(crate) fn remove_items(&self, host: &dyn CowHost, path: &mut Path, items: usize) -> Result<()> {
        let slot = path.slots[0];
        if !path.holds(1) {
            path.block_mut(0).remove_items(slot, items); // the root may be any size
            return Ok(());
        }
        let leaf = path.block(0);
        let gone: usize = (slot..slot + items).map(|slot| ITEM_LEN + leaf.item_size(slot)).sum();
        let left = leaf.used_space() - gone;
        let partner = if left > 0 && left < self.leaf_capacity() / 3 {
            self.merge_partner(host, path, left)?
        } else {
            None
        };
        path.block_mut(0).remove_items(slot, items);
        let Some(first) = path.block(0).first_key() else {
            self.count(|counters| &counters.leaf_merges);
            return self.remove_leaf(host, path);
        };
        if slot == 0 {
            self.fix_low_keys(path, 1, &first);
        }
        match partner {
            Some(partner) => self.merge_leaf(host, path, partner),
            None => Ok(()),
        }
    }

    /// A cached sibling of the path's leaf with room for what will be left there, write-locked and ours.
    fn merge_partner(&self, host: &dyn CowHost, path: &mut Path, left: usize) -> Result<Option<Partner>> {
        let (here, siblings) = (path.slots[1], path.block(1).count());
        let before = here.checked_sub(1).map(|slot| (slot, Side::Left));
        let behind = Some((here + 1, Side::Right)).filter(|(slot, _)| *slot < siblings);
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
        match side {
            Side::Left => {
                let at = leaf.block().count();
                leaf.block_mut().copy_items_from(at, path.block(0), 0, items);
                self.remove_leaf(host, path)
            }
            Side::Right => {
                let moved = leaf.block().count();
                path.block_mut(0).copy_items_from(items, leaf.block(), 0, moved);
                let slot = path.slots[1] + 1;
                path.block_mut(1).remove_ptrs(slot, 1);
                self.give_up(host, &leaf, true)
            }
        }
    }
}
