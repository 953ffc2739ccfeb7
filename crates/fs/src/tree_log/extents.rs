//! Data: file extents of the log replace the file's extents there, and bring their checksums.

use creamery_base::{Logical, ObjectId, Result, Wait};
use creamery_format::file_extent::{Extent, FileExtentItem};
use creamery_format::{Compression, Incompat, InodeFlags, Key, KeyType};
use creamery_txn::{Handle, ReserveItems};

use super::LogReplay;
use super::check::LoggedInode;
use super::items::{each_item, range_of};
use crate::compression::incompat;
use crate::data::drop_extents::DropPlan;
use crate::data::extent_map::ExtentItems;
use crate::data::reserve;
use crate::inode::FileType;
use crate::operation::in_handle;

impl LogReplay<'_, '_> {
    /// Replaces the data of an inode by that of the log, and counts it.
    pub(super) fn replay_extents(&mut self, inode: &LoggedInode) -> Result<()> {
        let (first, last) = range_of(inode.ino, KeyType::EXTENT_DATA);
        let log = self.log;
        each_item(log, first, last, &mut |key, data| self.replay_extent(inode, key, data))?;
        // Also where the log has none: data past the end is gone.
        if matches!(inode.item.kind(), FileType::File | FileType::Symlink) {
            self.count_bytes(inode.ino)
        } else {
            Ok(())
        }
    }

    fn replay_extent(&mut self, inode: &LoggedInode, key: &Key, data: &[u8]) -> Result<()> {
        if self.tree.get(key, Wait::Yes, |known| known == data)? == Some(true) {
            return Ok(());
        }
        let extent = FileExtentItem::check(key, data, self.sector)?;
        let range = (key.offset, key.offset.saturating_add(extent.len(self.sector)));
        let plan = self.drop_all_but_the_last(inode.ino, range)?;
        let id = self.inode_id(inode.ino);
        let csums = match &extent {
            FileExtentItem::Regular(extent) if !inode.item.flags.contains(InodeFlags::NODATASUM) => {
                self.csums(extent)?
            }
            _ => Vec::new(),
        };
        let bytes = csums.iter().map(|(_, csums)| csums.len()).sum();
        let units =
            reserve::drop_units(&plan) + reserve::complete_units(self.engine, bytes) + csums.len() as u32;
        let no_item = matches!(extent, FileExtentItem::Hole { .. })
            && self.engine.incompat().contains(Incompat::NO_HOLES);
        let compression = match &extent {
            FileExtentItem::Inline { compression, .. } => *compression,
            FileExtentItem::Regular(extent) | FileExtentItem::Prealloc(extent) => extent.compression,
            FileExtentItem::Hole { .. } => Compression::None,
        };
        let (tree, replay) = (&self.tree, &mut *self.replay);
        let change = |handle: &Handle<'_>| {
            // The writer of the log may have set no bit for it in the superblock.
            handle.add_incompat(incompat(compression));
            plan.apply(handle, tree, id, None)?;
            if !no_item {
                tree.insert(handle, key, data)?;
            }
            if let FileExtentItem::Regular(extent) | FileExtentItem::Prealloc(extent) = &extent {
                replay.refer(handle, extent.disk_bytenr, id, key.offset.wrapping_sub(extent.offset))?;
            }
            csums.iter().try_for_each(|(at, csums)| replay.insert_csums(handle, *at, csums))
        };
        // Reserves like `change`.
        let units = ReserveItems::freeing(units).of(self.id);
        in_handle(self.engine, units, change)
    }

    /// Removes the extents of a file in a range, except those that the returned plan removes.
    fn drop_all_but_the_last(&self, ino: ObjectId, (mut start, end): (u64, u64)) -> Result<DropPlan> {
        loop {
            let most = reserve::DROP_EDITS_MAX;
            let plan = DropPlan::from_front(&self.tree, ino, (start, end), most, self.sector)?;
            if plan.stop == end {
                return Ok(plan);
            }
            self.change(reserve::drop_units(&plan), |handle| {
                plan.apply(handle, &self.tree, self.inode_id(ino), None)
            })?;
            start = plan.stop;
        }
    }

    /// The checksums that the log has for the part of an extent that an item shows; for all of it, where it has to be read as a
    /// whole.
    fn csums(&self, extent: &Extent) -> Result<Vec<(Logical, Vec<u8>)>> {
        let (start, len) = match extent.compression {
            Compression::None => (extent.disk_bytenr + extent.offset, extent.num_bytes),
            _ => (extent.disk_bytenr, extent.disk_num_bytes),
        };
        let (start, end) = (start.get(), start.get() + len);
        let size = self.engine.checksum_type().size();
        let first = Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, 0);
        let cursor = self.log.cursor_at_or_before(&Key { offset: start, ..first }, Wait::Yes)?;
        let from = cursor.item().map(|(key, _)| key).filter(|key| *key >= first).unwrap_or(first);
        drop(cursor);
        let mut found = Vec::new();
        each_item(self.log, from, Key { offset: end - 1, ..first }, &mut |key, data| {
            let covered = (data.len() / size) as u64 * self.sector;
            let (from, to) = (key.offset.max(start), key.offset.saturating_add(covered).min(end));
            if from < to {
                let index = |at: u64| {
                    usize::try_from((at - key.offset) / self.sector).expect("inside an item") * size
                };
                found.push((Logical::new(from), data[index(from)..index(to)].to_vec()));
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Counts the bytes of a file's data anew.
    fn count_bytes(&self, ino: ObjectId) -> Result<()> {
        let mut items = ExtentItems::new(&self.tree, ino, (0, u64::MAX), self.sector, Wait::Yes)?;
        let mut nbytes: u64 = 0;
        while let Some(item) = items.next()? {
            nbytes = nbytes.saturating_add(match item.extent {
                FileExtentItem::Inline { ram_bytes, .. } => ram_bytes,
                FileExtentItem::Regular(_) | FileExtentItem::Prealloc(_) => item.end - item.start,
                FileExtentItem::Hole { .. } => 0,
            });
        }
        drop(items);
        if self.item(ino)?.is_some_and(|item| item.nbytes == nbytes) {
            return Ok(());
        }
        self.change(1, |handle| self.update_item(handle, ino, |item| item.nbytes = nbytes))
    }
}
