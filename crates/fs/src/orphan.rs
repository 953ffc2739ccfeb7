//! Inodes without a name: kept while they are open, deleted after.
//!
//! When the last name of an inode goes and nobody has it open, its items go in the same transaction. If somebody
//! has, or it is large, it gets an orphan item instead. The object's `Drop` notes its id for the
//! cleaner, which deletes the items in steps. A crash in between leaves the orphan item, and the subvolume's next first
//! use gives what it names to the cleaner.
//!
//! # Invariants
//! - ORPHAN-1 (FS-2): an inode item with no links has an orphan item.
//! - ORPHAN-2: deleting takes a bounded number of items per handle, from the end of the inode backwards; the inode
//!   item and the orphan item go last and together, so that a crash at any point leaves something to go on from.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, Logical, ObjectId, Result, Timespec, TreeId, Wait};
use creamery_format::{FileExtent, Key, KeyType};
use creamery_tree::Tree;
use creamery_txn::{Handle, Units};

use crate::data;
use crate::filesystem::Filesystem;
use crate::inode::{FileType, Inode, InodeItem};
use crate::inode_ref::{self, Link};
use crate::keys;
use crate::name::Name;

/// Items of an inode that are deleted in one handle at most.
const ITEMS_AT_ONCE: usize = 16;
/// The same where there is no room for that: few enough for the room that only what frees space may take.
const ITEMS_WHEN_FULL: usize = 4;
/// Leaves of an inode that is deleted with its last name, for the same reason; a larger one is left to the cleaner.
const LEAVES_AT_ONCE: u32 = 12;
/// Orphan items read at a time when a subvolume is opened.
const ORPHANS_AT_ONCE: usize = 256;

/// What becomes of an inode that loses a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// It has others.
    StillNamed,
    /// It stays until its last user is gone.
    Orphan,
    /// Its items go now; they lie in about this many leaves.
    Purge { leaves: u32 },
}

/// An inode that loses a name in a directory.
pub(crate) struct LosingName<'a> {
    pub(crate) inode: &'a Arc<Inode>,
    pub(crate) dir: ObjectId,
    pub(crate) name: Name<'a>,
    pub(crate) link: Link,
    pub(crate) ending: Ending,
}

impl<'a> LosingName<'a> {
    /// Decides what becomes of `inode`; the caller holds the guard of `item`. [`Filesystem::name_kept`] takes it
    /// back.
    pub(crate) fn plan(
        fs: &Filesystem,
        inode: &'a Arc<Inode>,
        item: &InodeItem,
        dir: ObjectId,
        name: Name<'a>,
    ) -> Result<Self> {
        let link = inode_ref::find_entry(inode.tree(), inode.id, dir, name)?;
        let last = item.is_dir() || item.nlink <= 1;
        let ending = if !last {
            Ending::StillNamed
        } else {
            let leaves = leaves_if_small(inode.tree(), inode.id.ino)?;
            match (leaves, fs.table.doom(inode)) {
                (Some(leaves), true) => Ending::Purge { leaves },
                _ => Ending::Orphan,
            }
        };
        Ok(Self { inode, dir, name, link, ending })
    }

    /// Tree changes that [`LosingName::apply`] makes.
    pub(crate) const fn units(&self) -> u32 {
        match self.ending {
            Ending::StillNamed => 2,
            Ending::Orphan => 3,
            Ending::Purge { leaves } => leaves,
        }
    }

    /// Takes the reference away, and what goes with it. Returns the item as it is from now on.
    pub(crate) fn apply(&self, handle: &Handle<'_>, item: &InodeItem, now: Timespec) -> Result<InodeItem> {
        let Self { inode, dir, name, link, ending } = self;
        let mut item = item.clone();
        item.nlink = match ending {
            Ending::StillNamed => item.nlink - 1,
            Ending::Orphan | Ending::Purge { .. } => 0,
        };
        if item.is_dir() {
            item.size = 0;
        }
        item.ctime = now;
        item.touch(handle.generation());
        if matches!(ending, Ending::Purge { .. }) {
            inode.delete_items(|| purge(handle, inode.tree(), inode.id, &keys::first_of(inode.id.ino)))?;
            inode.subvolume.deferred.doomed.note_deleted(handle.generation());
            return Ok(item);
        }
        inode_ref::remove(handle, inode.tree(), inode.id.ino, *dir, *name, *link)?;
        if *ending == Ending::Orphan {
            inode.tree().insert(handle, &keys::orphan(inode.id.ino), &[])?;
        }
        inode.store(handle, &item)?;
        Ok(item)
    }

