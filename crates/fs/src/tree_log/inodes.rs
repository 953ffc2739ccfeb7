//! Inode items, attributes, and data past the end of a file.

use creamery_base::{Generation, ObjectId, Result, Wait};
use creamery_format::KeyType;

use super::LogReplay;
use super::check::LoggedInode;
use super::items::{each_item, range_of};
use crate::data::drop_extents::DropPlan;
use crate::data::reserve;
use crate::inode::{FileType, InodeItem};
use crate::keys;
use crate::verity;

impl LogReplay<'_, '_> {
    /// Sets the inode to the state in the log, and removes its lost attributes and the data past its end. Its names and its bytes
    /// are counted later.
    pub(super) fn replay_inode(&mut self, inode: &LoggedInode) -> Result<()> {
        let LoggedInode { ino, item: logged } = inode;
        self.remove_xattrs(*ino)?;
        let known = self.item(*ino)?;
        let only_exists = logged.generation == Generation::default();
        let size_is_said = logged.kind() == FileType::File && logged.size > 0;
        let item = match known {
            None => self.new_item(logged),
            Some(known) if !only_exists => {
                let size = if logged.is_dir() { known.size } else { logged.size };
                InodeItem { nbytes: known.nbytes, nlink: known.nlink, size, ..logged.clone() }
            }
            Some(known) if size_is_said && known.kind() == FileType::File => {
                InodeItem { size: logged.size, ..known }
            }
            Some(_) => return Ok(()),
        };
        self.change(1, |handle| self.tree.upsert(handle, &keys::inode_item(*ino), &item.encode()))?;
        if item.kind() == FileType::File { self.cut_behind(*ino, item.size) } else { Ok(()) }
    }

    /// Makes the item of an inode that the last commit does not have. Later stages give a directory its size, and a file its data.
    fn new_item(&self, logged: &InodeItem) -> InodeItem {
        let size = if logged.is_dir() { 0 } else { logged.size };
        let generation = if logged.generation == Generation::default() {
            self.engine.generation()
        } else {
            logged.generation
        };
        InodeItem { generation, size, nbytes: 0, ..logged.clone() }
    }

    /// Removes the data past the end, preallocated space as well: the log has the extents that belong there.
    fn cut_behind(&self, ino: ObjectId, size: u64) -> Result<()> {
        let keep = size.next_multiple_of(self.sector);
        loop {
            let plan = DropPlan::from_back(&self.tree, ino, keep, reserve::DROP_EDITS_MAX, self.sector)?;
            if !plan.is_empty() {
                self.change(reserve::drop_units(&plan), |handle| {
                    plan.apply(handle, &self.tree, self.inode_id(ino), None)
                })?;
            }
            if plan.start == keep {
                return Ok(());
            }
        }
    }

    /// Removes the attributes that the log does not have.
    fn remove_xattrs(&self, ino: ObjectId) -> Result<()> {
        let (first, last) = range_of(ino, KeyType::XATTR_ITEM);
        each_item(&self.tree, first, last, &mut |key, _| {
            if self.log.get(key, Wait::Yes, |_| ())?.is_some() {
                return Ok(()); // it is replaced
            }
            self.change(1, |handle| self.tree.remove(handle, key).map(drop))
        })
    }

    /// Sets the attributes to those of the log.
    pub(super) fn replay_xattrs(&self, ino: ObjectId) -> Result<()> {
        self.copy_items(ino, KeyType::XATTR_ITEM)
    }

    /// Gives a sealed file the items of its descriptor and its tree that the log has.
    pub(super) fn replay_verity(&self, inode: &LoggedInode) -> Result<()> {
        if !verity::is_sealed(&inode.item) {
            return Ok(());
        }
        self.copy_items(inode.ino, KeyType::VERITY_DESC_ITEM)?;
        self.copy_items(inode.ino, KeyType::VERITY_MERKLE_ITEM)
    }

    /// Puts items of the log into the tree, in place of those with the same keys.
    fn copy_items(&self, ino: ObjectId, kind: KeyType) -> Result<()> {
        let (first, last) = range_of(ino, kind);
        each_item(self.log, first, last, &mut |key, data| {
            self.change(1, |handle| self.tree.upsert(handle, key, data))
        })
    }
}
