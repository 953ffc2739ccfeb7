//! Orphan items: they list the inodes of a subvolume that have no name.

use creamery_base::{ErrorKind, InodeId, ObjectId, Result, TreeId, Wait};
use creamery_format::{Key, KeyType};
use creamery_tree::Tree;
use creamery_txn::{Engine, Handle, ReserveItems};

use crate::items::InodeItem;
use crate::keys;
use crate::operation::in_handle;
use crate::verity;

/// Orphan items read at a time.
const ORPHANS_AT_ONCE: usize = 256;

/// Inserts the orphan item of `ino`, which has no name (ORPHAN-1).
pub(crate) fn insert(handle: &Handle<'_>, tree: &Tree, ino: ObjectId) -> Result<()> {
    tree.insert(handle, &keys::orphan(ino), &[])
}

/// Removes the orphan item of `ino`, which has a name again or is gone. Returns whether there was one.
pub(crate) fn remove(handle: &Handle<'_>, tree: &Tree, ino: ObjectId) -> Result<bool> {
    tree.remove(handle, &keys::orphan(ino))
}

/// Whether a subvolume has an orphan item.
pub(crate) fn any(tree: &Tree) -> Result<bool> {
    Ok(!orphans_from(tree, 0)?.is_empty())
}

/// The inodes without a name in subvolume `id`, with the bytes of their data. The caller makes sure that no thread can have one of them open.
///
/// Other orphan items are removed. They mark one of these:
/// - a truncation that an old kernel did not finish: nothing of it is left to do;
/// - a file that was being sealed with fs-verity: it is not sealed then;
/// - an inode that is gone.
pub(crate) fn find(engine: &Engine, id: TreeId, tree: &Tree) -> Result<Vec<(InodeId, u64)>> {
    let (mut from, mut dead) = (0, Vec::new());
    loop {
        let batch = orphans_from(tree, from)?;
        let Some(last) = batch.last() else { return Ok(dead) };
        from = last.get().saturating_add(1);
        for ino in batch {
            let item = tree.get(&keys::inode_item(ino), Wait::Yes, InodeItem::decode)?.transpose()?;
            match item {
                Some(item) if item.nlink == 0 => dead.push((InodeId::new(id, ino), item.nbytes)),
                item => match remove_stale(engine, ino, tree, item.as_ref()) {
                    // A stale item does no harm; a later call removes it when there is space.
                    Err(error) if error.kind() == ErrorKind::NoSpace => {}
                    done => done.map_err(|error| error.context(format!("removing orphan item {ino}")))?,
                },
            }
        }
    }
}

fn remove_stale(engine: &Engine, ino: ObjectId, tree: &Tree, item: Option<&InodeItem>) -> Result<()> {
    if item.is_some_and(|item| !verity::is_sealed(item)) {
        verity::remove_stale(engine, tree, ino)?;
    }
    in_handle(engine, ReserveItems::freeing(1).of(tree.id()), |handle| remove(handle, tree, ino).map(|_| ()))
}

fn orphans_from(tree: &Tree, from: u64) -> Result<Vec<ObjectId>> {
    let mut found = Vec::new();
    let mut cursor = tree.cursor(&Key::new(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM, from), Wait::Yes)?;
    while let Some((key, _)) = cursor.item() {
        if key.objectid != ObjectId::ORPHAN
            || key.kind != KeyType::ORPHAN_ITEM
            || found.len() >= ORPHANS_AT_ONCE
        {
            break;
        }
        found.push(ObjectId::new(key.offset));
        cursor.advance()?;
    }
    Ok(found)
}