    /// Marks the object once the operation succeeded and while its guard is still held.
    pub(crate) fn done(&self) {
        if matches!(self.ending, Ending::Purge { .. }) {
            self.inode.set_gone();
        }
    }
}

/// The leaves that some neighbouring items lie in: leaves are at least a third full, but for those at the ends.
fn leaves_of(tree: &Tree, bytes: usize) -> u32 {
    2 + u32::try_from(bytes / (tree.max_item_size() / 3)).unwrap_or(u32::MAX / 2)
}

/// In how many leaves the items of an inode lie, when they are so few that one handle deletes them.
fn leaves_if_small(tree: &Tree, ino: ObjectId) -> Result<Option<u32>> {
    let mut bytes = 0;
    let mut cursor = tree.cursor(&keys::first_of(ino), Wait::Yes)?;
    for _ in 0..=ITEMS_AT_ONCE {
        match cursor.item() {
            Some((key, item)) if key.objectid == ino => bytes += item.len(),
            _ => return Ok(Some(leaves_of(tree, bytes)).filter(|leaves| *leaves <= LEAVES_AT_ONCE)),
        }
        cursor.advance()?;
    }
    Ok(None)
}

/// Removes the items of an inode from `first` on, and gives up the extents they refer to.
fn purge(handle: &Handle<'_>, tree: &Tree, id: InodeId, first: &Key) -> Result<()> {
    tree.remove_range(handle, first, &keys::last_of(id.ino), &mut |key, item| {
        if key.kind == KeyType::EXTENT_DATA {
            drop_reference(handle, id, key, item)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// Gives up the extent that a file extent item refers to.
fn drop_reference(handle: &Handle<'_>, id: InodeId, key: &Key, item: &[u8]) -> Result<()> {
    let damaged = |what: String| Error::new(ErrorKind::Corrupt, format!("file extent {key}: {what}"));
    match FileExtent::parse(item).map_err(|damage| damaged(damage.to_string()))? {
        FileExtent::Regular(extent) | FileExtent::Prealloc(extent) if !extent.is_hole() => handle
            .drop_data_ref(
                Logical::new(extent.disk_bytenr.get()),
                extent.disk_num_bytes.get(),
                id,
                key.offset.wrapping_sub(extent.offset.get()),
            ),
        _ => Ok(()),
    }
}

/// How far an inode is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deleted {
    /// The items that are left hold so many bytes of data.
    Partly {
        nbytes: u64,
    },
    Wholly,
}

/// The last items of an inode, of which one handle deletes some.
struct LastItems {
    /// The key of the first of them.
    first: Key,
    /// In how many leaves they lie, and how many references of extents they may hold.
    units: u32,
}

impl LastItems {
    /// The last `most` or fewer; none when there is no item.
    fn find(tree: &Tree, ino: ObjectId, most: usize) -> Result<Option<Self>> {
        let mut bytes = 0;
        let mut extents = 0;
        let mut cursor = tree.cursor_at_or_before(&keys::last_of(ino), Wait::Yes)?;
        let mut first = None;
        for _ in 0..most {
            match cursor.item() {
                Some((key, item)) if key.objectid == ino => {
                    first = Some(key);
                    bytes += item.len();
                    extents += u32::from(key.kind == KeyType::EXTENT_DATA);
                }
                _ => break,
            }
            if !cursor.retreat()? {
                break;
            }
        }
        Ok(first.map(|first| Self { first, units: leaves_of(tree, bytes) + extents }))
    }
}

impl Filesystem {
    /// Lets go of an inode, which leaves what has neither a name nor a user any more to the cleaner. A small one is
    /// deleted at once. (Dropping the object alone takes no step of the cleaner.)
    pub fn release(&self, inode: Arc<Inode>) {
        drop(inode);
        self.clean_for_others();
    }

    /// Inodes without a name that are there when `subvolume` is opened, with the bytes of their data: nobody can have one of them open. Other orphan items
    /// are removed: they mark a truncation that an old kernel did not finish, of which nothing is left to do, or an
    /// inode that is gone.
    pub(crate) fn find_orphans(&self, id: TreeId, tree: &Tree) -> Result<Vec<(InodeId, u64)>> {
        let (mut from, mut dead) = (0, Vec::new());
        loop {
            let batch = orphans_from(tree, from)?;
            let Some(last) = batch.last() else { return Ok(dead) };
            from = last.get().saturating_add(1);
            for ino in batch {
                let item = tree.get(&keys::inode_item(ino), Wait::Yes, InodeItem::decode)?.transpose()?;
                match item.filter(|item| item.nlink == 0) {
                    Some(item) => dead.push((InodeId::new(id, ino), item.nbytes)),
                    None => match self.remove_orphan_item(ino, tree) {
                        // It harms nobody; one day there will be room.
                        Err(error) if error.kind() == ErrorKind::NoSpace => {}
                        done => done.map_err(|error| error.context(format!("removing orphan item {ino}")))?,
                    },
                }
            }
        }
    }

    fn remove_orphan_item(&self, ino: ObjectId, tree: &Tree) -> Result<()> {
        let handle = self.engine.start(Units::freeing(1))?;
        let removed = tree.remove(&handle, &keys::orphan(ino));
        crate::operation::finish(handle, removed)?;
        Ok(())
    }

    /// Deletes items of an inode that has no name and no user, in one handle: the end of its data, else the last of its
    /// items, among which may be all.
    pub(crate) fn delete_some(&self, id: InodeId) -> Result<Deleted> {
        match self.delete_last(id, ITEMS_AT_ONCE) {
            Err(error) if error.kind() == ErrorKind::NoSpace => self.delete_last(id, ITEMS_WHEN_FULL),
            done => done,
        }
    }

    /// The same for at most so many items.
    fn delete_last(&self, id: InodeId, most: usize) -> Result<Deleted> {
        let subvolume = self.subvolume(id.subvolume, Wait::Yes)?;
        self.table.forget_dead(id);
        let tree = &subvolume.tree;
        let item = tree.get(&keys::inode_item(id.ino), Wait::Yes, InodeItem::decode)?.transpose()?;
        let item = item.filter(|item| item.nlink == 0);
        let (Some(item), Some(last)) = (item, LastItems::find(tree, id.ino, most)?) else {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("inode {id}, which lost its last name: is not there"),
            ));
        };
        let wholly = last.first <= keys::inode_item(id.ino);
        if wholly && last.first != keys::inode_item(id.ino) {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("inode {id}: has items before its inode item"),
            ));
        }
        if !wholly && item.kind() == FileType::File {
            let inode = Inode::new(id, subvolume.clone(), item);
            // Nobody else has an object that was just made, and whoever asks for space may have other inodes locked: this waits
            // for nobody.
            let mut item = inode.try_write()?.expect("nobody else has it");
            inode.set_gone(); // dropping the object must not ask for this once more
            if let Some(generation) = data::drop_last(&self.engine, &inode, &mut item, most)? {
                self.deferred.doomed.note_deleted(generation);
                return Ok(Deleted::Partly { nbytes: item.nbytes });
            }
        }
        let handle = self.engine.start(Units::reclaiming(last.units + 1))?;
        self.deferred.doomed.note_deleted(handle.generation());
        let done = purge(&handle, tree, id, &last.first).and_then(|()| match wholly {
            true => tree.remove(&handle, &keys::orphan(id.ino)).map(|_| Deleted::Wholly),
            false => Ok(Deleted::Partly { nbytes: 0 }),
        });
        crate::operation::finish(handle, done)
    }

    /// Takes back what planning the loss of a last name did, when the operation then failed.
    pub(crate) fn name_kept(&self, losing: &LosingName<'_>) {
        if losing.ending != Ending::StillNamed {
            self.table.keep(losing.inode);
        }
    }
}

fn orphans_from(tree: &Tree, from: u64) -> Result<Vec<ObjectId>> {
    let mut found = Vec::new();
    let mut cursor = tree.cursor(&Key::new(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM, from), Wait::Yes)?;
    while let Some((key, _)) = cursor.item() {
        if key.objectid != ObjectId::ORPHAN
            || key.kind != KeyType::ORPHAN_ITEM
            || found.len() >= ORPHANS_AT_ONCE
        {
            break;
        }
        found.push(ObjectId::new(key.offset));
        cursor.advance()?;
    }
    Ok(found)
}
