//! Changing items of which others change parts, too: each change says what it takes the item to be, and nothing is done when
//! the item has become another one meanwhile. Who is told so looks again.
//!
//! Runs of checksums are such items: who frees an extent cuts one while somebody else appends to it.

use creamery_base::Result;
use creamery_format::{ITEM_LEN, Keep, Key};

use crate::edit::{append, check_place};
use crate::host::CowHost;
use crate::path::Path;
use crate::search::Intent;
use crate::tree::Tree;

/// An item as it was seen under a lock that was let go.
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
    /// Appends to an item's data; false, and nothing done, when it is not as it was seen.
    /// Errors: range (the item would not fit into a leaf); no space, device errors, damage.
    pub fn extend_item(&self, host: &dyn CowHost, item: &SeenItem, more: &[u8]) -> Result<bool> {
        let Some(mut path) = self.find_seen(host, item, Intent::Extend(more.len()))? else {
            return Ok(false);
        };
        append(&mut path, more);
        Ok(true)
    }

    /// Cuts an item's data down to its first `len` bytes; false, and nothing done, when it is not as it was seen.
    /// Errors: no space, device errors, damage.
    pub fn truncate_item(&self, host: &dyn CowHost, item: &SeenItem, len: usize) -> Result<bool> {
        assert!(len <= item.len, "an item is truncated to less than it has");
        let Some(mut path) = self.find_seen(host, item, Intent::Overwrite)? else { return Ok(false) };
        let slot = path.slots[0];
        path.block_mut(0).shrink_item(slot, len, Keep::Front);
        Ok(true)
    }

    /// Takes the middle out of an item: its first `front` bytes stay where they are, its last `back` ones stand under `new`
    /// then, behind it. Without a front, the item itself gets that key. Nobody ever sees one part without the other.
    /// False, and nothing done, when it is not as it was seen.
    /// Errors: the new key passes a neighbour, which is damage; range (the item fills its leaf); no space, device errors,
    /// damage.
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

    /// Removes an item; false, and nothing done, when it is not as it was seen.
    /// Errors: no space (for copies), device errors, damage.
    pub fn remove_item(&self, host: &dyn CowHost, item: &SeenItem) -> Result<bool> {
        self.remove_if(host, &item.key, &|data| data.len() == item.len)
    }

    /// The way to an item that is as it was seen.
    fn find_seen(&self, host: &dyn CowHost, item: &SeenItem, intent: Intent) -> Result<Option<Path>> {
        let (path, found) = self.find(host, &item.key, intent)?;
        let same = found && path.block(0).item_size(path.slots[0]) == item.len;
        Ok(same.then_some(path))
    }
}
