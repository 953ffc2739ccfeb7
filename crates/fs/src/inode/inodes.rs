//! The inodes of a filesystem: those in memory, and those in the trees.

use std::ops::Deref;
use std::sync::Arc;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, InodeId, ObjectId, PerThread, Result, Wait};
use creamery_txn::Engine;

use super::attributes::Attributes;
use super::lost_directories::LostDirectories;
use super::table::{InodeTable, KnownInode};
use super::{FileType, Inode, InodeItem};
use crate::context::Context;
use crate::fault::Fault;
use crate::keys;
use crate::subvolume::{Subvolume, SubvolumeChange, SubvolumeRef, Subvolumes};

/// How often an operation repeats a lookup whose result keeps changing.
pub(crate) const LOOKUP_ROUNDS_MAX: usize = 64;

/// The number of inodes that a thread remembers to have asked for.
const ASKED_MAX: usize = if cfg!(feature = "shuttle") { 4 } else { 512 };

/// An inode that is being changed: its subvolume does not become read-only before this goes.
pub(crate) struct InodeToChange {
    inode: Arc<Inode>,
    _change: SubvolumeChange,
}

impl Deref for InodeToChange {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        &self.inode
    }
}

/// The inodes of all subvolumes. Each user of the filesystem has it, and so have the cleaner and the names, which end with the
/// background. Requests in flight do not have it.
pub(crate) struct Inodes {
    subvolumes: Subvolumes,
    table: InodeTable,
    /// Directories of which only the entries can be read.
    lost: LostDirectories,
    /// Inodes without an object whose attributes a thread asked for lately, by the last digits of their numbers.
    asked: PerThread<RankedMutex<Vec<Option<InodeId>>, { rank::LEAF }>>,
}

impl Drop for Inodes {
    fn drop(&mut self) {
        // A filesystem that was closed has no requests in flight.
        self.context().in_flight().abandon();
    }
}

impl Inodes {
    /// Makes it; about `cached` objects stay in memory after their last use.
    pub(crate) fn new(subvolumes: Subvolumes, cached: usize) -> Self {
        Self {
            subvolumes,
            table: InodeTable::new(cached),
            lost: LostDirectories::default(),
            asked: PerThread::default(),
        }
    }

    /// The subvolumes of the inodes.
    pub(crate) const fn subvolumes(&self) -> &Subvolumes {
        &self.subvolumes
    }

    /// The inodes in memory.
    pub(crate) const fn table(&self) -> &InodeTable {
        &self.table
    }

    /// The engine below.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.subvolumes.engine()
    }

    /// The context that all of them share.
    pub(crate) fn context(&self) -> &Context {
        self.subvolumes.context()
    }

    /// The object of an inode; it stays alive while the caller holds it. Errors: [`ErrorKind::Stale`] when there is no such
    /// inode, or it has no name left and was not open.
    pub(crate) fn get(&self, id: InodeId, wait: Wait) -> Result<Arc<Inode>> {
        self.engine().check_open()?;
        for _ in 0..LOOKUP_ROUNDS_MAX {
            let stamp = match self.table.get(id) {
                KnownInode::Here(inode) => return Ok(inode),
                KnownInode::Absent(stamp) => stamp,
            };
            let subvolume = self.subvolume_of(id, wait)?;
            let item = self.read_item(&subvolume, id.ino, wait)?;
            let inode = Inode::new(id, subvolume, item);
            if let Some(inode) = self.table.publish_read(inode, stamp) {
                return Ok(inode);
            }
        }
        Err(Error::new(ErrorKind::Busy, format!("inode {id} keeps changing")))
    }

    /// The subvolume of an inode that a caller names by its number. If the subvolume is gone, so is the inode.
    fn subvolume_of(&self, id: InodeId, wait: Wait) -> Result<SubvolumeRef> {
        self.subvolumes.get(id.subvolume, wait).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::with_source(ErrorKind::Stale, format!("inode {id}"), error),
            _ => error,
        })
    }

    /// The attributes of an inode. Makes no object for an inode without one: a `stat` is mostly the only use of an inode, and
    /// objects for all of them would evict those in use.
    pub(crate) fn attributes(&self, id: InodeId, wait: Wait) -> Result<Attributes> {
        self.engine().check_open()?;
        for _ in 0..LOOKUP_ROUNDS_MAX {
            let stamp = match self.table.get(id) {
                KnownInode::Here(inode) if !self.context().has(Fault::ObjectPassedOver) => {
                    return inode.stat(wait);
                }
                KnownInode::Here(_) => return Ok(Attributes::new(id, &self.item(id, wait)?)),
                KnownInode::Absent(_) if self.asked_again(id) => return self.get(id, wait)?.stat(wait),
                KnownInode::Absent(stamp) => stamp,
            };
            let item = self.item(id, wait)?;
            if self.table.is_current(id, stamp) {
                return Ok(Attributes::new(id, &item));
            }
        }
        Err(Error::new(ErrorKind::Busy, format!("inode {id} keeps changing")))
    }

    /// The item of an inode in its tree.
    fn item(&self, id: InodeId, wait: Wait) -> Result<InodeItem> {
        self.read_item(&*self.subvolume_of(id, wait)?, id.ino, wait)
    }

    fn read_item(&self, subvolume: &Subvolume, ino: ObjectId, wait: Wait) -> Result<InodeItem> {
        if ino == keys::EMPTY_SUBVOLUME_DIR {
            return Ok(empty_subvolume_item());
        }
        if ino < ObjectId::FIRST_FREE || ino > ObjectId::LAST_FREE {
            return Err(ErrorKind::Stale.into());
        }
        let item = match subvolume.tree().get(&keys::inode_item(ino), wait, InodeItem::decode) {
            Err(error) if error.kind().is_damage() => {
                return if self.lost.has(InodeId::new(subvolume.tree().id(), ino)) {
                    Ok(lost_item())
                } else {
                    Err(error)
                };
            }
            found => found?.ok_or(ErrorKind::Stale)??,
        };
        if item.nlink == 0 {
            return Err(ErrorKind::Stale.into());
        }
        Ok(item)
    }

    /// Treats an inode whose item is lost as a directory from now on.
    pub(crate) fn take_for_directory(&self, id: InodeId) {
        self.lost.add(id);
    }

    /// Whether this thread asked for the attributes of an inode lately. Remembers that it has now.
    fn asked_again(&self, id: InodeId) -> bool {
        let mut asked = self.asked.mine().lock();
        if asked.is_empty() {
            asked.resize(ASKED_MAX, None);
        }
        let place = &mut asked[id.ino.get() as usize % ASKED_MAX];
        place.replace(id) == Some(id)
    }

    /// The object of an inode for a change. Errors: those of [`Inodes::get`]; its subvolume is read-only.
    pub(crate) fn get_to_change(&self, id: InodeId) -> Result<InodeToChange> {
        let inode = self.get(id, Wait::Yes)?;
        let change = inode.begin_change()?;
        Ok(InodeToChange { inode, _change: change })
    }
}

/// The directory in place of a subvolume, where a snapshot has the subvolume's entry but not the subvolume itself.
fn empty_subvolume_item() -> InodeItem {
    InodeItem { mode: FileType::Directory.mode_bits() | 0o755, ..InodeItem::default() }
}

/// A directory with unknown attributes (`lost_directories`): only its owner may look into it.
fn lost_item() -> InodeItem {
    InodeItem { mode: FileType::Directory.mode_bits() | 0o700, ..InodeItem::default() }
}
