//! Removing many items with handles of sufficient promises.

use creamery_base::{TreeId, Wait};
use creamery_format::Key;
use creamery_txn::{Engine, ReserveItems};

/// Leaves that one handle changes, at least a third full.
const LEAVES: usize = 16;

/// Removes the items from `first` to `last` from the top level's tree.
pub(crate) fn remove_in_steps(engine: &Engine, first: &Key, last: &Key, visit: &mut dyn FnMut(&Key, &[u8])) {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let third = tree.max_item_size() / 3;
    loop {
        let (mut bytes, mut end) = (0, None);
        let mut cursor = tree.cursor(first, Wait::Yes).expect("a cursor");
        while let Some((key, data)) = cursor.item().filter(|(key, _)| bytes < LEAVES * third && key <= last) {
            bytes += data.len() + creamery_format::ITEM_LEN;
            end = Some(key);
            cursor.advance().expect("the next item");
        }
        drop(cursor);
        let Some(end) = end else { return };
        let leaves = u32::try_from(2 + bytes / third).expect("few");
        let handle = engine.start(ReserveItems::freeing(leaves)).expect("room");
        let mut visit = |key: &Key, data: &[u8]| {
            visit(key, data);
            Ok(())
        };
        tree.remove_range(&handle, first, &end, &mut visit).expect("room");
        handle.end();
    }
}
