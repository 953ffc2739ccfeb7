//! Reading items of a tree, with no block held while they are worked on.

use creamery_base::{ObjectId, Result, Wait};
use creamery_format::{Key, KeyType};
use creamery_tree::Tree;

/// Number of items that are read at a time.
const ITEMS_AT_ONCE: usize = 128;

/// Calls `each` with the items from `first` to `last`, with no block held: it may change the tree, except the items still to come.
pub(super) fn each_item(
    tree: &Tree,
    first: Key,
    last: Key,
    each: &mut dyn FnMut(&Key, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut next = Some(first);
    while let Some(from) = next {
        let mut items = Vec::new();
        let mut cursor = tree.cursor(&from, Wait::Yes)?;
        while let Some((key, data)) = cursor.item().filter(|(key, _)| *key <= last) {
            items.push((key, data.to_vec()));
            if items.len() == ITEMS_AT_ONCE {
                break;
            }
            cursor.advance()?;
        }
        drop(cursor);
        next = items.last().filter(|_| items.len() == ITEMS_AT_ONCE).and_then(|(key, _)| key.next());
        items.iter().try_for_each(|(key, data)| each(key, data))?;
    }
    Ok(())
}

/// The first and the last key that items of this kind of an inode can have.
pub(super) const fn range_of(ino: ObjectId, kind: KeyType) -> (Key, Key) {
    (Key::new(ino, kind, 0), Key::new(ino, kind, u64::MAX))
}
