//! Conversions of a filesystem: to a free space tree, and of its block groups to a tree of their own or back to the extent
//! tree.
//!
//! A conversion is one transaction with the gate closed, after all queued changes are in the trees. Changes that filling
//! the new tree queues run after it, against trees that agree again (RUN-3). So after a crash the filesystem is in the old form or in the new one,
//! never half of either.
//!
//! # Invariants
//! - CONVERT-1: from the first look at a block group's free space to the last group's items no delayed ref runs. Held by the gate:
//!   no other thread is inside. Shown by `conversions_survive_every_power_cut`.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Logical, Result, TreeId};
use creamery_format::{CompatRo, ITEM_LEN, Incompat, RawBlockGroupItem, RawFreeSpaceInfo};
use creamery_tree::{Dropped, TreeDrop};

use super::Engine;
use crate::free_space_tree::GroupFreeSpace;
use crate::handle::Handle;
use crate::roots::find_root_item;
use crate::space_info::BlockGroup;
use crate::units::Units;

/// Items that a conversion reserves besides those that grow with the filesystem.
const ITEMS: u64 = 8;
/// Bytes in a leaf of a block group's item and its free space info item.
const GROUP_BYTES: u64 =
    (2 * ITEM_LEN + size_of::<RawBlockGroupItem>() + size_of::<RawFreeSpaceInfo>()) as u64;

/// A change of the trees that describe a filesystem's space.
///
/// ```
/// use creamery_txn::Conversion;
/// assert_ne!(Conversion::ToBlockGroupTree, Conversion::FromBlockGroupTree);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Conversion {
    /// Adds the free space tree (`btrfstune --convert-to-free-space-tree`, Linux' `space_cache=v2`).
    ToFreeSpaceTree,
    /// Moves the block groups to a tree of their own, which mounts faster (`btrfstune --convert-to-block-group-tree`).
    ToBlockGroupTree,
    /// Moves the block groups back to the extent tree (`btrfstune --convert-from-block-group-tree`).
    FromBlockGroupTree,
}

impl Conversion {
    /// Whether a filesystem with these features has this conversion already.
    fn is_done(self, features: CompatRo) -> bool {
        match self {
            Self::ToFreeSpaceTree => features.contains(CompatRo::FREE_SPACE_TREE),
            Self::ToBlockGroupTree => features.contains(CompatRo::BLOCK_GROUP_TREE),
            Self::FromBlockGroupTree => !features.contains(CompatRo::BLOCK_GROUP_TREE),
        }
    }

    /// The id of the tree that this conversion creates, if it creates one.
    const fn makes(self) -> Option<TreeId> {
        match self {
            Self::ToFreeSpaceTree => Some(TreeId::FREE_SPACE),
            Self::ToBlockGroupTree => Some(TreeId::BLOCK_GROUP),
            Self::FromBlockGroupTree => None,
        }
    }

    fn change(self, features: CompatRo) -> CompatRo {
        match self {
            Self::ToFreeSpaceTree => features | CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID,
            Self::ToBlockGroupTree => features | CompatRo::BLOCK_GROUP_TREE,
            Self::FromBlockGroupTree => features - CompatRo::BLOCK_GROUP_TREE,
        }
    }
}

impl Engine {
    /// Converts the filesystem; the conversion and all earlier changes are durable on return. False when there was nothing to convert. Never
    /// call it with a handle.
    /// Errors: invalid: a block group tree without a free space tree or without no-holes, which Linux refuses; in use: another
    /// conversion; damage: the tree is there; no space; those of a commit.
    pub fn convert(&self, conversion: Conversion) -> Result<bool> {
        self.check_writable()?;
        if conversion.is_done(self.superblock.compat_ro()) {
            return Ok(false);
        }
        if conversion == Conversion::ToBlockGroupTree {
            self.check_has_what_a_group_tree_needs()?;
        }
        let handle = self.start(Units::items(self.items_to_convert(conversion)))?;
        let (running, room) = (handle.generation(), handle.keep_all());
        // While this thread holds a handle, no other conversion comes between the feature, the tree and this one.
        let waits = match conversion.is_done(self.superblock.compat_ro()) {
            true => Ok(false),
            false => self
                .check_is_not_there(conversion)
                .and_then(|()| self.convert_at_close(conversion))
                .map(|()| true),
        };
        handle.end();
        if !waits? {
            return Ok(false);
        }
        let committed = self.commit_through(running);
        if committed.is_err() {
            *self.conversion.lock() = None; // gives its room back
        }
        drop(room);
        committed.map(|()| true)
    }

