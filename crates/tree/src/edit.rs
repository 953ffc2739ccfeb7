//! Changing items: insert, update, replace, grow, rekey. Each change holds the lock of the item's leaf from start to end, so a
//! reader sees the state before or after it.

use creamery_base::{Error, ErrorKind, Result};
use creamery_format::{ITEM_LEN, Keep, Key};

use crate::host::CowHost;
use crate::path::Path;
use crate::search::Intent;
use crate::tree::Tree;

impl Tree {
    /// Inserts an item.
    /// Errors: already exists; range (larger than a leaf); no space, device errors, damage.
    pub fn insert(&self, host: &dyn CowHost, key: &Key, data: &[u8]) -> Result<()> {
        self.check_size(key, data.len())?;
        let (mut path, found) = self.find(host, key, Intent::Insert(ITEM_LEN + data.len()))?;
        if found {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.put(&mut path, &[(*key, data)]);
        Ok(())
    }

    /// Inserts several items with ascending keys, between which the tree has no items. Takes one search if they need at most half
    /// a leaf and belong to the same leaf; else the others are inserted one by one.
    /// Errors: those of [`Tree::insert`]; items inserted before the failing one stay.
    pub fn insert_batch(&self, host: &dyn CowHost, items: &[(Key, &[u8])]) -> Result<()> {
        let Some((first, _)) = items.first() else { return Ok(()) };
        debug_assert!(items.is_sorted_by(|a, b| a.0 < b.0));
        let total: usize = items.iter().map(|(_, data)| ITEM_LEN + data.len()).sum();
        if total > self.max_item_size() / 2 {
            return items.iter().try_for_each(|(key, data)| self.insert(host, key, data));
        }
        let (mut path, found) = self.find_beside(host, first, Intent::Insert(total))?;
        if found {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let last = &items[items.len() - 1].0;
        let (block, slot) = (path.block(0), path.slots[0]);
        if slot < block.count() && block.key(slot) <= *last {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("an item at or before {last}")));
        }
        // The keys of the last items may belong to the next leaf, though it has no items there (`low_keys`).
        let (here, others) = items.split_at(items.partition_point(|(key, _)| path.ends_behind(key)));
        self.put(&mut path, here);
        drop(path);
        others.iter().try_for_each(|(key, data)| self.insert(host, key, data))
    }

