//! Entries without a type, which only damaged filesystems have.

use creamery_base::{InodeId, Wait};
use creamery_format::{Key, KeyType};
use creamery_fs::Filesystem;
use creamery_txn::ReserveItems;

/// Takes the type out of both entries that lead to a name.
pub(crate) fn forget_type(fs: &Filesystem, dir: InodeId, name: &[u8]) {
    let tree = fs.engine().tree(dir.subvolume).expect("it is there");
    fs.sync().expect("entries that were put off are in the tree then");
    let mut keys = Vec::new();
    let mut cursor = tree.cursor(&Key::new(dir.ino, KeyType::DIR_ITEM, 0), Wait::Yes).expect("no damage");
    while let Some((key, item)) = cursor.item().filter(|(key, _)| key.objectid == dir.ino) {
        if key.kind <= KeyType::DIR_INDEX && item.ends_with(name) {
            keys.push(key);
        }
        cursor.advance().expect("no damage");
    }
    drop(cursor);
    assert_eq!(keys.len(), 2, "an entry by name and one by number");
    let handle = fs.engine().start(ReserveItems::items(2)).expect("room");
    for key in keys {
        // The type is the last byte in front of the name.
        let edit = |item: &mut [u8]| item[item.len() - name.len() - 1] = 0;
        tree.update(&handle, &key, edit).expect("no damage").expect("it was just there");
    }
    handle.end();
}
