//! The entries of a directory in its tree.
//!
//! Every name has two items: a DIR_ITEM, found by the hash of the name, and a DIR_INDEX. The number of the DIR_INDEX grows with every new entry, and listings are in
//! its order. The number is also in the inode's reference to its directory, so a lookup by name finds it, too.
//!
//! # Invariants
//! - DIR-1: a directory's size is twice the sum of the lengths of its names.
//!   Shown by `what_was_committed_survives_every_power_cut`.
//! - DIR-2: index numbers start at 2 and are never used again while the directory has a later one; a position in a listing stays valid after any removal.
//!
//! # Locking
//! A thread that changes a directory has locked it exclusively.

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, Timespec, TreeId, Wait};
use creamery_format::dir_item::{self, HEADER_LEN, Head};
use creamery_format::{FileType, Key, KeyType};
use creamery_tree::Tree;
use creamery_txn::Handle;

use crate::delayed::DelayedEntry;
use crate::inode::{DirectoryInode, Inode, InodeItem};
use crate::items::Name;
use crate::keys;

/// The number of a directory's first entry: 0 and 1 are `.` and `..` in listings.
pub(crate) const FIRST_INDEX: u64 = 2;
/// The last number that an entry gets: the position behind it must be a number, too.
const LAST_INDEX: u64 = u64::MAX - 1;

/// The object that an entry points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryTarget {
    /// An inode of the same subvolume.
    Inode(ObjectId),
    /// The root directory of another subvolume.
    Subvolume(TreeId),
}

impl EntryTarget {
    /// The target of an entry with the key `location`.
    pub(crate) fn from_location(location: Key, dir: InodeId) -> Result<Self> {
        match location.kind {
            KeyType::INODE_ITEM => Ok(Self::Inode(location.objectid)),
            KeyType::ROOT_ITEM => Ok(Self::Subvolume(TreeId::from(location.objectid))),
            _ => Err(Error::new(ErrorKind::Corrupt, format!("directory {dir}: entry points to {location}"))),
        }
    }

    /// The target of the one entry in a DIR_INDEX item.
    pub(crate) fn of_entry(item: &[u8], dir: InodeId) -> Result<Self> {
        let missing = || Error::new(ErrorKind::Corrupt, format!("directory {dir}: an entry is empty"));
        let (entry, _) = dir_item::entries(item).next().ok_or_else(missing)??;
        Self::from_location(entry.location, dir)
    }

    /// The key to store in the entry.
    pub(crate) const fn location(self) -> Key {
        match self {
            Self::Inode(ino) => keys::inode_item(ino),
            Self::Subvolume(id) => keys::subvolume_location(id),
        }
    }
}

/// An entry that was found by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) target: EntryTarget,
    /// The file type in the entry.
    pub(crate) kind: FileType,
    /// Whether the DIR_ITEM has no other name.
    alone: bool,
}

/// The result of a lookup by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NameSlot {
    pub(crate) found: Option<Found>,
    /// Bytes of the DIR_ITEM that has the name, or would have it; 0 = there is none yet.
    item_len: usize,
}

impl NameSlot {
    /// Refuses a name that does not fit into a DIR_ITEM beside others with the same hash.
    pub(crate) fn check_room(&self, tree: &Tree, name: Name<'_>) -> Result<()> {
        if self.item_len + HEADER_LEN + name.bytes().len() <= tree.max_item_size() {
            Ok(())
        } else {
            Err(no_room())
        }
    }
}

fn no_room() -> Error {
    Error::new(ErrorKind::TooManyCollisions, "adding a name to a directory")
}

/// Looks `name` up in `dir`.
pub(crate) fn find(tree: &Tree, dir: InodeId, name: Name<'_>, wait: Wait) -> Result<NameSlot> {
    let key = keys::dir_item(dir.ino, name.bytes());
    let slot = tree.get(&key, wait, |item| {
        let found = match dir_item::find(item, name.bytes())? {
            Some((entry, place)) => Some(Found {
                target: EntryTarget::from_location(entry.location, dir)?,
                kind: entry.file_type().unwrap_or(FileType::Unknown),
                alone: place.len() == item.len(),
            }),
            None => None,
        };
        Ok(NameSlot { found, item_len: item.len() })
    })?;
    slot.unwrap_or(Ok(NameSlot { found: None, item_len: 0 }))
}

