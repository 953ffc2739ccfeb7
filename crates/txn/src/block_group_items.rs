//! The items of block groups, in the block group tree or, where there is none, in the extent tree.

use std::sync::Arc;

use arc_swap::{ArcSwapOption, Guard};
use creamery_base::{Error, ErrorKind, ObjectId, Result, Wait};
use creamery_format::{Key, KeyType, RawBlockGroupItem};
use creamery_tree::{CowHost, Tree};
use creamery_volume::Chunk;
use zerocopy::{FromBytes, IntoBytes};

use crate::space_info::BlockGroup;

/// The items of all block groups.
pub(crate) struct BlockGroupItems {
    extent_tree: Arc<Tree>,
    /// Their own tree, if they have one.
    own: ArcSwapOption<Tree>,
}

fn key(group: &BlockGroup) -> Key {
    Key::new(ObjectId::new(group.start.get()), KeyType::BLOCK_GROUP_ITEM, group.len)
}

fn item(group: &BlockGroup, used: u64) -> RawBlockGroupItem {
    RawBlockGroupItem {
        used: used.into(),
        chunk_objectid: ObjectId::FIRST_CHUNK_TREE.get().into(),
        flags: group.flags.bits().into(),
    }
}

fn damaged(key: &Key) -> Error {
    Error::new(ErrorKind::Corrupt, format!("block group item {key} is missing or damaged"))
}

impl BlockGroupItems {
    pub(crate) fn new(extent_tree: Arc<Tree>, own: Option<Arc<Tree>>) -> Self {
        Self { extent_tree, own: ArcSwapOption::new(own) }
    }

    /// Their own tree, if they have one.
    pub(crate) fn own_tree(&self) -> Guard<Option<Arc<Tree>>> {
        self.own.load()
    }

    fn tree(&self) -> Arc<Tree> {
        self.own.load_full().unwrap_or_else(|| Arc::clone(&self.extent_tree))
    }

    /// Moves the items of all `groups` to another tree: a tree of their own, or the extent tree.
    ///
    /// # Errors
    /// Damage: there is no item; those of the tree.
    pub(crate) fn take_to(
        &self,
        host: &dyn CowHost,
        own: Option<Arc<Tree>>,
        groups: impl Iterator<Item = Arc<BlockGroup>>,
    ) -> Result<()> {
        let (from, to) = (self.tree(), own.as_ref().unwrap_or(&self.extent_tree));
        for group in groups {
            let key = key(&group);
            if !from.remove(host, &key)? {
                return Err(damaged(&key));
            }
            to.insert(host, &key, item(&group, group.recorded_used()).as_bytes())?;
        }
        self.own.store(own);
        Ok(())
    }

    /// Used bytes in the group of `chunk`.
    ///
    /// # Errors
    /// Damage: there is no item, or it does not fit the chunk; those of the tree.
    pub(crate) fn used(&self, chunk: &Chunk) -> Result<u64> {
        let key = Key::new(ObjectId::new(chunk.start.get()), KeyType::BLOCK_GROUP_ITEM, chunk.len);
        let found = self.tree().get(&key, Wait::Yes, |data| {
            RawBlockGroupItem::read_from_bytes(data).ok().map(|item| (item.used.get(), item.flags()))
        })?;
        let (used, flags) = found.flatten().ok_or_else(|| damaged(&key))?;
        if flags != chunk.flags || used > chunk.len {
            let message = format!(
                "block group {}: {used} bytes used, {flags:?}; its chunk has {} bytes, {:?}",
                chunk.start, chunk.len, chunk.flags
            );
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(used)
    }

    /// Records a new group.
    ///
    /// # Errors
    /// Those of the tree.
    pub(crate) fn insert(&self, host: &dyn CowHost, group: &BlockGroup) -> Result<()> {
        self.tree().insert(host, &key(group), item(group, group.recorded_used()).as_bytes())
    }

    /// Writes the used bytes of a group.
    ///
    /// # Errors
    /// Damage; those of the tree.
    pub(crate) fn set_used(&self, host: &dyn CowHost, group: &BlockGroup, used: u64) -> Result<()> {
        let (key, item) = (key(group), item(group, used));
        let updated = self.tree().update(host, &key, |data| {
            let fits = data.len() == item.as_bytes().len();
            if fits {
                data.copy_from_slice(item.as_bytes());
            }
            fits
        })?;
        if updated == Some(true) { Ok(()) } else { Err(damaged(&key)) }
    }

    /// Removes a group's item.
    ///
    /// # Errors
    /// Those of the tree.
    pub(crate) fn remove(&self, host: &dyn CowHost, group: &BlockGroup) -> Result<()> {
        self.tree().remove(host, &key(group)).map(drop)
    }
}
