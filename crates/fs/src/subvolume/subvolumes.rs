//! The subvolumes in use. A subvolume is opened on its first use.
//!
//! # Invariants
//! - SUBVOL-1: the orphans of a subvolume are found before it is in use, and go to the cleaner once it is. So none of them is open, and a later orphan item belongs
//!   to one of these, or to an inode that is or was open.
//!   Shown by `what_was_committed_survives_every_power_cut`.
//! - SUBVOL-2: an inode number is allocated once (INO-1). Allocation begins behind the highest number in use, so no inode has these numbers yet.
//!
//! # Locking
//! A thread holds `loading` while it opens a subvolume and finds its orphans; it takes it before any inode lock. `changing` comes after inode locks and before the
//! transaction handle. The locks of the maps are held briefly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedGuard, RankedMutex, RankedRwLock, rank};
use creamery_base::{
    Error, ErrorKind, Generation, ObjectId, PerThread, QgroupId, Result, Timespec, TreeId, Uuid, Wait, memory,
};
use creamery_format::{FileType, Incompat, Key, KeyType, RootFlags, dir_item};
use creamery_tree::Tree;
use creamery_txn::{Engine, Handle, ReserveItems};

use super::at_close::AtClose;
use super::dead::{DeadSubvolume, DeadSubvolumes};
use super::{Subvolume, SubvolumeRef, orphan_item};
use crate::context::Context;
use crate::items::InodeItem;
use crate::keys;
use crate::operation::{finish, or_end};

/// The subvolumes in use.
pub(crate) struct Subvolumes {
    context: Arc<Context>,
    root_tree: Arc<Tree>,
    default: AtomicU64,
    open: RankedRwLock<BTreeMap<TreeId, Arc<Subvolume>>, { rank::TABLE }>,
    /// The lookups of each thread; a subvolume in use stays in use.
    near: PerThread<RankedRwLock<BTreeMap<TreeId, SubvolumeRef>, { rank::LEAF }>>,
    loading: RankedMutex<(), { rank::SUBVOLUME_LOAD }>,
    changing: RankedMutex<(), { rank::SUBVOLUME_CHANGE }>,
    dead: DeadSubvolumes,
    at_close: Arc<AtClose>,
}

/// The witness that no other thread makes or changes a subvolume.
pub(crate) type Changing<'a> = RankedGuard<'a, (), { rank::SUBVOLUME_CHANGE }>;

/// The outcome of putting a subvolume in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Put {
    /// The given object is in use.
    InUse,
    /// Another object of the subvolume was in use before. The orphans found in its tree meanwhile may belong to users of that one (SUBVOL-1).
    TooLate,
}

impl Subvolumes {
    /// Opens the root tree, with no subvolume in use yet.
    pub(crate) fn new(context: Arc<Context>) -> Result<Self> {
        let root_tree = context.engine().tree(TreeId::ROOT)?;
        let default = read_default(&root_tree)?.unwrap_or(TreeId::FS);
        Ok(Self {
            context,
            root_tree,
            default: AtomicU64::new(default.get()),
            open: RankedRwLock::new(BTreeMap::new()),
            near: PerThread::default(),
            loading: RankedMutex::new(()),
            changing: RankedMutex::new(()),
            dead: DeadSubvolumes::default(),
            at_close: Arc::default(),
        })
    }

