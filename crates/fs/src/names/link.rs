//! Adding a name to an inode.

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};
use creamery_format::LINK_MAX;
use creamery_format::dir_item::Head;
use creamery_txn::ReserveItems;

use super::Names;
use super::create::check_may_add;
use crate::directory::{self, EntryTarget};
use crate::inode::InodeItem;
use crate::inode::attributes::Attributes;
use crate::inode::guards::Guards;
use crate::inode::permission::check_not_append_only;
use crate::items::{Name, inode_ref};
use crate::keys;
use crate::operation::{finish, or_end};
use crate::subvolume::orphan_item;

fn check_may_link(target: &InodeItem, linkable: bool) -> Result<()> {
    if target.is_dir() {
        return Err(Error::new(ErrorKind::PermissionDenied, "hard link not allowed for directory"));
    }
    check_not_append_only(target)?;
    if target.nlink == 0 && !linkable {
        return Err(ErrorKind::NotFound.into());
    }
    if target.nlink >= LINK_MAX {
        return Err(ErrorKind::TooManyLinks.into());
    }
    Ok(())
}

impl Names {
    /// Gives the inode `target` the name `name` in `dir`.
    pub(crate) fn link(&self, target: InodeId, dir: InodeId, name: &[u8]) -> Result<Attributes> {
        let name = Name::to_make(name)?;
        if target.subvolume != dir.subvolume {
            return Err(ErrorKind::CrossDevice.into());
        }
        if dir.ino == keys::EMPTY_SUBVOLUME_DIR || target.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let dir = self.dir_to_change(dir)?;
        let target = self.inodes.get(target, Wait::Yes)?;
        let guards = Guards::lock(&[&dir, &target])?;
        let dir = check_may_add(&dir, guards.item(dir.id))?;
        let slot = directory::find(dir.tree(), dir.id, name, Wait::Yes)?;
        if slot.found.is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        check_may_link(guards.item(target.id), target.is_linkable())?;
        slot.check_room(dir.tree(), name)?;
        let index = directory::next_index(&dir)?;
        let now = self.engine().env().now();
        let handle = self.engine().start(ReserveItems::items(7).of(dir.id.subvolume))?;
        let running = handle.generation();

        let was_nameless = guards.item(target.id).nlink == 0;
        let dir_item = guards.item(dir.id);
        let size = dir_item.size.saturating_add(name.size_in_directory());
        let head = Head {
            location: EntryTarget::Inode(target.id.ino).location(),
            transid: running,
            kind: target.kind(),
        };

        // The reference first: it may fail, and then nothing has changed.
        let (handle, ()) = or_end(handle, |handle| {
            inode_ref::add(handle, dir.tree(), target.id.ino, dir.id.ino, (index, name), self.extrefs)
        })?;
        let done = (|| {
            directory::add_item(&handle, &dir, name, &head)?;
            directory::add_index(&handle, &dir, index, name, &head)?;
            if was_nameless {
                let had_orphan = orphan_item::remove(&handle, dir.tree(), target.id.ino)?;
                assert!(had_orphan, "ORPHAN-1: inode {} had no name", target.id);
            }
            dir.update_later(&handle, |item| directory::touch(item, size, now))?;
            self.engine().logs().give_up_of(&handle, target.id);
            target.update(&handle, |item| {
                item.nlink += 1;
                item.ctime = now;
            })
        })();
        let item = finish(handle, done)?;
        let attributes = Attributes::new(target.id, &item);
        dir.set_next_index(index + 1);
        if was_nameless {
            target.clear_linkable();
            self.table().keep(&target);
        }
        Ok(attributes)
    }
}
