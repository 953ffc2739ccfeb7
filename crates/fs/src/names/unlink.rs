//! Removing names.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};
use creamery_txn::ReserveItems;
use smallvec::SmallVec;

use super::Names;
use super::losing_name::LosingName;
use crate::directory::{self, EntryTarget, Found};
use crate::inode::LOOKUP_ROUNDS_MAX;
use crate::inode::guards::Guards;
use crate::inode::permission::{check_may_remove, check_not_append_only};
use crate::inode::{DirectoryInode, FileType, Inode};
use crate::items::Name;
use crate::keys;
use crate::operation::finish;

/// The required kind of the inode that loses its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expect {
    NoDirectory,
    Directory,
}

/// An entry to remove, as it was found with its directory locked.
struct EntryToRemove<'a> {
    dir: DirectoryInode<'a>,
    name: Name<'a>,
    found: Found,
}

enum UnlinkRound {
    Done,
    /// The inode that could not be locked out of order.
    Again(Option<Arc<Inode>>),
}

impl Names {
    /// Removes the name `name` of an inode that is no directory.
    pub(crate) fn unlink(&self, dir: InodeId, name: &[u8]) -> Result<()> {
        self.remove_name(dir, Name::new(name)?, Expect::NoDirectory)
    }

    /// Removes the empty directory `name`.
    pub(crate) fn rmdir(&self, dir: InodeId, name: &[u8]) -> Result<()> {
        match self.remove_name(dir, Name::new(name)?, Expect::Directory) {
            // Without the directory's lock: the subvolume may have to be opened.
            Err(error) if error.kind() == ErrorKind::Unsupported => self.rmdir_subvolume(dir, name),
            removed => removed,
        }
    }

    fn remove_name(&self, dir: InodeId, name: Name<'_>, expect: Expect) -> Result<()> {
        if dir.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Err(ErrorKind::NotFound.into());
        }
        let dir = self.dir_to_change(dir)?;
        let mut known = None;
        for _ in 0..LOOKUP_ROUNDS_MAX {
            match self.remove_round(&dir, name, expect, known.as_ref())? {
                UnlinkRound::Again(inode) => known = inode,
                UnlinkRound::Done => {
                    drop(known);
                    self.cleaner.help();
                    return Ok(());
                }
            }
        }
        Err(Error::new(ErrorKind::Busy, "the name keeps changing"))
    }

    fn remove_round(
        &self,
        dir: &Arc<Inode>,
        name: Name<'_>,
        expect: Expect,
        known: Option<&Arc<Inode>>,
    ) -> Result<UnlinkRound> {
        let target;
        let inodes: SmallVec<[&Inode; 2]> =
            std::iter::once(&**dir).chain(known.map(|inode| &**inode)).collect();
        let mut guards = match Guards::lock(&inodes) {
            Err(error) if error.kind() == ErrorKind::Stale && known.is_some() => {
                return Ok(UnlinkRound::Again(None));
            }
            other => other?,
        };
        let dir = check_may_remove(dir, guards.item(dir.id))?;
        let found = directory::find(dir.tree(), dir.id, name, Wait::Yes)?.found.ok_or(ErrorKind::NotFound)?;
        target = self.inodes.get(target_id(&dir, &found, expect)?, Wait::Yes)?;
        if !guards.try_add(&target)? {
            drop(guards);
            return Ok(UnlinkRound::Again(Some(target)));
        }
        self.remove_locked(&EntryToRemove { dir, name, found }, &target, &guards, expect)?;
        drop(guards);
        let id = target.id;
        drop(target);
        self.table().forget_dead(id);
        Ok(UnlinkRound::Done)
    }

    fn remove_locked(
        &self,
        EntryToRemove { dir, name, found }: &EntryToRemove<'_>,
        target: &Arc<Inode>,
        guards: &Guards<'_>,
        expect: Expect,
    ) -> Result<()> {
        let item = guards.item(target.id);
        match (expect, item.is_dir()) {
            (Expect::NoDirectory, true) => return Err(ErrorKind::IsADirectory.into()),
            (Expect::Directory, false) => return Err(ErrorKind::NotADirectory.into()),
            _ => {}
        }
        check_not_append_only(item)?;
        if expect == Expect::Directory && !directory::is_empty(target.tree(), target.id.ino)? {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        let mut losing = LosingName::plan(self.table(), target, item, dir.id.ino, *name)?;
        let units = ReserveItems::freeing(3 + losing.units()).of(dir.id.subvolume);
        let handle = match self.engine().start(units) {
            Ok(handle) => handle,
            Err(error) => {
                losing.take_back(self.table());
                return Err(error);
            }
        };
        let now = self.engine().env().now();
        let dir_item = guards.item(dir.id);
        let size = dir_item.size.saturating_sub(name.size_in_directory());
        let removed = directory::remove_found(&handle, dir, *name, found, losing.link.index);
        if found.kind == FileType::Directory {
            self.known_directories.forget_all(guards);
        }
        let done = removed
            .and_then(|()| losing.apply(&handle, now))
            .and_then(|()| dir.update_later(&handle, |item| directory::touch(item, size, now)));
        finish(handle, done)?;
        losing.done();
        Ok(())
    }
}

fn target_id(dir: &Inode, found: &Found, expect: Expect) -> Result<InodeId> {
    match (found.target, expect) {
        (EntryTarget::Inode(ino), _) => Ok(InodeId::new(dir.id.subvolume, ino)),
        (EntryTarget::Subvolume(_), Expect::NoDirectory) => Err(ErrorKind::IsADirectory.into()),
        (EntryTarget::Subvolume(id), Expect::Directory) => {
            Err(Error::unsupported(format!("removing subvolume {id}")))
        }
    }
}
