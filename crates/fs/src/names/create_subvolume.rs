//! A new subvolume is a tree with an empty root directory, an entry in a directory that points to it, the references between the
//! two in the root tree, and the UUID's entry in the UUID tree.

use std::sync::Arc;

use creamery_base::{Error, InodeId, ObjectId, QgroupId, Result};
use creamery_format::dir_item::Head;
use creamery_txn::ReserveItems;

use super::Names;
use super::create::check_may_add;
use super::new_inode::{Draft, NewInode, NewKind};
use crate::directory::{self, EntryTarget};
use crate::inode::FileType;
use crate::items::Name;
use crate::keys;
use crate::operation::{finish, or_end};
use crate::subvolume::{Subvolume, SubvolumeEntry};

/// How many items record that a new quota group is a member of `groups`: two for each.
pub(super) fn items_of_groups(groups: &[QgroupId]) -> u32 {
    u32::try_from(groups.len()).unwrap_or(u32::MAX / 4).saturating_mul(2)
}

impl Names {
    /// Makes a new subvolume called `name` in `dir`, in the quota groups `groups`; returns its root directory. `new` has the owner
    /// and mode of that.
    pub(crate) fn create_subvolume(
        &self,
        dir: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
        groups: &[QgroupId],
    ) -> Result<InodeId> {
        let name = Name::to_make(name)?;
        if new.kind != NewKind::Directory || dir.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Err(Error::invalid("subvolume root must be a directory"));
        }
        let dir = self.dir_to_change(dir)?;
        let dir_item = dir.lock_exclusive()?;
        let dir = check_may_add(&dir, &dir_item)?;
        self.check_name_is_free(&dir, name)?;
        let _kept = self.engine().quotas().keep(groups)?;
        // One thread at a time: two would take the same id.
        let changing = self.subvolumes().changing();
        dir.subvolume().check_not_dead()?;
        let now = self.engine().env().now();
        let mut draft = Draft::root_of_subvolume(&dir, &dir_item, new, now)?;
        let index = directory::next_index(&dir)?;
        let id = self.subvolumes().next_id(&changing)?;
        let uuid = self.subvolumes().new_uuid(id, dir.id, name.bytes(), None)?;
        let units =
            ReserveItems::items(10 + draft.item_count() + items_of_groups(groups)).of(dir.id.subvolume);
        let handle = self.engine().start(units)?;
        let running = handle.generation();
        let head = Head {
            location: EntryTarget::Subvolume(id).location(),
            transid: running,
            kind: FileType::Directory,
        };
        let (handle, ()) = or_end(handle, |handle| directory::add_item(handle, &dir, name, &head))?;
        let size = dir_item.size.saturating_add(name.size_in_directory());
        let done = (|| {
            directory::add_index(&handle, &dir, index, name, &head)?;
            let root_dir = draft.root_dir_item(running).to_raw();
            let tree = handle.create_subvolume_tree(id, uuid, now, &root_dir, dir.id.subvolume, groups)?;
            draft.insert_xattrs(&handle, &tree, ObjectId::FIRST_FREE)?;
            let entry = SubvolumeEntry { dir: dir.id, index, name: name.bytes() };
            self.subvolumes().insert_refs(&handle, id, &entry)?;
            self.subvolumes().insert_uuid(&handle, uuid, id)?;
            dir.update_later(&handle, |item| directory::touch(item, size, now))?;
            Ok(tree)
        })();
        let tree = finish(handle, done)?;
        drop(changing);
        dir.set_next_index(index + 1);
        let root = InodeId::new(id, ObjectId::FIRST_FREE);
        let subvolume = Subvolume::new(tree, Arc::clone(self.subvolumes().context()), root.ino, false);
        let (subvolume, _) = self.subvolumes().put(id, subvolume);
        draft.publish(self.table(), root, subvolume);
        Ok(root)
    }
}
