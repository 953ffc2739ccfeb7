//! Items of a tree, all at once, as far as they are not too many.

use creamery_base::{Result, Wait};
use creamery_format::Key;
use creamery_tree::Tree;

/// A key and its data.
pub(super) type Item = (Key, Vec<u8>);

/// The items from `first` to `last`; none when there are more than `most`.
pub(super) fn items(tree: &Tree, first: &Key, last: &Key, most: usize) -> Result<Option<Vec<Item>>> {
    let mut items = Vec::new();
    let mut cursor = tree.cursor(first, Wait::Yes)?;
    while let Some((key, data)) = cursor.item().filter(|(key, _)| key <= last) {
        if items.len() == most {
            return Ok(None);
        }
        items.push((key, data.to_vec()));
        cursor.advance()?;
    }
    Ok(Some(items))
}
