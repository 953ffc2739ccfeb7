//! Entries of directories, and the names that go with them: a name is an entry, found by its hash and by its number, and a
//! reference of the inode to its directory, and comes and goes as a whole.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, ObjectId, Result, Wait};
use creamery_format::dir_item::{self, Head};
use creamery_format::{FileType, Key, KeyType, RawDirLogItem};
use creamery_txn::Handle;
use zerocopy::FromBytes;

use super::LogReplay;
use super::items::{each_item, range_of};
use crate::directory::{self, EntryTarget};
use crate::items::{Name, inode_ref};
use crate::keys;

/// Items that change when a name comes or goes: two of the directory's, a reference, the directory's inode item.
const NAME_ITEMS: u32 = 4;

/// A name of an inode.
#[derive(Clone, Copy)]
struct LoggedLink<'a> {
    dir: ObjectId,
    index: u64,
    name: Name<'a>,
    ino: ObjectId,
}

/// The one entry of a DIR_INDEX item: its name, and its inode, where that is in this subvolume.
fn entry_of<'a>(key: &Key, data: &'a [u8]) -> Result<(Name<'a>, Option<ObjectId>)> {
    let missing = || Error::new(ErrorKind::Corrupt, format!("{key} has no entry"));
    let (entry, _) = dir_item::entries(data).next().ok_or_else(missing)??;
    let ino = (entry.location.kind == KeyType::INODE_ITEM).then_some(entry.location.objectid);
    Ok((Name::new(entry.name)?, ino))
}

impl LogReplay<'_, '_> {
    /// Removes the entries of a directory whose numbers the log covers, and that the log does not have. Entries of subvolumes stay:
    /// an fsync after the deletion of one commits.
    pub(super) fn remove_entries(&mut self, dir: ObjectId) -> Result<()> {
        let (first, last) = range_of(dir, KeyType::DIR_LOG_INDEX);
        let mut ranges = Vec::new();
        each_item(self.log, first, last, &mut |key, data| {
            let range =
                RawDirLogItem::ref_from_bytes(data).expect("its length was checked when its block was read");
            ranges.push((key.offset, range.end.get()));
            Ok(())
        })?;
        ranges.into_iter().try_for_each(|(first, last)| self.remove_entries_between(dir, first, last))
    }

    fn remove_entries_between(&mut self, dir: ObjectId, first: u64, last: u64) -> Result<()> {
        let (first, last) = (keys::dir_index(dir, first), keys::dir_index(dir, last));
        let (tree, log) = (Arc::clone(&self.tree), self.log);
        each_item(&tree, first, last, &mut |key, data| {
            let (name, ino) = entry_of(key, data)?;
            let stays = log.get(key, Wait::Yes, |data| {
                dir_item::find(data, name.bytes()).map(|found| found.is_some())
            })?;
            match ino {
                Some(ino) if !stays.transpose()?.unwrap_or(false) => {
                    self.remove_link(LoggedLink { dir, index: key.offset, name, ino })
                }
                _ => Ok(()),
            }
        })
    }

    /// Removes all entries of a directory that is gone itself.
    pub(super) fn remove_all_entries(&mut self, dir: ObjectId) -> Result<()> {
        let (first, last) = range_of(dir, KeyType::DIR_INDEX);
        let tree = Arc::clone(&self.tree);
        each_item(&tree, first, last, &mut |key, data| match entry_of(key, data)? {
            (name, Some(ino)) => self.remove_link(LoggedLink { dir, index: key.offset, name, ino }),
            (_, None) => {
                Err(Error::new(ErrorKind::Corrupt, format!("{key}: subvolume in a deleted directory")))
            }
        })
    }

    /// Gives a directory the entries of the log, as far as there are inodes for them.
    pub(super) fn add_entries(&mut self, dir: ObjectId) -> Result<()> {
        let (first, last) = range_of(dir, KeyType::DIR_INDEX);
        let log = self.log;
        each_item(log, first, last, &mut |key, data| match entry_of(key, data)? {
            (name, Some(ino)) => self.set_link(LoggedLink { dir, index: key.offset, name, ino }),
            (_, None) => Ok(()), // making a subvolume commits
        })
    }

    /// Gives an inode the names that the log has, and removes its other names in the same directories.
    pub(super) fn replay_names(&mut self, ino: ObjectId) -> Result<()> {
        if ino == ObjectId::FIRST_FREE {
            return Ok(()); // the root directory has no name
        }
        let log = self.log;
        let (first, last) = (range_of(ino, KeyType::INODE_REF).0, range_of(ino, KeyType::INODE_EXTREF).1);
        each_item(log, first, last, &mut |key, data| {
            let before = self.tree.get(key, Wait::Yes, <[u8]>::to_vec)?;
            for (dir, index, name) in inode_ref::names_in(key, before.as_deref().unwrap_or_default())? {
                let stays = inode_ref::names_in(key, data)?
                    .iter()
                    .any(|&(other, _, kept)| (other, kept) == (dir, name));
                if !stays {
                    self.remove_link(LoggedLink { dir, index, name: Name::new(name)?, ino })?;
                }
            }
            for (dir, index, name) in inode_ref::names_in(key, data)? {
                self.set_link(LoggedLink { dir, index, name: Name::new(name)?, ino })?;
            }
            Ok(())
        })
    }

