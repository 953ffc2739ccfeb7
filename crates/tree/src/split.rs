//! Making a tree grow: splitting leaves and inner nodes, and adding a root.
//!
//! ```text
//!        [ .. L .. ]                 [ .. L  R .. ]
//!             |            cut m          |   \
//!   L: 0 1 .. m-1 m .. n-1  ==>   0 .. m-1   m .. n-1
//! ```
//! An insertion past a leaf's last item cuts at n: the left leaf stays full and the new item starts a leaf of
//! its own, so that ascending keys fill their leaves. Every other cut makes both sides as even as possible, with
//! the new item counted in. If an item is so large that neither side of any cut has room for it, two cuts give it
//! a leaf of its own.

use creamery_base::{Error, ErrorKind, Result};
use creamery_format::{BlockRef, Key};

use crate::division::Division;
use crate::host::CowHost;
use crate::path::{NodeGuard, Path};
use crate::redistribute::{Cut, Insertion, Room};
use crate::tree::Tree;

/// Cuts that the largest item may need.
const CUTS_MAX: usize = 3;
/// Room for pointers that an inner node keeps: two for a leaf split in three, and one spare.
pub(crate) const SPARE_POINTERS: usize = 3;

impl Tree {
    /// Makes room in the path's leaf for an insertion that does not fit: moves items to a sibling, else splits. Afterwards the path
    /// leads to the leaf and slot for the insertion. The parent, if any, is write-locked.
    pub(crate) fn make_room(
        &self,
        host: &dyn CowHost,
        path: &mut Path,
        key: &Key,
        room: usize,
        found: bool,
    ) -> Result<()> {
        // Callers ask for no more than a leaf holds. If their arithmetic is off, this stops before any change.
        if room > self.leaf_capacity() {
            return Err(self.no_room(path, key, room));
        }
        if !path.holds(1) {
            self.grow_root(host, path, 0)?;
        }
        let appends = !found && path.slots[0] == path.block(0).count();
        if !appends && self.push_to_sibling(host, path, room, found)? {
            self.count(|counters| &counters.leaf_pushes);
        }
        let mut cuts = 0;
        while path.block(0).free_space() < room {
            if cuts == CUTS_MAX {
                return Err(self.no_room(path, key, room));
            }
            self.split_leaf(host, path, key, room, found)?;
            cuts += 1;
        }
        path.note_behind(1);
        Ok(())
    }

    fn no_room(&self, path: &Path, key: &Key, room: usize) -> Error {
        let (id, leaf) = (self.id(), path.block(0));
        let (at, free) = (leaf.logical(), leaf.free_space());
        let message = format!(
            "corrupt leaf: tree={id} logical={at}, no split of it makes room for item {key}, found {free} \
             bytes free, want {room}"
        );
        Error::new(ErrorKind::Corrupt, message)
    }

    /// The error for a full root at the highest level. 2^64 bytes of nodes fit below it, so such a root is forged.
    fn too_high(&self, root: &BlockRef<'_>) -> Error {
        let message = format!(
            "corrupt node: tree={} logical={} key={}, the root is full at level {}, expected [1, {}] pointers, found {}",
            self.id(),
            root.logical(),
            root.key(0),
            root.level(),
            self.pointers_max() - SPARE_POINTERS - 1,
            root.count(),
        );
        Error::new(ErrorKind::Corrupt, message)
    }

    fn split_leaf(
        &self,
        host: &dyn CowHost,
        path: &mut Path,
        key: &Key,
        room: usize,
        found: bool,
    ) -> Result<()> {
        let insertion = Insertion { slot: path.slots[0], room, found };
        let capacity = self.max_item_size() + creamery_format::ITEM_LEN;
        let cut = Room { left: 0, right: 0, capacity }.best_cut(path.block(0), insertion);
        if cut.is_none() && found && insertion.slot == 0 {
            // The item fits into a leaf and is its leaf's first: no cut before it can help.
            return Err(self.no_room(path, key, room));
        }
        let Cut { at, goes_left } = cut.unwrap_or(Cut { at: insertion.slot, goes_left: !found });
        let old_count = path.block(0).count();
        let before = Division::of_one(path.block(0));
        let hint = path.block(0).logical();
        let mut right = self.new_block(host, 0, hint)?;
        let moved = old_count - at;
        right.block_mut().copy_items_from(0, path.block(0), at, moved);
        path.block_mut(0).remove_items(at, moved);
        before.check_split(path.block(0), right.block());
        path.write(0).narrow();
        let right_key = right.block().first_key().unwrap_or(*key);
        let parent_slot = path.slots[1] + 1;
        let logical = right.block().logical();
        path.block_mut(1).insert_ptr(parent_slot, &right_key, logical, host.generation());
        self.count(|counters| &counters.leaf_splits);
        if !goes_left {
            path.slots[1] = parent_slot;
            path.slots[0] = insertion.slot - at;
            path.set(0, NodeGuard::Write(right));
        }
        Ok(())
    }

    /// Splits the write-locked inner node at `level`; the path follows its slot into one of the halves. The
    /// parent has room, because the search split it on the way down if necessary.
    pub(crate) fn split_node(&self, host: &dyn CowHost, path: &mut Path, level: usize) -> Result<()> {
        if !path.holds(level + 1) {
            self.grow_root(host, path, level)?;
        }
        let block = path.block(level);
        let (node_count, slot, hint) = (block.count(), path.slots[level], block.logical());
        // Ascending keys: leave the left node full.
        let middle = if slot + 1 == node_count { node_count - 1 } else { node_count / 2 };
        let node_level = u8::try_from(level).expect("a level fits");
        let mut right = self.new_block(host, node_level, hint)?;
        let moved = node_count - middle;
        let before = Division::of_one(path.block(level));
        right.block_mut().copy_ptrs_from(0, path.block(level), middle, moved);
        path.block_mut(level).remove_ptrs(middle, moved);
        before.check_split(path.block(level), right.block());
        let (key, logical) = (right.block().key(0), right.block().logical());
        let parent_slot = path.slots[level + 1] + 1;
        path.block_mut(level + 1).insert_ptr(parent_slot, &key, logical, host.generation());
        self.count(|counters| &counters.node_splits);
        if slot >= middle {
            path.slots[level + 1] = parent_slot;
            path.slots[level] = slot - middle;
            path.set(level, NodeGuard::Write(right));
        }
        path.note_behind(level + 1);
        Ok(())
    }

    /// Puts a new root above the write-locked root at `level`.
    fn grow_root(&self, host: &dyn CowHost, path: &mut Path, level: usize) -> Result<()> {
        let old = path.block(level);
        let (logical, key) = (old.logical(), old.first_key().expect("a full root is not empty"));
        let root_level = u8::try_from(level + 1).expect("a level fits");
        if root_level > creamery_format::LEVEL_MAX {
            return Err(self.too_high(&old));
        }
        let mut root = self.new_block(host, root_level, logical)?;
        root.block_mut().insert_ptr(0, &key, logical, host.generation());
        self.set_root(std::sync::Arc::clone(root.buffer()));
        path.slots[level + 1] = 0;
        path.set(level + 1, NodeGuard::Write(root));
        Ok(())
    }
}
