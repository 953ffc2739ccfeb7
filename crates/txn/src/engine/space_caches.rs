//! Space caches of the old kind: where there is no free space tree, Linux may keep what is free in files of the root tree, one for each
//! block group, to which a header leads.
//!
//! They are not kept here, and must not stay either. Linux passes over all of them at the first mount after somebody else's commit,
//! whose generation is not theirs. But it writes anew only those of the groups in which it changes something, and from then on
//! their generation is the filesystem's: at the second mount it takes the others for good, and hands out what is in use. So
//! they go with the first commit. Linux makes new ones.
//!
//! # Invariants
//! - CACHES-1: no commit that changes what is free leaves a header. Shown by `no_space_cache_is_left`.

use creamery_base::{InodeId, ObjectId, Result, TreeId, Wait};
use creamery_format::{Key, KeyType};
use creamery_tree::{ReadAhead, Walk};

use super::Engine;
use crate::extent_tree::file_extent_address;
use crate::handle::Handle;
use crate::units::Units;

/// Items that are removed in one handle.
const AT_ONCE: usize = 16;
/// Headers that lie in one leaf at least, but for the first and the last.
const PER_LEAF: u32 = 16;

impl Engine {
    /// Removes the caches, the headers before what they lead to; what was left of others goes, too. Part of the transaction that
    /// runs. Nothing where there is a free space tree, or nothing is written.
    /// Errors: no space; device errors, damage.
    pub fn drop_space_caches(&self) -> Result<()> {
        if self.read_only().is_some() || self.free_space_tree.loaded().is_some() {
            return Ok(());
        }
        let (headers, files) = self.space_caches()?;
        if headers > 0 {
            let units = Units::items(headers / PER_LEAF + 2);
            let header = |group| Key::new(ObjectId::FREE_SPACE, KeyType::UNTYPED, group);
            let (first, last) = (header(0), header(u64::MAX));
            self.in_a_handle(units, |handle| {
                self.root_tree.tree().remove_range(handle, &first, &last, &mut |_, _| Ok(())).map(drop)
            })?;
        }
        files.into_iter().try_for_each(|file| self.drop_space_cache(file))
    }

    /// How many headers there are, and the files in the root tree: there are no others there.
    fn space_caches(&self) -> Result<(u32, Vec<ObjectId>)> {
        let (mut headers, mut files) = (0, Vec::new());
        let walk = Walk::new(Wait::Yes, ReadAhead::ForwardAlways);
        let first = Key::new(ObjectId::FIRST_FREE, KeyType::UNTYPED, 0);
        let mut cursor = self.root_tree.tree().cursor(&first, walk)?;
        while let Some((key, _)) = cursor.item() {
            if key.kind == KeyType::INODE_ITEM && key.objectid <= ObjectId::LAST_FREE {
                files.push(key.objectid);
            } else if key.kind == KeyType::UNTYPED && key.objectid == ObjectId::FREE_SPACE {
                headers += 1;
            }
            cursor.advance()?;
        }
        Ok((headers, files))
    }

    /// Removes a file of the root tree, its item last: by that it is found again if this is cut off. A subvolume may have its number.
    fn drop_space_cache(&self, file: ObjectId) -> Result<()> {
        let tree = self.root_tree.tree();
        let (item, behind) =
            (Key::new(file, KeyType::INODE_ITEM, 0), Key::new(file, KeyType::INODE_ITEM, u64::MAX));
        loop {
            let mut found = Vec::new();
            let mut cursor = tree.cursor(&behind, Wait::Yes)?;
            while let Some((key, data)) = cursor.item()
                && (key.objectid, key.kind) <= (file, KeyType::EXTENT_DATA)
                && found.len() < AT_ONCE
            {
                let extent = file_extent_address(data).filter(|_| key.kind == KeyType::EXTENT_DATA);
                found.push((key, extent));
                cursor.advance()?;
            }
            drop(cursor);
            let is_last = found.len() < AT_ONCE;
            let units = Units::items(u32::try_from(found.len()).expect("a few") + 1);
            self.in_a_handle(units, |handle| {
                for (key, extent) in found {
                    if let Some((start, len, offset)) = extent {
                        let owner = InodeId::new(TreeId::ROOT, file);
                        handle.drop_data_ref(start, len, owner, key.offset.wrapping_sub(offset));
                    }
                    tree.remove(handle, &key)?;
                }
                if is_last {
                    tree.remove(handle, &item)?;
                }
                Ok(())
            })?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Does `work` in a handle; what fails in the middle of it aborts.
    fn in_a_handle(&self, units: Units, work: impl FnOnce(&Handle<'_>) -> Result<()>) -> Result<()> {
        let handle = self.start(units)?;
        match work(&handle) {
            Ok(()) => {
                handle.end();
                Ok(())
            }
            Err(error) => Err(handle.abort(error.context("removing space caches of the old kind"))),
        }
    }
}
