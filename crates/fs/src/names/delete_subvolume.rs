//! Deletion of a subvolume: its name and all references to it go at once, its tree goes in the background (`subvolume/dead`).

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, TreeId, Wait};
use creamery_txn::{Handle, ReserveItems};

use super::Names;
use crate::directory::{self, EntryTarget, Found};
use crate::inode::guards::Guards;
use crate::inode::permission::{check_may_remove, check_not_append_only};
use crate::inode::{DirectoryInode, Inode};
use crate::items::Name;
use crate::keys;
use crate::operation::finish;

/// Items that change: the entry's two and the directory, two references, the root item, the note for the drop, and its UUIDs.
const ITEMS: u32 = 10;

/// A subvolume that is deleted, by its entry.
struct DeletedEntry<'a> {
    id: TreeId,
    dir: DirectoryInode<'a>,
    name: Name<'a>,
    found: Found,
    /// The number of the entry.
    index: u64,
}

/// The allowed content of a subvolume that is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeletableContent {
    Any,
    /// No entries, as for rmdir(2).
    None,
}

impl Names {
    /// Deletes the subvolume called `name` in `dir`. No path leads to it then. Steps of the cleaner free its space when no file
    /// of it is open any more.
    pub(crate) fn delete_subvolume(
        &self,
        dir: InodeId,
        name: &[u8],
        content: DeletableContent,
    ) -> Result<TreeId> {
        let name = Name::new(name)?;
        if dir.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Err(ErrorKind::NotFound.into());
        }
        let dir = self.dir_to_change(dir)?;
        let (id, _) = find_subvolume(&dir, name)?;
        if self.is_stub(&dir, name, id)? {
            return Err(Error::invalid("not a subvolume, but an empty placeholder; rmdir removes it"));
        }
        // Opened before any lock is taken; in use it stays until it is deleted.
        let root = self.inodes.get(InodeId::new(id, ObjectId::FIRST_FREE), Wait::Yes)?;
        let guards = Guards::lock(&[&dir, &root])?;
        let dir = check_may_remove(&dir, guards.item(dir.id))?;
        check_not_append_only(guards.item(root.id))?;
        let (found_id, found) = find_subvolume(&dir, name)?;
        if found_id != id {
            return Err(Error::new(ErrorKind::Busy, "the subvolume was renamed meanwhile"));
        }
        if content == DeletableContent::None && !directory::is_empty(root.tree(), root.id.ino)? {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        let changing = self.subvolumes().changing();
        self.subvolumes().check_may_delete(id)?;
        let index = self.subvolumes().index_of(dir.id, name.bytes(), id)?;
        let deleted = DeletedEntry { id, dir, name, found, index };
        let handle = self.engine().start(ReserveItems::dropping(ITEMS).of(dir.id.subvolume))?;
        let done = self.remove_subvolume(&handle, &guards, &deleted);
        let deleted_in = handle.generation();
        finish(handle, done)?;
        self.subvolumes().retire(id, deleted_in);
        drop(changing);
        drop(guards);
        drop(root);
        self.table().doom_subvolume(id);
        self.cleaner.engine().background().wake();
        Ok(id)
    }

    /// Removes the directory called `name`, which is the root of an empty subvolume, or an empty directory in place of a
    /// subvolume.
    pub(crate) fn rmdir_subvolume(&self, dir: InodeId, name: &[u8]) -> Result<()> {
        let at = self.dir_to_change(dir)?;
        let entry = Name::new(name)?;
        let (id, _) = find_subvolume(&at, entry)?;
        if !self.is_stub(&at, entry, id)? {
            return self.delete_subvolume(dir, name, DeletableContent::None).map(drop);
        }
        let item = at.lock_exclusive()?;
        let at = check_may_remove(&at, &item)?;
        let (found_id, found) = find_subvolume(&at, entry)?;
        if found_id != id {
            return Err(Error::new(ErrorKind::Busy, "the directory was renamed meanwhile"));
        }
        let index = directory::index_of(&at, entry)?;
        let handle = self.engine().start(ReserveItems::freeing(3).of(dir.subvolume))?;
        let (now, size) = (self.engine().env().now(), item.size.saturating_sub(entry.size_in_directory()));
        self.engine().logs().give_up(&handle);
        let removed = directory::remove_found(&handle, &at, entry, &found, index)
            .and_then(|()| at.update_later(&handle, |item| directory::touch(item, size, now)));
        finish(handle, removed).map(drop)
    }

    /// Whether an entry of the subvolume `id` is a copy that a snapshot made, and not the subvolume's own entry.
    pub(super) fn is_stub(&self, dir: &Inode, name: Name<'_>, id: TreeId) -> Result<bool> {
        let found = self.subvolumes().resolve(dir.id, name.bytes(), id, Wait::Yes)?;
        Ok(found.ino == keys::EMPTY_SUBVOLUME_DIR)
    }

    fn remove_subvolume(
        &self,
        handle: &Handle<'_>,
        guards: &Guards<'_>,
        deleted: &DeletedEntry<'_>,
    ) -> Result<()> {
        let DeletedEntry { id, dir, name, found, index } = deleted;
        let now = self.engine().env().now();
        let size = guards.item(dir.id).size.saturating_sub(name.size_in_directory());
        // Logs do not record that a subvolume is gone, nor the new state of its directory.
        self.engine().logs().give_up(handle);
        directory::remove_found(handle, dir, *name, found, *index)?;
        self.known_directories.forget_all(guards);
        self.subvolumes().remove_refs(handle, *id, dir.id.subvolume)?;
        self.subvolumes().remove_uuids(handle, *id)?;
        handle.orphan_subvolume(*id)?;
        dir.update_later(handle, |item| directory::touch(item, size, now)).map(drop)
    }
}

/// The subvolume of an entry.
fn find_subvolume(dir: &Inode, name: Name<'_>) -> Result<(TreeId, Found)> {
    let found = directory::find(dir.tree(), dir.id, name, Wait::Yes)?.found.ok_or(ErrorKind::NotFound)?;
    match found.target {
        EntryTarget::Subvolume(id) => Ok((id, found)),
        EntryTarget::Inode(_) => Err(Error::invalid("not a subvolume")),
    }
}
