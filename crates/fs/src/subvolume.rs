//! Subvolumes in use, and how they hang in one another.
//!
//! A subvolume's entry in a directory points to a tree, not to an inode. The root tree says the same twice, by
//! ROOT_REF (from the parent) and ROOT_BACKREF (from the child), with the directory, the number and the name of
//! the entry. A snapshot copies the entries of nested subvolumes but not these references, so an entry without
//! its ROOT_REF leads to an empty directory, inode 2.
//!
//! # Invariants
//! - SUBVOL-1: the orphans of a subvolume were given to the cleaner before it is used for writing, which has a subvolume only after
//!   it is in use; an orphan item that is found later belongs to one of these, or to an inode that is or was open.
//! - SUBVOL-2: inode numbers are given out in ascending order and only once.
//!
//! # Locking
//! `loading` is held while a subvolume is opened and its orphans are found; it is taken before any inode lock.
//! `rename` of a subvolume is held while a directory moves to another one, so that the chain of its parents
//! stands still; taken before inode locks. The map's lock is short.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedGuard, RankedMutex, RankedRwLock, rank};
use creamery_base::{Error, ErrorKind, InodeId, Near, ObjectId, Result, Striped, TreeId, Wait};
use creamery_format::{Incompat, Key, KeyType, RawRootRef, RootFlags, RootRef};
use creamery_tree::Tree;
use creamery_txn::{Engine, Units};

use zerocopy::IntoBytes;

use crate::dir_item;
use crate::directory::Target;
use crate::filesystem::Filesystem;
use crate::ino_allocator::InoAllocator;
use crate::inode::{Deferred, FileType};
use crate::inode_ref::Extrefs;
use crate::keys;
use crate::operation::finish;

/// A subvolume in use.
pub(crate) struct Subvolume {
    pub(crate) tree: Arc<Tree>,
    /// Where ids go when objects without links are dropped, and delayed items wait.
    pub(crate) deferred: Arc<Deferred>,
    numbers: InoAllocator,
    read_only: AtomicBool,
    rename: RankedMutex<(), { rank::DIRECTORY_RENAME }>,
}

/// A reference to a subvolume. Every inode has one.
pub(crate) type SubvolumeRef = Near<Subvolume>;

/// The subvolumes in use.
pub(crate) struct Subvolumes {
    default: AtomicU64,
    open: RankedRwLock<BTreeMap<TreeId, Arc<Subvolume>>, { rank::TABLE }>,
    /// What each thread has looked up; subvolumes in use stay so.
    near: Striped<RankedRwLock<BTreeMap<TreeId, SubvolumeRef>, { rank::LEAF }>>,
    loading: RankedMutex<(), { rank::SUBVOLUME_LOAD }>,
    changing: RankedMutex<(), { rank::SUBVOLUME_CHANGE }>,
}

impl Subvolumes {
    pub(crate) fn new(default: TreeId) -> Self {
        Self {
            default: AtomicU64::new(default.get()),
            open: RankedRwLock::new(BTreeMap::new()),
            near: Striped::default(),
            loading: RankedMutex::new(()),
            changing: RankedMutex::new(()),
        }
    }

    fn get(&self, id: TreeId) -> Option<SubvolumeRef> {
        let near = self.near.mine();
        if let Some(subvolume) = near.read().get(&id) {
            return Some(subvolume.clone());
        }
        let subvolume = SubvolumeRef::new(Arc::clone(self.open.read().get(&id)?));
        Some(near.write().entry(id).or_insert(subvolume).clone())
    }

    /// Held while a subvolume is made, from choosing its id until its root item is in the root tree, and while what is said
    /// about one changes, there and in memory.
    pub(crate) fn changing(&self) -> RankedGuard<'_, (), { rank::SUBVOLUME_CHANGE }> {
        self.changing.lock_for(Reason::InodeLock)
    }

    /// Puts a subvolume in use, unless it is already: who made it and who asked for it by its number may meet here. The one
    /// that is in use then.
    pub(crate) fn put(&self, id: TreeId, subvolume: Subvolume) -> SubvolumeRef {
        SubvolumeRef::new(Arc::clone(self.open.write().entry(id).or_insert_with(|| Arc::new(subvolume))))
    }
}

