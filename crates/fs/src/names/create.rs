//! Creation of inodes, with a name or without one.
//!
//! A creation is two searches: the DIR_ITEM, and the items of the inode (side by side at the tree's end). The DIR_INDEX and the
//! INODE_ITEM of the directory are delayed until many can be written at once. The DIR_ITEM comes first: its insertion shows
//! whether the name is taken, and then nothing has changed yet.

use std::sync::Arc;

use creamery_base::{ErrorKind, InodeId, Result, Wait};
use creamery_format::dir_item::Head;
use creamery_txn::ReserveItems;

use super::Names;
use super::new_inode::{Draft, NewInode, NewKind};
use crate::data::FileContent;
use crate::directory::{self, EntryTarget};
use crate::inode::attributes::Attributes;
use crate::inode::permission::check_not_immutable;
use crate::inode::{DirectoryInode, Inode, InodeItem};
use crate::items::Name;
use crate::open_file::OpenFile;
use crate::operation::{finish, or_end};

/// The directory for a new entry; `item` is its item. Errors: it is no directory, is removed, or may not be changed.
pub(crate) fn check_may_add<'d>(dir: &'d Inode, item: &InodeItem) -> Result<DirectoryInode<'d>> {
    let dir = dir.as_directory().ok_or(ErrorKind::NotADirectory)?;
    if item.nlink == 0 {
        return Err(ErrorKind::NotFound.into());
    }
    check_not_immutable(item)?;
    Ok(dir)
}

impl Names {
    /// Makes a new inode called `name` in `dir`.
    pub(crate) fn create(&self, dir: InodeId, name: &[u8], new: &NewInode<'_>) -> Result<Attributes> {
        self.create_with(dir, name, new, None).map(|(attributes, _)| attributes)
    }

    /// Makes a new file called `name` in `dir`, and opens it: no thread can remove it in between.
    pub(crate) fn create_open(
        &self,
        dir: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(Attributes, Arc<OpenFile>)> {
        if new.kind != NewKind::File {
            return Err(creamery_base::Error::invalid("not a regular file"));
        }
        let (attributes, inode) = self.create_with(dir, name, new, None)?;
        Ok((attributes, Arc::new(OpenFile::new(Arc::clone(&self.inodes), inode))))
    }

    /// Makes a new file called `name` in `dir` that has `content` from the beginning. This is cheaper than a creation and a
    /// write, and after a crash the file has all of it or does not exist. The returned size is less than the content when free
    /// space is in very many pieces; [`write_at`](OpenFile::write_at) takes the rest.
    pub(crate) fn create_file_with(
        &self,
        dir: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
        content: &FileContent<'_>,
    ) -> Result<Attributes> {
        if new.kind != NewKind::File {
            return Err(creamery_base::Error::invalid("not a regular file"));
        }
        content.check()?;
        self.create_with(dir, name, new, Some(content)).map(|(attributes, _)| attributes)
    }

    fn create_with(
        &self,
        dir: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
        content: Option<&FileContent<'_>>,
    ) -> Result<(Attributes, Arc<Inode>)> {
        let name = Name::to_make(name)?;
        let dir = self.dir_to_change(dir)?;
        let subvolume = self.subvolumes().get(dir.id.subvolume, Wait::Yes)?;
        if dir.id.ino == crate::keys::EMPTY_SUBVOLUME_DIR {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let dir_item = dir.lock_exclusive()?;
        let dir = check_may_add(&dir, &dir_item)?;
        self.check_name_is_free(&dir, name)?;
        let now = self.engine().env().now();
        let mut draft = Draft::new(&dir, &dir_item, new, now)?;
        let index = directory::next_index(&dir)?;
        if let Some(content) = content {
            draft.write_content(dir.context(), dir.tree(), content)?;
        }
        let units = 3 + draft.item_count() + draft.content_units(self.engine());
        let handle = self.engine().start(ReserveItems::items(units).of(dir.id.subvolume))?;
        let running = handle.generation();
        let (handle, (id, head)) = or_end(handle, |handle| {
            let id = InodeId::new(dir.id.subvolume, subvolume.allocate_ino()?);
            let location = EntryTarget::Inode(id.ino).location();
            let head = Head { location, transid: running, kind: draft.kind() };
            directory::add_item(handle, &dir, name, &head)?;
            Ok((id, head))
        })?;
        let size = dir_item.size.saturating_add(name.size_in_directory());
        let done = directory::add_index(&handle, &dir, index, name, &head)
            .and_then(|()| draft.insert(&handle, dir.tree(), id.ino, Some((dir.id.ino, index, name))))
            .and_then(|()| dir.update_later(&handle, |item| directory::touch(item, size, now)));
        finish(handle, done)?;
        dir.set_next_index(index + 1);
        let attributes = Attributes::new(id, draft.item());
        Ok((attributes, draft.publish(self.table(), id, subvolume)))
    }

    /// Makes a file without a name in the subvolume of `dir`, and opens it (`O_TMPFILE`). Its last close deletes it, unless it
    /// gets a name before.
    pub(crate) fn tmpfile(&self, dir: InodeId, new: &NewInode<'_>) -> Result<(Attributes, Arc<OpenFile>)> {
        if new.kind != NewKind::File {
            return Err(creamery_base::Error::invalid("not a regular file"));
        }
        let dir = self.dir_to_change(dir)?;
        let subvolume = self.subvolumes().get(dir.id.subvolume, Wait::Yes)?;
        let dir_item = dir.lock_exclusive()?;
        let dir = check_may_add(&dir, &dir_item)?;
        let mut draft = Draft::new(&dir, &dir_item, new, self.engine().env().now())?;
        let units = ReserveItems::items(1 + draft.item_count()).of(dir.id.subvolume);
        let handle = self.engine().start(units)?;
        let (handle, id) = or_end(handle, |_| Ok(InodeId::new(dir.id.subvolume, subvolume.allocate_ino()?)))?;
        let done = draft.insert(&handle, dir.tree(), id.ino, None);
        finish(handle, done)?;
        let attributes = Attributes::new(id, draft.item());
        let inode = draft.publish(self.table(), id, subvolume);
        inode.set_linkable();
        Ok((attributes, Arc::new(OpenFile::new(Arc::clone(&self.inodes), inode))))
    }
}