/// Adds the DIR_ITEM entry. It is the first change of an operation: if it fails, nothing has changed.
pub(crate) fn add_item(handle: &Handle<'_>, dir: &Inode, name: Name<'_>, head: &Head) -> Result<()> {
    let key = keys::dir_item(dir.id.ino, name.bytes());
    let item = dir_item::single(head, name.bytes());
    match dir.tree().insert(handle, &key, &item) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        other => return other,
    }
    if find(dir.tree(), dir.id, name, Wait::Yes)?.found.is_some() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    match dir.tree().extend(handle, &key, &item) {
        Ok(true) => Ok(()),
        Ok(false) => Err(lost(dir.id, &key)),
        Err(error) if error.kind() == ErrorKind::Range => Err(no_room()),
        Err(error) => Err(error),
    }
}

/// Inserts the DIR_INDEX item.
pub(crate) fn add_index(
    handle: &Handle<'_>,
    dir: &DirectoryInode<'_>,
    index: u64,
    name: Name<'_>,
    head: &Head,
) -> Result<()> {
    assert!((FIRST_INDEX..=LAST_INDEX).contains(&index), "DIR-2: {index} is no number of an entry");
    dir.insert_entry_later(handle, DelayedEntry { index, item: dir_item::single(head, name.bytes()) })
}

/// Removes both entries of `name`, which [`find`] found under the same guard.
pub(crate) fn remove(
    handle: &Handle<'_>,
    dir: &DirectoryInode<'_>,
    name: Name<'_>,
    index: u64,
) -> Result<()> {
    let key = keys::dir_item(dir.id.ino, name.bytes());
    let rest = dir.tree().get(&key, Wait::Yes, |item| dir_item::without(item, name.bytes()))?;
    match rest.transpose()?.flatten() {
        None => return Err(lost(dir.id, &key)),
        Some(rest) if rest.is_empty() => {
            dir.tree().remove(handle, &key)?;
        }
        Some(rest) => dir.tree().upsert(handle, &key, &rest)?,
    }
    remove_index(handle, dir, index)
}

/// Removes both entries of a name, given the result of [`find`] under the same guard.
pub(crate) fn remove_found(
    handle: &Handle<'_>,
    dir: &DirectoryInode<'_>,
    name: Name<'_>,
    found: &Found,
    index: u64,
) -> Result<()> {
    if !found.alone {
        return remove(handle, dir, name, index);
    }
    let key = keys::dir_item(dir.id.ino, name.bytes());
    if !dir.tree().remove(handle, &key)? {
        return Err(lost(dir.id, &key));
    }
    remove_index(handle, dir, index)
}

fn remove_index(handle: &Handle<'_>, dir: &DirectoryInode<'_>, index: u64) -> Result<()> {
    if dir.take_back_entry(index) {
        return Ok(());
    }
    let key = keys::dir_index(dir.id.ino, index);
    if dir.tree().remove_beside(handle, &key)? { Ok(()) } else { Err(lost(dir.id, &key)) }
}

/// Makes both entries of `name` point to another target.
pub(crate) fn redirect(
    handle: &Handle<'_>,
    dir: &DirectoryInode<'_>,
    name: Name<'_>,
    index: u64,
    head: &Head,
) -> Result<()> {
    let edit = |item: &mut [u8]| head.redirect(item, name.bytes());
    let in_tree = |key: Key| match dir.tree().update(handle, &key, edit)?.transpose()? {
        Some(true) => Ok(()),
        _ => Err(lost(dir.id, &key)),
    };
    in_tree(keys::dir_item(dir.id.ino, name.bytes()))?;
    let key = keys::dir_index(dir.id.ino, index);
    match dir.edit_delayed_entry(index, edit).transpose()? {
        None => in_tree(key),
        Some(true) => Ok(()),
        Some(false) => Err(lost(dir.id, &key)),
    }
}

