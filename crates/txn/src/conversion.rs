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

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Generation, Result, TreeId};
use creamery_format::{CompatRo, ITEM_LEN, Incompat, RawBlockGroupItem, RawFreeSpaceInfo};
use creamery_tree::{Dropped, TreeDrop};
use creamery_volume::Volume;

use crate::free_space_tree::GroupFreeSpace;
use crate::handle::Handle;
use crate::reserve_items::ReserveItems;
use crate::roots::{RootTree, find_root_item};
use crate::run_refs::{Ports, RefRunner};

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
    pub(crate) fn is_done(self, features: CompatRo) -> bool {
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

/// The conversion to do when the transaction closes.
#[derive(Default)]
pub(crate) struct Conversions(RankedMutex<Option<Conversion>, { rank::LEAF }>);

impl Conversions {
    /// Converts when the running transaction closes.
    /// Errors: in use: another conversion waits.
    pub(crate) fn at_close(&self, conversion: Conversion) -> Result<()> {
        let mut waiting = self.0.lock();
        if waiting.is_some() {
            return Err(Error::new(ErrorKind::Busy, "another conversion is pending"));
        }
        *waiting = Some(conversion);
        Ok(())
    }

    /// Takes the conversion that waits.
    pub(crate) fn take(&self) -> Option<Conversion> {
        self.0.lock().take()
    }

    /// Whether a conversion waits.
    pub(crate) fn any(&self) -> bool {
        self.0.lock().is_some()
    }
}

/// Converts the trees of these owners.
#[derive(Clone, Copy)]
pub(crate) struct Converter<'e> {
    pub(crate) conversions: &'e Conversions,
    pub(crate) volume: &'e Volume,
    pub(crate) root_tree: &'e RootTree,
    pub(crate) runner: &'e RefRunner,
    pub(crate) refs: Ports<'e>,
}

impl Converter<'_> {
    /// Refuses a tree that is there although the superblock lacks its feature: it may contain anything.
    pub(crate) fn check_is_not_there(&self, conversion: Conversion) -> Result<()> {
        let Some(tree) = conversion.makes() else { return Ok(()) };
        match find_root_item(self.root_tree.tree(), tree)? {
            Some(_) => {
                let what = format!("tree {tree} exists, but the superblock lacks its feature");
                Err(Error::new(ErrorKind::Corrupt, what))
            }
            None => Ok(()),
        }
    }

    /// Refuses a block group tree that Linux does not mount.
    pub(crate) fn check_has_what_a_group_tree_needs(&self) -> Result<()> {
        let missing = if self.refs.groups.free_space_tree.loaded().is_none() {
            "a free space tree"
        } else if !self.refs.groups.superblock.incompat().contains(Incompat::NO_HOLES) {
            "the feature no-holes"
        } else {
            return Ok(());
        };
        Err(Error::invalid(format!("a block group tree requires {missing}")))
    }

    /// Items to reserve: for the new tree, with half-full leaves, for leaves that change, and for dropping a tree.
    pub(crate) fn items(&self, conversion: Conversion) -> u32 {
        let (sector, chunks) = (u64::from(self.volume.sector_size()), self.volume.chunks());
        let bytes = |of_group: fn(u64, u64) -> u64| {
            chunks.iter().fold(0, |sum: u64, chunk| {
                sum.saturating_add(GROUP_BYTES).saturating_add(of_group(chunk.len, sector))
            })
        };
        let (made, touched) = match conversion {
            Conversion::ToFreeSpaceTree => (bytes(GroupFreeSpace::bytes_at_most), 0),
            // Each group's item may lie in another leaf of the extent tree.
            _ => (bytes(|_, _| 0), self.refs.extent_tree.tree().blocks().min(chunks.len() as u64)),
        };
        let dropped = self.refs.groups.block_groups.own_tree().as_ref().map_or(0, |tree| tree.blocks());
        let items = (made.saturating_mul(2) / ReserveItems::bytes_of_an_item(self.volume.node_size()))
            .saturating_add(touched);
        u32::try_from(items.saturating_add(dropped).saturating_add(ITEMS)).unwrap_or(u32::MAX)
    }

    /// Runs the waiting conversion, if there is one, with the gate closed.
    pub(crate) fn run_waiting(&self, handle: &Handle<'_>) -> Result<()> {
        let Some(conversion) = self.conversions.take() else { return Ok(()) };
        let groups = self.refs.groups;
        let features = groups.superblock.compat_ro();
        if conversion.is_done(features) {
            return Ok(()); // another thread was faster
        }
        // This completes the extent tree and the items of block groups.
        groups.record_chunks(handle)?;
        while self.runner.turn().round(self.refs, handle)? {}
        groups.record_used(handle)?;
        match conversion {
            Conversion::ToFreeSpaceTree => self.fill_free_space_tree(handle)?,
            Conversion::ToBlockGroupTree => {
                let own = handle.create_tree(TreeId::BLOCK_GROUP)?;
                groups.block_groups.take_to(handle, Some(own), groups.space.groups())?;
            }
            Conversion::FromBlockGroupTree => {
                groups.block_groups.take_to(handle, None, groups.space.groups())?;
                let tree = self.root_tree.get(TreeId::BLOCK_GROUP)?;
                let dropped = TreeDrop::new(tree, Generation::default(), None).step(handle, u32::MAX)?;
                assert_eq!(dropped, Dropped::Wholly, "there is room for all references that there may be");
                handle.remove_tree(TreeId::BLOCK_GROUP)?;
            }
        }
        groups.superblock.set_compat_ro(conversion.change(features));
        Ok(())
    }

    fn fill_free_space_tree(&self, handle: &Handle<'_>) -> Result<()> {
        let (tree, groups) = (handle.create_tree(TreeId::FREE_SPACE)?, self.refs.groups);
        for group in groups.space.groups() {
            let mut free = Vec::new();
            let (range, sector) = ((group.start, group.len), u64::from(self.volume.sector_size()));
            let visit = &mut |start, len| free.push((start, len));
            self.refs.extent_tree.each_gap(range, group.recorded_used(), sector, visit)?;
            GroupFreeSpace::new(Arc::clone(&tree), group.start, group.len, self.volume.sector_size())
                .fill(handle, &free)?;
        }
        groups.free_space_tree.set(tree);
        Ok(())
    }
}
