//! Space caches of the old kind (v1): without a free space tree, Linux may keep the free space in files of the root tree, one for each
//! block group, each with a header that leads to it.
//!
//! Creamery does not write these files, and must not leave them. Linux ignores all of them at the first mount after a commit of another program,
//! for their generation is older. But it rewrites only those of the groups in which it changes something, and from then on
//! their generation is the filesystem's: at the second mount it trusts the other files, too, and hands out space in use. So
//! they go with the first commit. Linux makes new ones.
//!
//! # Invariants
//! - CACHES-1: a commit that changes free space leaves no header. Shown by `no_space_cache_is_left`.

use creamery_base::{InodeId, ObjectId, Result, TreeId, Wait};
use creamery_format::{Key, KeyType};
use creamery_tree::{ReadAhead, Walk};

use crate::extent_tree::file_extent_address;
use crate::handle::Handle;
use crate::reserve_items::ReserveItems;
use crate::roots::RootTree;
use crate::transaction_port::TransactionPort;

/// Items removed in one handle.
const AT_ONCE: usize = 16;
/// Least number of headers in one leaf, except the first and the last.
const PER_LEAF: u32 = 16;

/// The space caches of the old kind in the root tree.
#[derive(Clone, Copy)]
pub(crate) struct SpaceCaches<'e> {
    pub(crate) root_tree: &'e RootTree,
    pub(crate) port: &'e dyn TransactionPort,
}

impl SpaceCaches<'_> {
    /// Removes the caches, each header before its file; leftovers of other removals go, too. Part of the running transaction.
    ///
    /// # Errors
    /// No space; device errors, damage.
    pub(crate) fn drop_all(&self) -> Result<()> {
        let (headers, files) = self.find()?;
        if headers > 0 {
            let units = ReserveItems::items(headers / PER_LEAF + 2);
            let header = |group| Key::new(ObjectId::FREE_SPACE, KeyType::UNTYPED, group);
            let (first, last) = (header(0), header(u64::MAX));
            self.in_a_handle(units, |handle| {
                self.root_tree.tree().remove_range(handle, &first, &last, &mut |_, _| Ok(())).map(drop)
            })?;
        }
        files.into_iter().try_for_each(|file| self.drop_file(file))
    }

    /// The number of headers, and the files in the root tree, which are all cache files.
    fn find(&self) -> Result<(u32, Vec<ObjectId>)> {
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

    /// Removes a file of the root tree, its item last: after an interruption the item leads to the rest. A subvolume may have the same number.
    fn drop_file(&self, file: ObjectId) -> Result<()> {
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
            let units = ReserveItems::items(u32::try_from(found.len()).expect("a few") + 1);
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

    /// Calls `work` with a handle; an error in the middle of it aborts.
    fn in_a_handle(&self, units: ReserveItems, work: impl FnOnce(&Handle<'_>) -> Result<()>) -> Result<()> {
        let handle = self.port.start(units)?;
        match work(&handle) {
            Ok(()) => {
                handle.end();
                Ok(())
            }
            Err(error) => Err(handle.abort(error.context("removing space caches of the old kind"))),
        }
    }
}
