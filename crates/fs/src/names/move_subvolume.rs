//! A rename that moves a subvolume out of one subvolume into another.
//!
//! Its tree stays as it is: only its entry moves, and the references to its parent. No other rename crosses the border of a
//! subvolume.
//!
//! # Invariants
//! - MOVE-1: a subvolume never contains itself. The move checks the chain of subvolumes above the new place while no other thread
//!   moves or makes one. Shown by `a_subvolume_moves_into_another_but_never_into_itself`.

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, TreeId, Wait};
use creamery_format::dir_item::Head;
use creamery_format::{FileType, RootFlags};
use creamery_txn::ReserveItems;

use super::Names;
use super::create::check_may_add;
use super::rename::RenameMode;
use crate::directory::{self, EntryTarget, Found};
use crate::inode::guards::Guards;
use crate::inode::permission::{check_may_remove, check_not_append_only};
use crate::items::Name;
use crate::keys;
use crate::operation::finish;
use crate::subvolume::{Changing, SubvolumeEntry};

/// Items that change: each entry's two, both directories, and the references.
const ITEMS: u32 = 10;
/// The most nested subvolumes: more mean damage.
const DEPTH_MAX: usize = 1 << 16;

impl Names {
    /// Gives the subvolume called `name` in `from` the name `new_name` in `to`, which is in another subvolume. Anything else
    /// fails with EXDEV, and so does a subvolume that would replace an entry.
    pub(super) fn move_subvolume(
        &self,
        (from, name): (InodeId, Name<'_>),
        (to, new_name): (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        let elsewhere = || Error::new(ErrorKind::CrossDevice, "moving something out of its subvolume");
        let is_plain = matches!(mode, RenameMode::Replace | RenameMode::NoReplace);
        if !is_plain || to.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Err(elsewhere());
        }
        let called = self.subvolume_called(from, name).ok_or_else(elsewhere)?;
        let (from, to) = (self.dir_to_change(from)?, self.dir_to_change(to)?);
        let root = self.inodes.get(InodeId::new(called, ObjectId::FIRST_FREE), Wait::Yes)?;
        let guards = Guards::lock(&[&from, &to, &root])?;
        let from = check_may_remove(&from, guards.item(from.id))?;
        let to = check_may_add(&to, guards.item(to.id))?;
        let found = directory::find(from.tree(), from.id, name, Wait::Yes)?.found;
        let found = found.ok_or(ErrorKind::NotFound)?;
        let EntryTarget::Subvolume(id) = found.target else { return Err(elsewhere()) };
        if id != called {
            return Err(Error::new(ErrorKind::Busy, "the subvolume was renamed meanwhile"));
        }
        check_not_append_only(guards.item(root.id))?;
        self.check_may_move(id)?;
        let slot = directory::find(to.tree(), to.id, new_name, Wait::Yes)?;
        if slot.found.is_some() && mode == RenameMode::NoReplace {
            return Err(ErrorKind::AlreadyExists.into());
        }
        // One thread at a time: two could move into each other.
        let changing = self.subvolumes().changing();
        to.subvolume().check_not_dead()?;
        self.check_not_in_itself(&changing, to.id.subvolume, id)?;
        if let Some(other) = &slot.found {
            return Err(self.refusal_to_replace(to.id, other)?.unwrap_or_else(elsewhere));
        }
        slot.check_room(to.tree(), new_name)?;
        let old_index = self.subvolumes().index_of(from.id, name.bytes(), id)?;
        let index = directory::next_index(&to)?;
        let now = self.engine().env().now();
        let handle = self.engine().start(ReserveItems::items(ITEMS).of(to.id.subvolume))?;
        let done = (|| {
            let (location, kind) = (found.target.location(), FileType::Directory);
            let head = Head { location, transid: handle.generation(), kind };
            directory::add_item(&handle, &to, new_name, &head)?;
            directory::add_index(&handle, &to, index, new_name, &head)?;
            directory::remove_found(&handle, &from, name, &found, old_index)?;
            self.subvolumes().remove_refs(&handle, id, from.id.subvolume)?;
            let entry = SubvolumeEntry { dir: to.id, index, name: new_name.bytes() };
            self.subvolumes().insert_refs(&handle, id, &entry)?;
            self.engine().logs().give_up(&handle);
            let less = guards.item(from.id).size.saturating_sub(name.size_in_directory());
            from.update_later(&handle, |item| directory::touch(item, less, now))?;
            let more = guards.item(to.id).size.saturating_add(new_name.size_in_directory());
            to.update_later(&handle, |item| directory::touch(item, more, now)).map(drop)
        })();
        finish(handle, done)?;
        to.set_next_index(index + 1);
        self.known_directories.forget_all(&guards);
        Ok(())
    }

    /// Refuses to move a read-only subvolume to another directory, as Linux does: its `..` would change.
    pub(super) fn check_may_move(&self, id: TreeId) -> Result<()> {
        // Without opening it: inodes are locked.
        if self.engine().root_item(id)?.flags().contains(RootFlags::RDONLY) {
            return Err(Error::new(ErrorKind::ReadOnly, format!("subvolume {id} is read-only")));
        }
        Ok(())
    }

    /// The subvolume of an entry; `None` for any other entry, also for one that a snapshot copied.
    fn subvolume_called(&self, dir: InodeId, name: Name<'_>) -> Option<TreeId> {
        let dir = self.inodes.get(dir, Wait::Yes).ok()?;
        match directory::find(dir.tree(), dir.id, name, Wait::Yes).ok()?.found?.target {
            EntryTarget::Subvolume(id) => {
                Some(id).filter(|id| !self.is_stub(&dir, name, *id).unwrap_or(true))
            }
            EntryTarget::Inode(_) => None,
        }
    }

    /// The reason why a subvolume cannot replace an entry, as Linux reports it, if Linux has an error for that.
    fn refusal_to_replace(&self, dir: InodeId, other: &Found) -> Result<Option<Error>> {
        let EntryTarget::Inode(ino) = other.target else {
            return Ok(Some(ErrorKind::DirectoryNotEmpty.into()));
        };
        let other = self.inodes.get(InodeId::new(dir.subvolume, ino), Wait::Yes)?;
        if !other.is_dir() {
            return Ok(Some(ErrorKind::NotADirectory.into()));
        }
        let is_empty = directory::is_empty(other.tree(), ino)?;
        Ok((!is_empty).then(|| ErrorKind::DirectoryNotEmpty.into()))
    }

    /// Checks MOVE-1.
    fn check_not_in_itself(&self, _: &Changing<'_>, mut at: TreeId, moved: TreeId) -> Result<()> {
        for _ in 0..DEPTH_MAX {
            if at == moved {
                return Err(Error::invalid("moving a subvolume into itself"));
            }
            match self.subvolumes().parent_of(at, Wait::Yes)? {
                Some(parent) => at = parent.subvolume,
                None => return Ok(()),
            }
        }
        Err(Error::new(
            ErrorKind::Corrupt,
            format!("subvolume {at}: its parents do not lead to the top level"),
        ))
    }
}
