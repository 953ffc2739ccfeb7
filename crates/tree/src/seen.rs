//! Changing items that several threads change in parts. The caller names the item as it last saw it. If another thread changed the
//! item meanwhile, nothing is done, the call returns false, and the caller looks again.
//!
//! Runs of checksums are such items: one thread frees an extent and cuts a run while another thread appends to it.

use creamery_base::Result;
use creamery_format::{ITEM_LEN, Keep, Key};

use crate::edit::{append, check_place};
use crate::host::CowHost;
use crate::path::Path;
use crate::search::Intent;
use crate::tree::Tree;

/// An item as a thread saw it under a lock that it has released.
///
/// ```
/// use creamery_base::ObjectId;
/// use creamery_format::{Key, KeyType};
/// let key = Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, 1 << 20);
/// assert_eq!(creamery_tree::SeenItem { key, len: 64 }.len, 64);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenItem {
    /// Its key.
    pub key: Key,
    /// Bytes of its data.
    pub len: usize,
}

impl Tree {
    /// Appends to an item's data. Returns false, and does nothing, if the item differs from `item`.
    /// Errors: range (the item would not fit into a leaf); no space, device errors, damage.
    pub fn extend_item(&self, host: &dyn CowHost, item: &SeenItem, more: &[u8]) -> Result<bool> {
        let Some(mut path) = self.find_seen(host, item, Intent::Extend(more.len()))? else {
            return Ok(false);
        };
        append(&mut path, more);
        Ok(true)
    }

    /// Cuts an item's data down to its first `len` bytes. Returns false, and does nothing, if the item differs from `item`.
    /// Errors: no space, device errors, damage.
    pub fn truncate_item(&self, host: &dyn CowHost, item: &SeenItem, len: usize) -> Result<bool> {
        assert!(len <= item.len, "an item is truncated to less than it has");
        let Some(mut path) = self.find_seen(host, item, Intent::Overwrite)? else { return Ok(false) };
        let slot = path.slots[0];
        path.block_mut(0).shrink_item(slot, len, Keep::Front);
        Ok(true)
    }

    /// Takes the middle out of an item: its first `front` bytes stay, and its last `back` bytes become the item `new`
    /// after it. Without a front, the item itself gets that key. No thread ever sees one part without the other.
    /// Returns false, and does nothing, if the item differs from `item`.
    /// Errors: damage (also if the new key would pass a neighbour); range (the item fills its leaf); no space; device
    /// errors.
    pub fn cut_item(
        &self,
        host: &dyn CowHost,
        item: &SeenItem,
        front: usize,
        new: &Key,
        back: usize,
    ) -> Result<bool> {
        assert!(back > 0, "without a back, the item is truncated");
        assert!(front + back <= item.len, "what is left of an item is no more than it was");
        let is_smaller = front == 0 && *new < item.key;
        let intent = if is_smaller { Intent::Rekey } else { Intent::Overwrite };
        let find = |intent| {
            self.find_for(host, new, &|| {
                let path = self.find_seen(host, item, intent)?;
                path.as_ref().map_or(Ok(()), |path| check_place(path, &item.key, new))?;
                Ok(path)
            })
        };
        let Some(mut path) = find(intent)? else { return Ok(false) };
        if front == 0 {
            let slot = path.slots[0];
            path.block_mut(0).shrink_item(slot, back, Keep::Back);
            self.set_key(&mut path, &item.key, new);
            return Ok(true);
        }
        if path.block(0).free_space() + item.len < front + back + ITEM_LEN {
            drop(path);
            let Some(roomier) = find(Intent::Extend(ITEM_LEN))? else { return Ok(false) };
            path = roomier;
        }
        let slot = path.slots[0];
        let behind = path.block(0).data(slot)[item.len - back..].to_vec();
        let mut leaf = path.block_mut(0);
        leaf.shrink_item(slot, front, Keep::Front);
        leaf.insert_items(slot + 1, &[(*new, back)]);
        leaf.data_mut(slot + 1).copy_from_slice(&behind);
        Ok(true)
    }

    /// Removes an item. Returns false, and does nothing, if the item differs from `item`.
    /// Errors: no space (for copies), device errors, damage.
    pub fn remove_item(&self, host: &dyn CowHost, item: &SeenItem) -> Result<bool> {
        self.remove_if(host, &item.key, &|data| data.len() == item.len)
    }

    /// Returns the path to an item, if it is as it was seen.
    fn find_seen(&self, host: &dyn CowHost, item: &SeenItem, intent: Intent) -> Result<Option<Path>> {
        let (path, found) = self.find(host, &item.key, intent)?;
        let same = found && path.block(0).item_size(path.slots[0]) == item.len;
        Ok(same.then_some(path))
    }
}