    /// Makes `link` a name, in place of the owner of its name or its number. Nothing happens where its directory or inode does not
    /// exist: the log has the entry from before a rename or removal.
    fn set_link(&mut self, link: LoggedLink<'_>) -> Result<()> {
        let LoggedLink { dir, index, name, ino } = link;
        let Some(inode) = self.item(ino)? else { return Ok(()) };
        if !self.item(dir)?.is_some_and(|dir| dir.is_dir()) {
            return Ok(());
        }
        let reference = inode_ref::find(&self.tree, ino, dir, name)?.map(|found| found.index);
        let by_name = directory::find(&self.tree, self.inode_id(dir), name, Wait::Yes)?.found;
        let key = keys::dir_index(dir, index);
        let by_number = self.tree.get(&key, Wait::Yes, <[u8]>::to_vec)?;
        let by_number = by_number.as_deref().map(|data| entry_of(&key, data)).transpose()?;
        let is_named = by_name.is_some_and(|found| found.target == EntryTarget::Inode(ino));
        if is_named && reference == Some(index) && by_number == Some((name, Some(ino))) {
            return Ok(());
        }
        match by_name.map(|found| found.target) {
            None => {}
            Some(EntryTarget::Inode(other)) => {
                let index = self.index_of(dir, name, other)?;
                self.remove_link(LoggedLink { dir, index, name, ino: other })?;
            }
            Some(EntryTarget::Subvolume(id)) => return Err(in_the_way(dir, &format!("subvolume {id}"))),
        }
        match by_number {
            Some((other, _)) if other == name => {} // it went just now
            None => {}
            Some((name, Some(ino))) => self.remove_link(LoggedLink { dir, index, name, ino })?,
            Some((_, None)) => return Err(in_the_way(dir, &format!("the subvolume at {key}"))),
        }
        self.add_link(link, inode.kind())
    }

    /// The number of the entry `name`, from the inode's reference.
    fn index_of(&self, dir: ObjectId, name: Name<'_>, ino: ObjectId) -> Result<u64> {
        inode_ref::find_entry(&self.tree, self.inode_id(ino), dir, name).map(|found| found.index)
    }

    fn add_link(&mut self, link: LoggedLink<'_>, kind: FileType) -> Result<()> {
        let LoggedLink { dir, index, name, ino } = link;
        self.relinked.insert(ino);
        self.change(NAME_ITEMS, |handle| {
            let head = Head { location: keys::inode_item(ino), transid: handle.generation(), kind };
            let item = dir_item::single(&head, name.bytes());
            inode_ref::add(handle, &self.tree, ino, dir, (index, name), self.extrefs)?;
            let key = keys::dir_item(dir, name.bytes());
            let is_there = match self.tree.insert(handle, &key, &item) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => true,
                other => other.map(|()| false)?,
            };
            if is_there {
                self.tree.extend(handle, &key, &item)?;
            }
            self.tree.insert(handle, &keys::dir_index(dir, index), &item)?;
            self.update_item(handle, dir, |dir| dir.size = dir.size.saturating_add(name.size_in_directory()))
        })
    }

    fn remove_link(&mut self, link: LoggedLink<'_>) -> Result<()> {
        let LoggedLink { dir, index, name, ino } = link;
        self.relinked.insert(ino);
        let reference = inode_ref::find(&self.tree, ino, dir, name)?;
        self.change(NAME_ITEMS, |handle| {
            self.remove_dir_item(handle, dir, name)?;
            self.tree.remove(handle, &keys::dir_index(dir, index))?;
            if let Some(reference) = reference {
                inode_ref::remove(handle, &self.tree, ino, dir, name, reference)?;
            }
            self.update_item(handle, dir, |dir| dir.size = dir.size.saturating_sub(name.size_in_directory()))
        })
    }

    fn remove_dir_item(&self, handle: &Handle<'_>, dir: ObjectId, name: Name<'_>) -> Result<()> {
        let key = keys::dir_item(dir, name.bytes());
        let rest = self.tree.get(&key, Wait::Yes, |item| dir_item::without(item, name.bytes()))?;
        match rest.transpose()?.flatten() {
            None => Err(Error::new(ErrorKind::Corrupt, format!("directory {dir}: {key} lacks an entry"))),
            Some(rest) if rest.is_empty() => self.tree.remove(handle, &key).map(drop),
            Some(rest) => self.tree.upsert(handle, &key, &rest),
        }
    }
}

fn in_the_way(dir: ObjectId, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("directory {dir}: {what} conflicts with a log entry"))
}
