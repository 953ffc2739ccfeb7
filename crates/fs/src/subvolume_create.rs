//! Making a subvolume: a tree with an empty root directory, an entry in a directory that points to it, the
//! references between the two in the root tree, and the UUID's entry in the UUID tree.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, TreeId, Uuid, Wait};
use creamery_format::RootRef;
use creamery_txn::{Handle, Units};

use crate::create::check_may_add;
use crate::dir_item::Head;
use crate::directory::{self, Target};
use crate::filesystem::Filesystem;
use crate::inode::FileType;
use crate::keys;
use crate::name::Name;
use crate::new_inode::{Draft, NewInode, NewKind};
use crate::operation::{finish, or_end};
use crate::subvolume::{Subvolume, highest_objectid};

impl Filesystem {
    /// Makes a new subvolume called `name` in `dir`; returns its root directory. `new` says who owns that.
    pub fn create_subvolume(&self, dir: InodeId, name: &[u8], new: &NewInode<'_>) -> Result<InodeId> {
        let name = Name::to_make(name)?;
        if new.kind != NewKind::Directory || dir.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Err(Error::invalid("the root of a subvolume that is no directory"));
        }
        let dir = self.dir_to_change(dir)?;
        let mut dir_item = dir.write()?;
        check_may_add(&dir_item)?;
        // One at a time: two would take the same id.
        let naming = self.subvolumes.changing();
        let now = self.engine.now();
        let mut draft = Draft::new(&dir, &dir_item, new, now)?;
        draft.keep_group(new);
        let index = directory::next_index(&dir)?;
        let id = TreeId::new(highest_objectid(&self.root_tree)?.get() + 1);
        if !id.is_subvolume() {
            return Err(Error::new(ErrorKind::NoSpace, "ids for subvolumes are used up"));
        }
        let uuid = self.engine.env().uuid();
        let handle = self.engine.start(Units::items(10 + draft.item_count()))?;
        let running = handle.generation();
        let head =
            Head { location: Target::Subvolume(id).location(), transid: running, kind: FileType::Directory };
        let (handle, ()) = or_end(handle, |handle| directory::add_item(handle, &dir, name, &head))?;
        let size = dir_item.size.saturating_add(name.size_in_directory());
        let changed = directory::touched(&dir_item, size, now, running);
        let done = (|| {
            directory::add_index(&handle, &dir, index, name, &head)?;
            let root_dir = draft.root_dir_item(running).to_raw();
            let tree = handle.create_subvolume_tree(id, uuid, now, &root_dir)?;
            draft.insert_xattrs(&handle, &tree, ObjectId::FIRST_FREE)?;
            let root_ref = RootRef { dirid: dir.id.ino.get(), sequence: index, name: name.bytes() };
            self.insert_references(&handle, dir.id.subvolume, id, &root_ref)?;
            self.insert_uuid(&handle, uuid, id)?;
            dir.store_later(&handle, &changed)?;
            Ok(tree)
        })();
        let tree = finish(handle, done)?;
        drop(naming);
        *dir_item = changed;
        dir.set_next_index(index + 1);
        let root = InodeId::new(id, ObjectId::FIRST_FREE);
        let subvolume = Subvolume::new(tree, Arc::clone(&self.deferred), root.ino, false);
        draft.publish(self, root, self.subvolumes.put(id, subvolume));
        Ok(root)
    }

    fn insert_references(
        &self,
        handle: &Handle<'_>,
        parent: TreeId,
        child: TreeId,
        root_ref: &RootRef<'_>,
    ) -> Result<()> {
        let item = crate::subvolume::encode_root_ref(root_ref);
        self.root_tree.insert(handle, &keys::root_ref(parent, child), &item)?;
        self.root_tree.insert(handle, &keys::root_backref(child, parent), &item)
    }

    /// A filesystem without a UUID tree does without: Linux makes one when it mounts.
    fn insert_uuid(&self, handle: &Handle<'_>, uuid: Uuid, id: TreeId) -> Result<()> {
        let tree = match self.engine.tree(TreeId::UUID) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let key = keys::uuid_subvolume(uuid);
        let mut ids = tree.get(&key, Wait::Yes, <[u8]>::to_vec)?.unwrap_or_default();
        ids.extend_from_slice(&id.get().to_le_bytes());
        tree.upsert(handle, &key, &ids)
    }
}