    /// The engine below.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.context.engine()
    }

    /// The context that all subvolumes share.
    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) const fn root_tree(&self) -> &Arc<Tree> {
        &self.root_tree
    }

    /// The default subvolume, which is mounted if the mount names none.
    pub(crate) fn default(&self) -> TreeId {
        TreeId::new(self.default.load(Ordering::Acquire))
    }

    /// Bytes of memory that the subvolumes take, without their trees.
    pub(crate) fn memory(&self) -> u64 {
        let open = self.open.read().len();
        let near = |near: &RankedRwLock<BTreeMap<TreeId, SubvolumeRef>, { rank::LEAF }>| {
            let known = near.read().len();
            memory::btree::<TreeId, SubvolumeRef>(known) + known as u64 * SubvolumeRef::MEMORY
        };
        open as u64 * (memory::shared::<Subvolume>() + Subvolume::striped_memory())
            + memory::btree::<TreeId, Arc<Subvolume>>(open)
            + self.near.all().map(near).sum::<u64>()
    }

    /// The subvolume `id`; opens it if it is not in use yet.
    pub(crate) fn get(&self, id: TreeId, wait: Wait) -> Result<SubvolumeRef> {
        if let Some(subvolume) = self.in_use(id) {
            return Ok(subvolume);
        }
        // A caller that asks for an open file of a deleted subvolume may have inodes locked, so it must not wait for the thread that opens one.
        if self.dead.has(id) {
            return Err(Error::new(ErrorKind::NotFound, format!("subvolume {id} is deleted")));
        }
        if wait == Wait::No {
            return Err(ErrorKind::WouldBlock.into());
        }
        if !id.is_subvolume() {
            return Err(Error::new(ErrorKind::NotFound, format!("tree {id} is not a subvolume")));
        }
        let loading = self.loading.lock_for(Reason::InodeLock);
        if let Some(subvolume) = self.in_use(id) {
            return Ok(subvolume);
        }
        let root = self.engine().root_item(id).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::new(ErrorKind::NotFound, format!("subvolume {id}")),
            _ => error.context(format!("subvolume {id}")),
        })?;
        let flags = root.flags();
        if root.refs.get() == 0 || flags.contains(RootFlags::DEAD) {
            return Err(Error::new(ErrorKind::NotFound, format!("subvolume {id} is deleted")));
        }
        let tree = self.engine().tree(id)?;
        let read_only = flags.contains(RootFlags::RDONLY);
        if self.engine().read_only().is_none() {
            check_for_writing(&tree).map_err(|error| error.context(format!("subvolume {id}")))?;
        }
        let (last_ino, orphans) = match self.engine().read_only() {
            None => (highest_objectid(&tree)?, orphan_item::find(self.engine(), id, &tree)?),
            // A read-only filesystem makes no inodes, so a damaged last leaf does not keep it from being read.
            Some(_) => (highest_objectid(&tree).unwrap_or(BEFORE_FIRST_FREE), Vec::new()),
        };
        let subvolume = Subvolume::new(tree, Arc::clone(&self.context), last_ino, read_only);
        let (subvolume, put) = self.put(id, subvolume);
        if put == Put::InUse {
            orphans.into_iter().for_each(|(orphan, nbytes)| self.context.add_dead(orphan, nbytes));
        }
        drop(loading);
        Ok(subvolume)
    }

    /// The subvolume `id`, if it is in use. It stays in use until it is deleted.
    pub(crate) fn in_use(&self, id: TreeId) -> Option<SubvolumeRef> {
        let near = self.near.mine();
        if let Some(subvolume) = near.read().get(&id) {
            return Some(subvolume.clone());
        }
        let subvolume = SubvolumeRef::new(Arc::clone(self.open.read().get(&id)?));
        let found = near.write().entry(id).or_insert(subvolume).clone();
        if found.is_dead() {
            // It was retired between the two lookups, perhaps removed from all of `near` before this thread inserted it.
            near.write().remove(&id);
            return None;
        }
        Some(found)
    }

    /// Locks changes of subvolumes. A thread holds the lock while it makes one, from choosing the id until the root item is in the root tree, and while it changes a
    /// root item, or its copy in memory.
    pub(crate) fn changing(&self) -> Changing<'_> {
        self.changing.lock_for(Reason::InodeLock)
    }

    /// Puts a subvolume in use, unless it already is: a thread that made it and one that looked up its number may meet here. Returns the object that is in use then.
    pub(crate) fn put(&self, id: TreeId, subvolume: Subvolume) -> (SubvolumeRef, Put) {
        let mut open = self.open.write();
        let mut put = Put::TooLate;
        let subvolume = open.entry(id).or_insert_with(|| {
            put = Put::InUse;
            Arc::new(subvolume)
        });
        (SubvolumeRef::new(Arc::clone(subvolume)), put)
    }

    /// The deleted subvolumes that wait to be dropped.
    pub(crate) const fn dead(&self) -> &DeadSubvolumes {
        &self.dead
    }

    /// The changes that run while the running transaction closes.
    pub(crate) const fn at_close(&self) -> &Arc<AtClose> {
        &self.at_close
    }

    /// Queues the subvolumes that were deleted before the filesystem was opened and are not dropped yet.
    pub(crate) fn find_dead(&self) -> Result<()> {
        for id in self.engine().orphan_subvolumes()? {
            self.dead.push(DeadSubvolume::new(id, None, Generation::default()));
        }
        Ok(())
    }

    /// Refuses to delete the top level, the default subvolume, and a subvolume that contains others.
    pub(crate) fn check_may_delete(&self, id: TreeId) -> Result<()> {
        if id == TreeId::FS || id == self.default() {
            let message = format!("cannot delete the default subvolume {id}");
            return Err(Error::new(ErrorKind::PermissionDenied, message));
        }
        let cursor = self.root_tree.cursor(&keys::root_ref(id, TreeId::new(0)), Wait::Yes)?;
        match cursor.item() {
            Some((key, _)) if key.objectid == id.objectid() && key.kind == KeyType::ROOT_REF => {
                let message = format!("subvolume {id} contains subvolume {}", key.offset);
                Err(Error::new(ErrorKind::DirectoryNotEmpty, message))
            }
            _ => Ok(()),
        }
    }

    /// Takes a subvolume out of use that `deleted_in` has deleted. A user that has an inode of it keeps that; no user gets another.
    pub(crate) fn retire(&self, id: TreeId, deleted_in: Generation) {
        let subvolume = self.open.write().remove(&id);
        if let Some(subvolume) = &subvolume {
            subvolume.set_dead();
        }
        self.near.all().for_each(|near| drop(near.write().remove(&id)));
        self.dead.push(DeadSubvolume::new(id, subvolume, deleted_in));
    }

    /// Sets the filesystem's label, which the caller has checked. A superblock has the generation of its root, so this rewrites a block of the root tree, too.
    /// Setting the current label changes nothing.
    pub(crate) fn set_label(&self, label: &[u8]) -> Result<()> {
        let _changing = self.changing();
        if self.engine().label() == label {
            return self.engine().check_writable();
        }
        let handle = self.engine().start(ReserveItems::items(1))?;
        // Every filesystem has the top level; not every one has an entry for the default subvolume.
        let done = handle.update_root_item(TreeId::FS, |_| ());
        handle.set_label(label);
        finish(handle, done)
    }

    /// Makes `subvolume` the default, which is mounted if the mount names none. It changes nothing if it is the default already.
    pub(crate) fn set_default(&self, subvolume: TreeId) -> Result<()> {
        self.get(subvolume, Wait::Yes)?;
        let _changing = self.changing();
        // A thread that deleted it meanwhile had checked the old default.
        self.get(subvolume, Wait::Yes)?;
        if read_default(&self.root_tree)? == Some(subvolume) {
            return self.engine().check_writable();
        }
        let handle = self.engine().start(ReserveItems::items(1))?;
        let head = dir_item::Head {
            location: keys::subvolume_location(subvolume),
            transid: handle.generation(),
            kind: FileType::Directory,
        };
        let key = keys::dir_item(ObjectId::ROOT_TREE_DIR, b"default");
        let redirect = |item: &mut [u8]| head.redirect(item, b"default");
        let done = self.root_tree.update(&handle, &key, redirect);
        let done = done.and_then(|done| {
            let found = done.transpose()?.unwrap_or(false);
            // The top level stays the default of such a filesystem, as on Linux.
            let missing =
                || Error::new(ErrorKind::NotFound, "the root tree's entry for the default subvolume");
            found.then_some(()).ok_or_else(missing)
        });
        handle.add_incompat(Incompat::DEFAULT_SUBVOL);
        finish(handle, done)?;
        self.default.store(subvolume.get(), Ordering::Release);
        Ok(())
    }

    /// Whether the subvolume is read-only in its root item.
    pub(crate) fn is_read_only(&self, subvolume: &Subvolume) -> Result<bool> {
        let _changing = self.changing();
        let root = self.engine().root_item(subvolume.tree().id())?;
        Ok(root.flags().contains(RootFlags::RDONLY))
    }

    /// Makes a subvolume read-only or writable, and commits. To make it read-only the caller has closed its gate.
    pub(crate) fn set_read_only(&self, subvolume: &Subvolume, read_only: bool) -> Result<()> {
        let _changing = self.changing();
        self.write_read_only(subvolume.tree().id(), read_only)?;
        subvolume.change_gate().set_read_only(read_only);
        // No inode records this change, so no fsync waits for it. Linux commits, too.
        self.engine().commit()
    }

    fn write_read_only(&self, id: TreeId, read_only: bool) -> Result<()> {
        let handle = self.engine().start(ReserveItems::items(1).of(id))?;
        let done = handle.update_root_item(id, |root| {
            let mut flags = root.flags();
            flags.set(RootFlags::RDONLY, read_only);
            root.set_flags(flags);
        });
        finish(handle, done)
    }

    /// Clears the received UUID and makes the subvolume writable, in one transaction, and commits. A read-only subvolume is refused unless `by_force`.
    pub(crate) fn forget_received(&self, subvolume: &Subvolume, by_force: bool) -> Result<()> {
        let id = subvolume.tree().id();
        let _changing = self.changing();
        let is = self.engine().root_item(id)?;
        if is.flags().contains(RootFlags::RDONLY) && !by_force {
            return Err(ErrorKind::ReadOnly.into());
        }
        let handle = self.engine().start(ReserveItems::items(2).of(id))?;
        let received = keys::uuid_received(Uuid::from_bytes(is.received_uuid));
        let (handle, ()) = or_end(handle, |handle| self.remove_uuid(handle, &received, id))?;
        let done = handle.update_root_item(id, |root| {
            root.set_flags(root.flags().difference(RootFlags::RDONLY));
            root.received_uuid = Uuid::nil().into_bytes();
            root.stransid = 0.into();
            root.stime = Timespec::default().into();
            root.rtransid = handle.generation().get().into();
            root.rtime = handle.now().into();
        });
        finish(handle, done)?;
        subvolume.change_gate().set_read_only(false);
        self.engine().commit()
    }

    /// The id for the next subvolume. It stays so until a root item with it is in the root tree. The id of a subvolume that was deleted since the filesystem was
    /// opened is not reused, as on Linux.
    pub(crate) fn next_id(&self, _changing: &Changing<'_>) -> Result<TreeId> {
        let highest = TreeId::from(highest_objectid(&self.root_tree)?).max(self.dead.highest());
        let id = TreeId::new(highest.get() + 1);
        // A number of more than 48 bits would make a quota group of a higher level, so Linux gives none out, either.
        if id.is_subvolume() && QgroupId::of(id).level() == 0 {
            Ok(id)
        } else {
            Err(Error::new(ErrorKind::NoSpace, "no free subvolume id"))
        }
    }

    /// Adds a subvolume to its UUID's item in the UUID tree. A filesystem without a UUID tree gets no item: Linux makes the tree when it mounts.
    pub(crate) fn insert_uuid(&self, handle: &Handle<'_>, uuid: Uuid, id: TreeId) -> Result<()> {
        let tree = match self.engine().tree(TreeId::UUID) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let key = keys::uuid_subvolume(uuid);
        let mut ids = tree.get(&key, Wait::Yes, <[u8]>::to_vec)?.unwrap_or_default();
        ids.extend_from_slice(&id.get().to_le_bytes());
        tree.upsert(handle, &key, &ids)
    }

    /// Removes a subvolume from the items of its UUID and of its received UUID.
    pub(crate) fn remove_uuids(&self, handle: &Handle<'_>, id: TreeId) -> Result<()> {
        let root = self.engine().root_item(id)?;
        for key in
            [keys::uuid_subvolume(root.uuid()), keys::uuid_received(Uuid::from_bytes(root.received_uuid))]
        {
            self.remove_uuid(handle, &key, id)?;
        }
        Ok(())
    }

    /// Removes a subvolume from the item at `key` of the UUID tree.
    pub(super) fn remove_uuid(&self, handle: &Handle<'_>, key: &Key, id: TreeId) -> Result<()> {
        let tree = match self.engine().tree(TreeId::UUID) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let Some(ids) = tree.get(key, Wait::Yes, <[u8]>::to_vec)? else { return Ok(()) };
        let is_other = |known: &&[u8]| **known != id.get().to_le_bytes();
        let left: Vec<u8> = ids.chunks(size_of::<u64>()).filter(is_other).flatten().copied().collect();
        match left.len() {
            0 => tree.remove(handle, key).map(drop),
            len if len < ids.len() => tree.upsert(handle, key, &left),
            _ => Ok(()),
        }
    }
}