fn lost(dir: InodeId, key: &Key) -> Error {
    Error::new(ErrorKind::Corrupt, format!("directory {dir}: {key} lacks an entry that other items have"))
}

/// The number for the next entry of `dir`. The caller has locked the directory exclusively, and notes the next number after that when the
/// entry is made.
/// Errors: too many links, when the numbers are used up; device errors; damage.
pub(crate) fn next_index(dir: &DirectoryInode<'_>) -> Result<u64> {
    let next = match dir.next_index() {
        0 => index_behind_last(dir)?,
        known => known,
    };
    if next > LAST_INDEX {
        let message = format!("directory {}: no free index number", dir.id);
        return Err(Error::new(ErrorKind::TooManyLinks, message));
    }
    dir.set_next_index(next);
    Ok(next)
}

fn index_behind_last(dir: &Inode) -> Result<u64> {
    let last = keys::dir_index(dir.id.ino, u64::MAX);
    let cursor = dir.tree().cursor_at_or_before(&last, Wait::Yes)?;
    Ok(match cursor.item() {
        Some((key, _)) if key.objectid == dir.id.ino && key.kind == KeyType::DIR_INDEX => {
            key.offset.saturating_add(1).max(FIRST_INDEX)
        }
        _ => FIRST_INDEX,
    })
}

/// The number of the entry `name` of `dir`, if only the directory has it: reads the entries one after the other.
pub(crate) fn index_of(dir: &DirectoryInode<'_>, name: Name<'_>) -> Result<u64> {
    let is_it = |item: &[u8]| dir_item::find(item, name.bytes()).map(|found| found.is_some());
    for entry in dir.delayed_entries(0, Wait::Yes)? {
        if is_it(&entry.item)? {
            return Ok(entry.index);
        }
    }
    let mut cursor = dir.tree().cursor(&keys::dir_index(dir.id.ino, 0), Wait::Yes)?;
    while let Some((key, item)) = cursor.item() {
        if key.objectid != dir.id.ino || key.kind != KeyType::DIR_INDEX {
            break;
        }
        if is_it(item)? {
            return Ok(key.offset);
        }
        cursor.advance()?;
    }
    Err(lost(dir.id, &keys::dir_item(dir.id.ino, name.bytes())))
}

/// Whether a directory has no entries.
pub(crate) fn is_empty(tree: &Tree, dir: ObjectId) -> Result<bool> {
    let cursor = tree.cursor(&Key::new(dir, KeyType::DIR_ITEM, 0), Wait::Yes)?;
    Ok(match cursor.item() {
        Some((key, _)) => key.objectid != dir || key.kind > KeyType::DIR_INDEX,
        None => true,
    })
}

/// Updates the size and times of a directory after an entry was added or removed.
pub(crate) fn touch(item: &mut InodeItem, size: u64, now: Timespec) {
    item.size = size;
    item.mtime = now;
    item.ctime = now;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_damaged_entry_stands_for_is_damage() {
        let dir = InodeId::new(TreeId::FS, ObjectId::FIRST_FREE);
        let of = |item: &[u8]| EntryTarget::of_entry(item, dir).map_err(|error| error.kind());
        let head = |location| Head { location, transid: 7.into(), kind: FileType::File };
        let name = Name::new(b"file").expect("a name");
        let whole = dir_item::single(&head(keys::inode_item(ObjectId::new(300))), name.bytes());
        assert_eq!(of(&whole), Ok(EntryTarget::Inode(ObjectId::new(300))));
        assert_eq!(of(&whole[..whole.len() - 1]), Err(ErrorKind::Corrupt));
        assert_eq!(of(&[]), Err(ErrorKind::Corrupt));
        let nowhere = dir_item::single(&head(keys::dir_index(ObjectId::new(300), 2)), name.bytes());
        assert_eq!(of(&nowhere), Err(ErrorKind::Corrupt));
    }
}
