//! Inodes without a name: they stay while they are open, and are deleted after that.
//!
//! When the last name of an inode goes and the inode is not open, its items go in the same transaction. If it is open, or large,
//! it gets an orphan item instead. The object's `Drop` notes its id for the cleaner, which deletes the items in steps. A crash in
//! between leaves the orphan item, and the next first use of the subvolume gives the inode to the cleaner.
//!
//! # Invariants
//! - ORPHAN-1 (FS-2): an inode item with no links has an orphan item (`subvolume/orphan_item`).
//!   Shown by `what_was_committed_survives_every_power_cut`.
//! - ORPHAN-2: a deletion takes a bounded number of items per handle, from the end of the inode backwards; the inode item and the
//!   orphan item go last and together, so that a crash at any point leaves a state to continue from.
//!   Shown by `what_was_committed_survives_every_power_cut`, `a_device_full_of_data_can_be_emptied`.

use creamery_base::{Error, ErrorKind, InodeId, Logical, ObjectId, Result, Wait};
use creamery_format::{FileExtent, Key, KeyType};
use creamery_tree::{ReadAhead, Tree, Walk};
use creamery_txn::{Handle, ReserveItems};

use crate::data;
use crate::inode::{FileType, Inode, InodeItem};
use crate::keys;
use crate::operation::finish;
use crate::subvolume::{SubvolumeRef, orphan_item};

/// The most items of an inode that one handle deletes.
const ITEMS_AT_ONCE: usize = 16;
/// The most items of a handle when that does not fit: few enough for the space that is reserved for freeing space.
const ITEMS_WHEN_FULL: usize = 4;

/// The most leaves and references of an inode that is deleted with its last name, for the same reason; a larger inode goes to the
/// cleaner.
const UNITS_AT_ONCE: u32 = 14;

/// The most units that the deletion of neighbouring items changes: a leaf for each item, since leaves may be thin, with the reference
/// of an extent, and the leaves beside them.
const fn units_of(others: u32, extents: u32) -> u32 {
    2 + others + extents
}

/// The items of an inode that one handle can delete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FewItems {
    /// The key of the first one, or the key of the inode item if that is lower.
    pub(crate) first: Key,
    /// The number of leaves with these items, and of references of extents in them, at most.
    pub(crate) units: u32,
}

/// The items of an inode, if they are few.
pub(crate) fn few_items(tree: &Tree, ino: ObjectId) -> Result<Option<FewItems>> {
    let (mut others, mut extents, mut first) = (0, 0, None);
    let mut cursor = tree.cursor(&keys::first_of(ino), Wait::Yes)?;
    for _ in 0..=ITEMS_AT_ONCE {
        match cursor.item() {
            Some((key, _)) if key.objectid == ino => {
                first.get_or_insert(key);
                let count = if key.kind == KeyType::EXTENT_DATA { &mut extents } else { &mut others };
                *count += 1;
            }
            _ => {
                let (inode_item, units) = (keys::inode_item(ino), units_of(others, extents));
                let first = first.map_or(inode_item, |first| first.min(inode_item));
                return Ok(Some(FewItems { first, units }).filter(|few| few.units <= UNITS_AT_ONCE));
            }
        }
        cursor.advance()?;
    }
    Ok(None)
}