/// Checks a subvolume as Linux does, beyond the checks of a leaf: it has a root directory. Behind its last inode lie the leftovers of the old cache of inode
/// numbers; this reads their leaf, since nothing else does.
fn check_for_writing(tree: &Tree) -> Result<()> {
    let root =
        tree.get(&keys::inode_item(ObjectId::FIRST_FREE), Wait::Yes, InodeItem::decode)?.transpose()?;
    if !root.is_some_and(|item| item.is_dir()) {
        return Err(Error::new(ErrorKind::Corrupt, "it has no root directory; open it read-only"));
    }
    tree.cursor(&Key::new(ObjectId::FREE_INO, KeyType::UNTYPED, 0), Wait::Yes).map(drop)
}

const BEFORE_FIRST_FREE: ObjectId = ObjectId::new(ObjectId::FIRST_FREE.get() - 1);

/// The highest id in use among inodes (of a subvolume tree) or subvolumes (of the root tree); if there is none, the id before the first.
fn highest_objectid(tree: &Tree) -> Result<ObjectId> {
    let cursor = tree.cursor_at_or_before(&keys::last_of(ObjectId::LAST_FREE), Wait::Yes)?;
    Ok(match cursor.item() {
        Some((key, _)) if key.objectid <= ObjectId::LAST_FREE => key.objectid.max(BEFORE_FIRST_FREE),
        _ => BEFORE_FIRST_FREE,
    })
}

/// The id in the root tree's entry `default`, if it has one.
fn read_default(root_tree: &Tree) -> Result<Option<TreeId>> {
    let key = keys::dir_item(ObjectId::ROOT_TREE_DIR, b"default");
    let location = root_tree.get(&key, Wait::Yes, |item| -> Result<Option<Key>> {
        Ok(dir_item::find(item, b"default")?.map(|(entry, _)| entry.location))
    })?;
    match location.transpose()?.flatten() {
        Some(key) if key.kind == KeyType::ROOT_ITEM && TreeId::from(key.objectid).is_subvolume() => {
            Ok(Some(key.objectid.into()))
        }
        Some(key) => Err(Error::new(ErrorKind::Corrupt, format!("the default subvolume is {key}"))),
        None => Ok(None),
    }
}