impl Subvolume {
    /// A subvolume whose highest inode number in use is `last_ino`.
    pub(crate) fn new(tree: Arc<Tree>, deferred: Arc<Deferred>, last_ino: ObjectId, read_only: bool) -> Self {
        Self {
            tree,
            deferred,
            numbers: InoAllocator::behind(last_ino),
            read_only: AtomicBool::new(read_only),
            rename: RankedMutex::new(()),
        }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::ReadOnly, format!("subvolume {}", self.tree.id())));
        }
        Ok(())
    }

    /// Holds the chain of every directory's parents still: no directory moves to another one meanwhile.
    pub(crate) fn hold_still(&self) -> RankedGuard<'_, (), { rank::DIRECTORY_RENAME }> {
        self.rename.lock_for(Reason::InodeLock)
    }

    /// A number for a new inode.
    pub(crate) fn allocate_ino(&self) -> Result<ObjectId> {
        self.numbers.allocate().ok_or_else(|| {
            let text = format!("inode numbers of subvolume {} are used up", self.tree.id());
            Error::new(ErrorKind::NoSpace, text)
        })
    }
}

const BEFORE_FIRST_FREE: ObjectId = ObjectId::new(ObjectId::FIRST_FREE.get() - 1);

/// The highest id in use among inodes (of a subvolume tree) or subvolumes (of the root tree); the one before the first
/// when there is none.
pub(crate) fn highest_objectid(tree: &Tree) -> Result<ObjectId> {
    let cursor = tree.cursor_at_or_before(&keys::last_of(ObjectId::LAST_FREE), Wait::Yes)?;
    Ok(match cursor.item() {
        Some((key, _)) if key.objectid <= ObjectId::LAST_FREE => key.objectid.max(BEFORE_FIRST_FREE),
        _ => BEFORE_FIRST_FREE,
    })
}

/// The id in the root tree's entry `default`.
pub(crate) fn read_default(root_tree: &Tree) -> Result<TreeId> {
    let key = keys::dir_item(ObjectId::ROOT_TREE_DIR, b"default");
    let location = root_tree.get(&key, Wait::Yes, |item| -> Result<Option<Key>> {
        Ok(dir_item::find(item, b"default")?.map(|(entry, _)| entry.location))
    })?;
    match location.transpose()?.flatten() {
        Some(key) if key.kind == KeyType::ROOT_ITEM && TreeId::from(key.objectid).is_subvolume() => {
            Ok(key.objectid.into())
        }
        Some(key) => Err(Error::new(ErrorKind::Corrupt, format!("the default subvolume is {key}"))),
        None => Ok(TreeId::FS),
    }
}

/// Whether the filesystem may have INODE_EXTREF items.
pub(crate) fn extrefs(engine: &Engine) -> Extrefs {
    if engine.incompat().contains(Incompat::EXTENDED_IREF) { Extrefs::Yes } else { Extrefs::No }
}

fn decode_root_ref(item: &[u8]) -> Result<RootRef<'_>> {
    RootRef::parse(item).map_err(|damage| Error::with_source(ErrorKind::Corrupt, "root reference", damage))
}

/// The payload of ROOT_REF and ROOT_BACKREF items.
pub(crate) fn encode_root_ref(root_ref: &RootRef<'_>) -> Vec<u8> {
    let raw = RawRootRef {
        dirid: root_ref.dirid.into(),
        sequence: root_ref.sequence.into(),
        name_len: u16::try_from(root_ref.name.len()).expect("names are checked").into(),
    };
    [raw.as_bytes(), root_ref.name].concat()
}

impl Filesystem {
    /// The subvolume that is mounted when none is named.
    #[must_use]
    pub fn default_subvolume(&self) -> TreeId {
        TreeId::new(self.subvolumes.default.load(Ordering::Acquire))
    }

    /// The root directory of a subvolume.
    pub fn root(&self, subvolume: TreeId) -> Result<InodeId> {
        self.subvolume(subvolume, Wait::Yes)?;
        Ok(InodeId::new(subvolume, ObjectId::FIRST_FREE))
    }

