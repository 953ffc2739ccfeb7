//! Changes of subvolumes' root items by a handle, and the creation of trees.

use std::sync::Arc;

use creamery_base::{ObjectId, QgroupId, Result, Timespec, TreeId, Uuid};
use creamery_format::{Key, KeyType, RawInodeItem, RawRootItem};
use creamery_tree::Tree;
use zerocopy::{FromBytes, IntoBytes, little_endian::U64};

use crate::handle::Handle;
use crate::roots::root_pointer;

/// Linux' mark in a root item's embedded inode that its flags are valid (BTRFS_INODE_ROOT_ITEM_INIT).
const ROOT_ITEM_INIT: u64 = 1 << 31;

impl Handle<'_> {
    /// Creates the tree of a new subvolume in the subvolume `within`, with its root directory's inode item and its own name "..", and its
    /// root item. It becomes a member of the quota groups `groups` ([`QuotaAccounting::keep`](crate::QuotaAccounting::keep)).
    /// Errors: already exists; no space; device errors; damage. The caller aborts.
    pub fn create_subvolume_tree(
        &self,
        id: TreeId,
        uuid: Uuid,
        otime: Timespec,
        root_dir: &RawInodeItem,
        within: TreeId,
        groups: &[QgroupId],
    ) -> Result<Arc<Tree>> {
        let roots = self.root_tree();
        let store = roots.tree().store();
        let node_size = U64::new(u64::from(store.volume().node_size()));
        let tree = Tree::create(Arc::clone(store), id, self)?;
        let ino = ObjectId::FIRST_FREE;
        tree.insert(self, &Key::new(ino, KeyType::INODE_ITEM, 0), root_dir.as_bytes())?;
        let parent_ref = [&0_u64.to_le_bytes()[..], &2_u16.to_le_bytes(), b".."].concat();
        tree.insert(self, &Key::new(ino, KeyType::INODE_REF, ino.get()), &parent_ref)?;
        let root = tree.root_pointer()?;
        let mut item =
            RawRootItem::read_from_bytes(&[0; size_of::<RawRootItem>()]).expect("the size is right");
        item.inode.generation = U64::new(1);
        item.inode.size = U64::new(3);
        item.inode.nlink = 1.into();
        item.inode.nbytes = node_size;
        item.inode.mode = 0o40755.into();
        item.inode.flags = U64::new(ROOT_ITEM_INIT);
        item.set_root(root.logical, root.level, root.generation);
        item.root_dirid = U64::new(ino.get());
        item.bytes_used = node_size;
        item.refs = 1.into();
        item.uuid = uuid.into_bytes();
        item.otransid = item.generation;
        item.ctransid = item.generation;
        item.otime.sec = otime.sec.into();
        item.otime.nsec = otime.nsec.into();
        item.ctime = item.otime;
        // Before its item can be found: a thread that opened the tree by that would open it a second time.
        let tree = roots.keep(tree);
        let key = Key::new(id.objectid(), KeyType::ROOT_ITEM, 0);
        roots.tree().insert(self, &key, item.as_bytes())?;
        self.qgroups().subvolume_created(id, within, groups);
        Ok(tree)
    }

    /// Creates an empty tree that is no subvolume's.
    /// Errors: already exists; no space; device errors; damage. The caller aborts.
    pub(crate) fn create_tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        let roots = self.root_tree();
        let store = roots.tree().store();
        let tree = Tree::create(Arc::clone(store), id, self)?;
        let root = tree.root_pointer()?;
        let mut item =
            RawRootItem::read_from_bytes(&[0; size_of::<RawRootItem>()]).expect("the size is right");
        item.set_root(root.logical, root.level, root.generation);
        item.bytes_used = U64::new(u64::from(store.volume().node_size()));
        item.refs = 1.into();
        let tree = roots.keep(tree);
        let key = Key::new(id.objectid(), KeyType::ROOT_ITEM, 0);
        roots.tree().insert(self, &key, item.as_bytes())?;
        Ok(tree)
    }

    /// Changes a tree's root item, except its root pointer, which only the commit changes.
    /// Errors: not found; no space; device errors; damage.
    pub fn update_root_item(&self, id: TreeId, edit: impl FnOnce(&mut RawRootItem)) -> Result<()> {
        let roots = self.root_tree();
        let (key, mut item) = roots.item(id)?;
        let root = root_pointer(&item);
        edit(&mut item);
        assert_eq!(root_pointer(&item), root, "only the commit moves a root");
        roots.tree().upsert(self, &key, item.as_bytes())
    }
}
