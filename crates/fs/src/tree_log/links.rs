//! The number of names of an inode, after all names came and went.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, ObjectId, Result};
use creamery_format::{InodeExtrefs, InodeRefs, KeyType};

use super::LogReplay;
use super::items::{each_item, range_of};
use crate::subvolume::orphan_item;

impl LogReplay<'_, '_> {
    /// Counts the names of all inodes that gained or lost some. An inode without names becomes an orphan; a directory without names
    /// also loses its entries.
    pub(super) fn count_links(&mut self) -> Result<()> {
        while let Some(ino) = self.relinked.pop_first() {
            if ino == ObjectId::FIRST_FREE {
                continue; // the root directory has no name
            }
            let Some(item) = self.item(ino)? else { continue };
            let names = self.names_of(ino)?;
            if names == 0 && item.is_dir() {
                self.remove_all_entries(ino)?;
            }
            let nlink = if item.is_dir() { names.min(1) } else { names };
            let tree = Arc::clone(&self.tree);
            self.change(2, |handle| {
                orphan_item::remove(handle, &tree, ino)?;
                if nlink == 0 {
                    orphan_item::insert(handle, &tree, ino)?;
                }
                self.update_item(handle, ino, |item| item.nlink = nlink)
            })?;
        }
        Ok(())
    }

    fn names_of(&self, ino: ObjectId) -> Result<u32> {
        let (first, last) = (range_of(ino, KeyType::INODE_REF).0, range_of(ino, KeyType::INODE_EXTREF).1);
        let mut names = 0_usize;
        each_item(&self.tree, first, last, &mut |key, data| {
            names += if key.kind == KeyType::INODE_REF {
                InodeRefs::new(data).count()
            } else {
                InodeExtrefs::new(data).count()
            };
            Ok(())
        })?;
        u32::try_from(names)
            .map_err(|_| Error::new(ErrorKind::Corrupt, format!("inode {ino} has {names} names")))
    }
}