/// Removes the items of an inode from `first` on, and drops the references to their extents.
pub(crate) fn purge(handle: &Handle<'_>, tree: &Tree, id: InodeId, first: &Key) -> Result<()> {
    tree.remove_range(handle, first, &keys::last_of(id.ino), &mut |key, item| {
        if key.kind == KeyType::EXTENT_DATA {
            drop_reference(handle, id, key, item)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Drops the reference to the extent of a file extent item.
fn drop_reference(handle: &Handle<'_>, id: InodeId, key: &Key, item: &[u8]) -> Result<()> {
    let damaged = |what: String| Error::new(ErrorKind::Corrupt, format!("file extent {key}: {what}"));
    let parsed = FileExtent::parse(item).map_err(|damage| damaged(damage.to_string()))?;
    if let FileExtent::Regular(extent) | FileExtent::Prealloc(extent) = parsed
        && !extent.is_hole()
    {
        let start = Logical::new(extent.disk_bytenr.get());
        let offset = key.offset.wrapping_sub(extent.offset.get());
        handle.drop_data_ref(start, extent.disk_num_bytes.get(), id, offset);
    }
    Ok(())
}

/// The progress of a deletion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeletionProgress {
    /// Items are left, with `nbytes` bytes of data.
    Partly {
        nbytes: u64,
    },
    Wholly,
}

/// The last items of an inode, for one handle to delete.
struct LastItems {
    /// The key of the first of them.
    first: Key,
    /// How many there are.
    count: usize,
    /// The number of leaves with these items, and of references of extents in them, at most.
    units: u32,
}

impl LastItems {
    /// The last `most` items or fewer; `None` if the inode has none.
    fn find(tree: &Tree, ino: ObjectId, most: usize) -> Result<Option<Self>> {
        let walk = Walk::new(Wait::Yes, ReadAhead::Back).within(ino);
        let mut cursor = tree.cursor_at_or_before(&keys::last_of(ino), walk)?;
        let (mut first, mut others, mut extents) = (None, 0, 0);
        for _ in 0..most {
            match cursor.item() {
                Some((key, _)) if key.objectid == ino => {
                    first = Some(key);
                    let count = if key.kind == KeyType::EXTENT_DATA { &mut extents } else { &mut others };
                    *count += 1;
                }
                _ => break,
            }
            if !cursor.retreat()? {
                break;
            }
        }
        let (count, units) = ((others + extents) as usize, units_of(others, extents));
        Ok(first.map(|first| Self { first, count, units }))
    }
}

/// Deletes items of an inode without a name and a user, in one handle: the end of its data, or else the last of its items, maybe
/// all.
/// Errors: no space; damage; aborted.
pub(crate) fn evict_some(subvolume: &SubvolumeRef, id: InodeId) -> Result<DeletionProgress> {
    match evict_last(subvolume, id, ITEMS_AT_ONCE) {
        Err(error) if error.kind() == ErrorKind::NoSpace => evict_last(subvolume, id, ITEMS_WHEN_FULL),
        done => done,
    }
}

/// Deletes at most `most` items of an inode, as [`evict_some`] does.
fn evict_last(subvolume: &SubvolumeRef, id: InodeId, most: usize) -> Result<DeletionProgress> {
    let context = subvolume.context();
    let tree = subvolume.tree();
    let corrupt = |what: &str| Error::new(ErrorKind::Corrupt, format!("inode {id}{what}"));
    let item = tree.get(&keys::inode_item(id.ino), Wait::Yes, InodeItem::decode)?.transpose()?;
    let item = item.filter(|item| item.nlink == 0);
    let (Some(item), Some(last)) = (item, LastItems::find(tree, id.ino, most)?) else {
        return Err(corrupt(": missing, after it lost its last name"));
    };
    assert!(last.count <= most, "ORPHAN-2, CLEAN-1: a bounded number of items");
    let wholly = last.first <= keys::inode_item(id.ino);
    if wholly && last.first != keys::inode_item(id.ino) {
        return Err(corrupt(": has items before its inode item"));
    }
    if !wholly && item.kind() == FileType::File {
        let inode = Inode::new(id, subvolume.clone(), item);
        // No other thread has an object that was just made. A caller that needs space may have other inodes locked, so this waits
        // for no inode.
        let mut locked = inode.try_lock_exclusive()?.expect("nobody else has it");
        inode.set_gone(); // dropping the object must not ask for this once more
        if let Some(generation) = data::drop_last(&inode.regular()?, locked.item_mut(), most)? {
            context.note_deleted(generation);
            return Ok(DeletionProgress::Partly { nbytes: locked.nbytes });
        }
    }
    let handle = context.engine().start(ReserveItems::reclaiming(last.units + 1).of(id.subvolume))?;
    context.note_deleted(handle.generation());
    let done = purge(&handle, tree, id, &last.first).and_then(|()| match wholly {
        true => orphan_item::remove(&handle, tree, id.ino).map(|_| DeletionProgress::Wholly),
        false => Ok(DeletionProgress::Partly { nbytes: 0 }),
    });
    finish(handle, done)
}
