//! Inodes without a name: kept while they are open, deleted after.
//!
//! When the last name of an inode goes and nobody has it open, its items go in the same transaction. If somebody
//! has, or it is large, it gets an orphan item instead. The object's `Drop` notes its id for the
//! cleaner, which deletes the items in steps. A crash in between leaves the orphan item, and the subvolume's next first
//! use gives what it names to the cleaner.
//!
//! # Invariants
//! - ORPHAN-1 (FS-2): an inode item with no links has an orphan item (`subvolume/orphan_item`).
//!   Shown by `what_was_committed_survives_every_power_cut`.
//! - ORPHAN-2: deleting takes a bounded number of items per handle, from the end of the inode backwards; the inode
//!   item and the orphan item go last and together, so that a crash at any point leaves something to go on from.
//!   Shown by `what_was_committed_survives_every_power_cut`, `a_device_full_of_data_can_be_emptied`.

use creamery_base::{Error, ErrorKind, InodeId, Logical, ObjectId, Result, Wait};
use creamery_format::{FileExtent, Key, KeyType};
use creamery_tree::{ReadAhead, Tree, Walk};
use creamery_txn::{Handle, Units};

use crate::data;
use crate::inode::{FileType, Inode, InodeItem};
use crate::keys;
use crate::operation::finish;
use crate::subvolume::{SubvolumeRef, orphan_item};

/// Items of an inode that are deleted in one handle at most.
const ITEMS_AT_ONCE: usize = 16;
/// The same where there is no room for that: few enough for the room that only what frees space may take.
const ITEMS_WHEN_FULL: usize = 4;

/// Leaves and references of an inode that is deleted with its last name, for the same reason; a larger one is left to the
/// cleaner.
const UNITS_AT_ONCE: u32 = 14;

/// What the deletion of neighbouring items changes at most: a leaf for each, which may be thin and have no other, with the reference of an extent, and the
/// leaves beside them.
const fn units_of(others: u32, extents: u32) -> u32 {
    2 + others + extents
}

/// The items of an inode, which are so few that one handle deletes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FewItems {
    /// The key of the first one, or where the inode item is, if that is before it.
    pub(crate) first: Key,
    /// In how many leaves they lie, and how many references of extents they may hold.
    pub(crate) units: u32,
}

/// The items of an inode, when they are few.
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

/// Removes the items of an inode from `first` on, and gives up the extents they refer to.
pub(crate) fn purge(handle: &Handle<'_>, tree: &Tree, id: InodeId, first: &Key) -> Result<()> {
    tree.remove_range(handle, first, &keys::last_of(id.ino), &mut |key, item| {
        if key.kind == KeyType::EXTENT_DATA {
            drop_reference(handle, id, key, item)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Gives up the extent that a file extent item refers to.
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

/// How far an inode is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deleted {
    /// The items that are left hold so many bytes of data.
    Partly {
        nbytes: u64,
    },
    Wholly,
}

/// The last items of an inode, of which one handle deletes some.
struct LastItems {
    /// The key of the first of them.
    first: Key,
    /// How many they are.
    count: usize,
    /// In how many leaves they lie, and how many references of extents they may hold.
    units: u32,
}

impl LastItems {
    /// The last `most` or fewer; none when there is no item.
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

/// Deletes items of an inode that has no name and no user, in one handle: the end of its data, else the last of its
/// items, among which may be all.
/// Errors: no space; damage; aborted.
pub(crate) fn evict_some(subvolume: &SubvolumeRef, id: InodeId) -> Result<Deleted> {
    match evict_last(subvolume, id, ITEMS_AT_ONCE) {
        Err(error) if error.kind() == ErrorKind::NoSpace => evict_last(subvolume, id, ITEMS_WHEN_FULL),
        done => done,
    }
}

/// The same for at most so many items.
fn evict_last(subvolume: &SubvolumeRef, id: InodeId, most: usize) -> Result<Deleted> {
    let context = subvolume.context();
    let tree = subvolume.tree();
    let corrupt = |what: &str| Error::new(ErrorKind::Corrupt, format!("inode {id}{what}"));
    let item = tree.get(&keys::inode_item(id.ino), Wait::Yes, InodeItem::decode)?.transpose()?;
    let item = item.filter(|item| item.nlink == 0);
    let (Some(item), Some(last)) = (item, LastItems::find(tree, id.ino, most)?) else {
        return Err(corrupt(", which lost its last name: is not there"));
    };
    assert!(last.count <= most, "ORPHAN-2, CLEAN-1: a bounded number of items");
    let wholly = last.first <= keys::inode_item(id.ino);
    if wholly && last.first != keys::inode_item(id.ino) {
        return Err(corrupt(": has items before its inode item"));
    }
    if !wholly && item.kind() == FileType::File {
        let inode = Inode::new(id, subvolume.clone(), item);
        // Nobody else has an object that was just made, and whoever asks for space may have other inodes locked: this waits
        // for nobody.
        let mut locked = inode.try_lock_exclusive()?.expect("nobody else has it");
        inode.set_gone(); // dropping the object must not ask for this once more
        if let Some(generation) = data::drop_last(&inode.regular()?, locked.item_mut(), most)? {
            context.note_deleted(generation);
            return Ok(Deleted::Partly { nbytes: locked.nbytes });
        }
    }
    let handle = context.engine().start(Units::reclaiming(last.units + 1).of(id.subvolume))?;
    context.note_deleted(handle.generation());
    let done = purge(&handle, tree, id, &last.first).and_then(|()| match wholly {
        true => orphan_item::remove(&handle, tree, id.ino).map(|_| Deleted::Wholly),
        false => Ok(Deleted::Partly { nbytes: 0 }),
    });
    finish(handle, done)
}
