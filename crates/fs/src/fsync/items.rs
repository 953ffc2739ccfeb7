//! Items of a tree, all at once, as far as they are not too many.

use creamery_base::{ObjectId, Result, Wait};
use creamery_format::file_extent::FileExtentItem;
use creamery_format::{Key, KeyType};
use creamery_tree::{Cursor, Tree};

use crate::keys::extent_data;

/// A key and its data.
pub(super) type LogItem = (Key, Vec<u8>);

/// The items from `first` to `last`; `None` when there are more than `most`.
pub(super) fn items(tree: &Tree, first: &Key, last: &Key, most: usize) -> Result<Option<Vec<LogItem>>> {
    collect(tree.cursor(first, Wait::Yes)?, last, most)
}

/// The items of extents that a file has in `[start, end)`, also in part; `None` when there are more than `most`.
pub(super) fn extents_over(
    tree: &Tree,
    ino: ObjectId,
    (start, end): (u64, u64),
    sector: u64,
    most: usize,
) -> Result<Option<Vec<LogItem>>> {
    let cursor = tree.cursor_at_or_before(&extent_data(ino, start), Wait::Yes)?;
    // The item before may be another than an extent of the file.
    let Some(mut items) = collect(cursor, &extent_data(ino, end - 1), most.saturating_add(1))? else {
        return Ok(None);
    };
    drop_others(&mut items, ino, start, sector)?;
    Ok((items.len() <= most).then_some(items))
}

/// Drops the first of some items when it is no extent of the file that reaches past `start`.
pub(super) fn drop_others(items: &mut Vec<LogItem>, ino: ObjectId, start: u64, sector: u64) -> Result<()> {
    if let Some((key, data)) = items.first() {
        let is_of_it = key.objectid == ino && key.kind == KeyType::EXTENT_DATA;
        if !is_of_it || end_of(key, data, sector)? <= start {
            items.remove(0);
        }
    }
    Ok(())
}

/// The end of an item's extent in its file.
pub(super) fn end_of(key: &Key, data: &[u8], sector: u64) -> Result<u64> {
    Ok(key.offset + FileExtentItem::check(key, data, sector)?.len(sector))
}

fn collect(mut cursor: Cursor<'_>, last: &Key, most: usize) -> Result<Option<Vec<LogItem>>> {
    let mut items = Vec::new();
    while let Some((key, data)) = cursor.item().filter(|(key, _)| key <= last) {
        if items.len() == most {
            return Ok(None);
        }
        items.push((key, data.to_vec()));
        cursor.advance()?;
    }
    Ok(Some(items))
}