    /// Changes an item's data in place. Returns `None` if there is no such item.
    /// Errors: no space (for a copy of the leaf), device errors, damage.
    pub fn update<R>(
        &self,
        host: &dyn CowHost,
        key: &Key,
        edit: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<Option<R>> {
        let (mut path, found) = self.find(host, key, Intent::Overwrite)?;
        if !found {
            return Ok(None);
        }
        let slot = path.slots[0];
        Ok(Some(edit(path.block_mut(0).data_mut(slot))))
    }

    /// Inserts an item, or replaces the data of an existing one.
    /// Errors: range (larger than a leaf); no space, device errors, damage.
    pub fn upsert(&self, host: &dyn CowHost, key: &Key, data: &[u8]) -> Result<()> {
        self.check_size(key, data.len())?;
        let (mut path, found) = self.find(host, key, Intent::Overwrite)?;
        if !found {
            drop(path);
            return self.insert(host, key, data);
        }
        let old = path.block(0).item_size(path.slots[0]);
        if data.len() > old {
            drop(path);
            return self.replace(host, key, old, data);
        }
        set_data(&mut path, data);
        Ok(())
    }

    /// Replaces the data of an item that has `old` bytes, with one search. No other thread may change the item.
    /// Errors: range (larger than a leaf); no space, device errors; damage (the item is missing because leaves overlap).
    pub fn replace(&self, host: &dyn CowHost, key: &Key, old: usize, data: &[u8]) -> Result<()> {
        self.check_size(key, data.len())?;
        let more = data.len().saturating_sub(old);
        let intent = if more > 0 { Intent::Extend(more) } else { Intent::Overwrite };
        let (mut path, found) = self.find(host, key, intent)?;
        if !found || path.block(0).item_size(path.slots[0]) != old {
            return Err(Error::new(ErrorKind::Corrupt, format!("tree {}: item {key} is missing", self.id())));
        }
        if more > 0 {
            let slot = path.slots[0];
            path.block_mut(0).grow_item(slot, more);
        }
        set_data(&mut path, data);
        Ok(())
    }

    /// Appends to an item's data. Returns false if there is no such item.
    /// Errors: range (the item would not fit into a leaf); no space, device errors, damage.
    pub fn extend(&self, host: &dyn CowHost, key: &Key, more: &[u8]) -> Result<bool> {
        let (mut path, found) = self.find(host, key, Intent::Extend(more.len()))?;
        if found {
            append(&mut path, more);
        }
        Ok(found)
    }

    /// Changes an item's data, and its key to one that keeps its place among its neighbours. Returns false if there is
    /// no such item.
    /// Errors: damage (also if the new key would pass a neighbour); no space, device errors.
    pub fn rekey(
        &self,
        host: &dyn CowHost,
        key: &Key,
        new: &Key,
        edit: impl FnOnce(&mut [u8]),
    ) -> Result<bool> {
        let intent = if new < key { Intent::Rekey } else { Intent::Overwrite };
        let Some(mut path) = self.find_for(host, new, &|| {
            let (path, found) = self.find(host, key, intent)?;
            if found {
                check_place(&path, key, new)?;
            }
            Ok(found.then_some(path))
        })?
        else {
            return Ok(false);
        };
        let slot = path.slots[0];
        edit(path.block_mut(0).data_mut(slot));
        self.set_key(&mut path, key, new);
        Ok(true)
    }

    /// Gives the item at the path's slot another key in the same place.
    pub(crate) fn set_key(&self, path: &mut Path, key: &Key, new: &Key) {
        let slot = path.slots[0];
        path.block_mut(0).set_item_key(slot, new);
        if slot == 0 {
            path.lower_keys(new);
            if new < key {
                self.fingers.forget_all();
            }
        }
    }

    fn check_size(&self, key: &Key, len: usize) -> Result<()> {
        if len > self.max_item_size() {
            let most = self.max_item_size();
            let message = format!("item {key} has {len} bytes, expected at most {most}");
            return Err(Error::new(ErrorKind::Range, message));
        }
        Ok(())
    }

    /// Inserts items at the path's slot. The leaf has room for them.
    fn put(&self, path: &mut Path, items: &[(Key, &[u8])]) {
        let slot = path.slots[0];
        let sizes: smallvec::SmallVec<[(Key, usize); 8]> =
            items.iter().map(|(key, data)| (*key, data.len())).collect();
        let mut leaf = path.block_mut(0);
        leaf.insert_items(slot, &sizes);
        for (index, (_, data)) in items.iter().enumerate() {
            leaf.data_mut(slot + index).copy_from_slice(data);
        }
        if let (0, Some((first, _))) = (slot, items.first()) {
            path.lower_keys(first);
        }
    }
}

/// Replaces the data of the item at the path's slot by data of at most the same length.
fn set_data(path: &mut Path, data: &[u8]) {
    let slot = path.slots[0];
    let is_shorter = data.len() < path.block(0).item_size(slot);
    let mut leaf = path.block_mut(0);
    if is_shorter {
        leaf.shrink_item(slot, data.len(), Keep::Front);
    }
    leaf.data_mut(slot).copy_from_slice(data);
}

/// Appends to the item at the path's slot. The leaf has room for it.
pub(crate) fn append(path: &mut Path, more: &[u8]) {
    let slot = path.slots[0];
    let mut leaf = path.block_mut(0);
    leaf.grow_item(slot, more.len());
    let data = leaf.data_mut(slot);
    let old = data.len() - more.len();
    data[old..].copy_from_slice(more);
}

/// Checks that the item at the path's slot keeps its place under the key `new`. Callers shorten a range from its front or take
/// its middle out: the new key passes a neighbour only if ranges overlap on disk.
pub(crate) fn check_place(path: &Path, key: &Key, new: &Key) -> Result<()> {
    let (block, slot) = (path.block(0), path.slots[0]);
    let before = slot.checked_sub(1).map(|slot| block.key(slot)).filter(|before| before >= new);
    let behind = Some(slot + 1).filter(|&slot| slot < block.count()).map(|slot| block.key(slot));
    let Some(passed) = before.or(behind.filter(|behind| behind <= new)) else { return Ok(()) };
    let at = block.logical();
    let message =
        format!("block {at}, slot {slot}: item {key} would become {new}, past {passed}: the two overlap");
    Err(Error::new(ErrorKind::Corrupt, message))
}