    /// The subvolume whose root is at `path`, from the top level; an empty path is the top level itself.
    pub fn resolve_subvolume(&self, path: &[u8]) -> Result<TreeId> {
        let mut at = self.root(TreeId::FS)?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = self.lookup(at, name, Wait::Yes)?;
        }
        if at.ino == ObjectId::FIRST_FREE {
            return Ok(at.subvolume);
        }
        Err(Error::invalid(format!("{} is not the root of a subvolume", String::from_utf8_lossy(path))))
    }

    /// Makes `subvolume` the one that is mounted when none is named.
    pub fn set_default_subvolume(&self, subvolume: TreeId) -> Result<()> {
        self.subvolume(subvolume, Wait::Yes)?;
        let _changing = self.subvolumes.changing();
        let handle = self.engine.start(Units::items(1))?;
        let head = dir_item::Head {
            location: Target::Subvolume(subvolume).location(),
            transid: handle.generation(),
            kind: FileType::Directory,
        };
        let key = keys::dir_item(ObjectId::ROOT_TREE_DIR, b"default");
        let redirect = |item: &mut [u8]| head.redirect(item, b"default");
        let done = self.root_tree.update(&handle, &key, redirect);
        let done = done.and_then(|done| {
            let found = done.transpose()?.unwrap_or(false);
            found
                .then_some(())
                .ok_or_else(|| Error::new(ErrorKind::Corrupt, "no entry for the default subvolume"))
        });
        handle.add_incompat(Incompat::DEFAULT_SUBVOL);
        finish(handle, done)?;
        self.subvolumes.default.store(subvolume.get(), Ordering::Release);
        Ok(())
    }

    /// Forbids or allows changes in a subvolume.
    pub fn set_subvolume_read_only(&self, id: TreeId, read_only: bool) -> Result<()> {
        let subvolume = self.subvolume(id, Wait::Yes)?;
        let _changing = self.subvolumes.changing();
        let handle = self.engine.start(Units::items(1))?;
        let done = handle.update_root_item(id, |root| {
            let mut flags = root.flags();
            flags.set(RootFlags::RDONLY, read_only);
            root.set_flags(flags);
        });
        finish(handle, done)?;
        subvolume.read_only.store(read_only, Ordering::Release);
        Ok(())
    }

    /// The subvolume `id`, opened if it is not in use yet.
    pub(crate) fn subvolume(&self, id: TreeId, wait: Wait) -> Result<SubvolumeRef> {
        if let Some(subvolume) = self.subvolumes.get(id) {
            return Ok(subvolume);
        }
        if wait == Wait::No {
            return Err(ErrorKind::WouldBlock.into());
        }
        if !id.is_subvolume() {
            return Err(Error::new(ErrorKind::NotFound, format!("tree {id} is no subvolume")));
        }
        let loading = self.subvolumes.loading.lock_for(Reason::InodeLock);
        if let Some(subvolume) = self.subvolumes.get(id) {
            return Ok(subvolume);
        }
        let root = self.engine.root_item(id).map_err(|error| error.context(format!("subvolume {id}")))?;
        let flags = root.flags();
        if root.refs.get() == 0 || flags.contains(RootFlags::DEAD) {
            return Err(Error::new(ErrorKind::NotFound, format!("subvolume {id} is deleted")));
        }
        let tree = self.engine.tree(id)?;
        let last_ino = highest_objectid(&tree)?;
        let read_only = flags.contains(RootFlags::RDONLY);
        let orphans = match self.engine.read_only() {
            None => self.find_orphans(id, &tree)?,
            Some(_) => Vec::new(),
        };
        let subvolume = Subvolume::new(tree, Arc::clone(&self.deferred), last_ino, read_only);
        let subvolume = self.subvolumes.put(id, subvolume);
        orphans.into_iter().for_each(|(orphan, nbytes)| self.deferred.doomed.push(orphan, nbytes));
        drop(loading);
        Ok(subvolume)
    }

    /// The inode that an entry `name` of `dir` stands for.
    pub(crate) fn resolve(&self, dir: InodeId, name: &[u8], target: Target, wait: Wait) -> Result<InodeId> {
        let child = match target {
            Target::Inode(ino) => return Ok(InodeId::new(dir.subvolume, ino)),
            Target::Subvolume(child) => child,
        };
        let linked = self.root_tree.get(&keys::root_ref(dir.subvolume, child), wait, |item| {
            decode_root_ref(item).map(|root_ref| root_ref.dirid == dir.ino.get() && root_ref.name == name)
        })?;
        if linked.transpose()?.unwrap_or(false) {
            Ok(InodeId::new(child, ObjectId::FIRST_FREE))
        } else {
            Ok(InodeId::new(dir.subvolume, keys::EMPTY_SUBVOLUME_DIR))
        }
    }

    /// The directory that has the entry of a subvolume; none for the top level.
    pub(crate) fn parent_of_subvolume(&self, id: TreeId, wait: Wait) -> Result<Option<InodeId>> {
        let cursor = self.root_tree.cursor(&Key::new(id.objectid(), KeyType::ROOT_BACKREF, 0), wait)?;
        match cursor.item() {
            Some((key, item)) if key.objectid == id.objectid() && key.kind == KeyType::ROOT_BACKREF => {
                let dir = ObjectId::new(decode_root_ref(item)?.dirid);
                Ok(Some(InodeId::new(TreeId::new(key.offset), dir)))
            }
            _ => Ok(None),
        }
    }
}