    fn convert_at_close(&self, conversion: Conversion) -> Result<()> {
        let mut waiting = self.conversion.lock();
        if waiting.is_some() {
            return Err(Error::new(ErrorKind::Busy, "another conversion is pending"));
        }
        *waiting = Some(conversion);
        Ok(())
    }

    /// Refuses a tree that is there although the superblock lacks its feature: it may contain anything.
    fn check_is_not_there(&self, conversion: Conversion) -> Result<()> {
        let Some(tree) = conversion.makes() else { return Ok(()) };
        match find_root_item(self.root_tree.tree(), tree)? {
            Some(_) => {
                let what = format!("tree {tree} exists, but the superblock lacks its feature");
                Err(Error::new(ErrorKind::Corrupt, what))
            }
            None => Ok(()),
        }
    }

    fn check_has_what_a_group_tree_needs(&self) -> Result<()> {
        let missing = if self.free_space_tree.loaded().is_none() {
            "a free space tree"
        } else if !self.incompat().contains(Incompat::NO_HOLES) {
            "the feature no-holes"
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!("a block group tree requires {missing}")))
    }

    /// Items to reserve: for the new tree, with half-full leaves, for leaves that change, and for dropping a tree.
    fn items_to_convert(&self, conversion: Conversion) -> u32 {
        let (sector, chunks) = (u64::from(self.sector_size()), self.volume().chunks());
        let bytes = |of_group: fn(u64, u64) -> u64| {
            chunks.iter().fold(0, |sum: u64, chunk| {
                sum.saturating_add(GROUP_BYTES).saturating_add(of_group(chunk.len, sector))
            })
        };
        let (made, touched) = match conversion {
            Conversion::ToFreeSpaceTree => (bytes(GroupFreeSpace::bytes_at_most), 0),
            // Each group's item may lie in another leaf of the extent tree.
            _ => (bytes(|_, _| 0), self.extent_tree.tree().blocks().min(chunks.len() as u64)),
        };
        let dropped = self.block_groups.own_tree().as_ref().map_or(0, |tree| tree.blocks());
        let items = (made.saturating_mul(2) / self.item_bytes()).saturating_add(touched);
        u32::try_from(items.saturating_add(dropped).saturating_add(ITEMS)).unwrap_or(u32::MAX)
    }

    /// Runs the waiting conversion, if there is one, with the gate closed.
    pub(super) fn convert_what_waits(&self, handle: &Handle<'_>) -> Result<()> {
        let Some(conversion) = self.conversion.lock().take() else { return Ok(()) };
        let features = self.superblock.compat_ro();
        if conversion.is_done(features) {
            return Ok(()); // another thread was faster
        }
        // This completes the extent tree and the items of block groups.
        let record_chunks = || self.record_chunks(handle);
        self.record_chunks(handle)?;
        while self.runner.turn().round(self.ports(&record_chunks), handle)? {}
        self.record_groups(handle)?;
        match conversion {
            Conversion::ToFreeSpaceTree => self.fill_free_space_tree(handle)?,
            Conversion::ToBlockGroupTree => {
                let own = handle.create_tree(TreeId::BLOCK_GROUP)?;
                self.block_groups.take_to(handle, Some(own), self.groups())?;
            }
            Conversion::FromBlockGroupTree => {
                self.block_groups.take_to(handle, None, self.groups())?;
                let tree = self.tree(TreeId::BLOCK_GROUP)?;
                let dropped = TreeDrop::new(tree, Generation::default(), None).step(handle, u32::MAX)?;
                assert_eq!(dropped, Dropped::Wholly, "there is room for all references that there may be");
                handle.remove_tree(TreeId::BLOCK_GROUP)?;
            }
        }
        self.superblock.set_compat_ro(conversion.change(features));
        Ok(())
    }

    fn fill_free_space_tree(&self, handle: &Handle<'_>) -> Result<()> {
        let tree = handle.create_tree(TreeId::FREE_SPACE)?;
        for group in self.groups() {
            let mut free = Vec::new();
            let (range, sector) = ((group.start, group.len), u64::from(self.sector_size()));
            let visit = &mut |start, len| free.push((start, len));
            self.extent_tree.each_gap(range, group.recorded_used(), sector, visit)?;
            GroupFreeSpace::new(Arc::clone(&tree), group.start, group.len, self.sector_size())
                .fill(handle, &free)?;
        }
        self.free_space_tree.set(tree);
        Ok(())
    }

    /// All block groups, in the order of their addresses.
    fn groups(&self) -> impl Iterator<Item = Arc<BlockGroup>> {
        let mut from = Logical::new(0);
        std::iter::from_fn(move || {
            let group = self.space.next_group(from)?;
            from = group.end();
            Some(group)
        })
    }
}
