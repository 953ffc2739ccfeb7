//! Checking every block of a tree: the invariants of a B-tree, and that it holds the items of a model.

use std::sync::Arc;

use creamery_base::{TreeId, Wait};
use creamery_format::{BlockRef, Expected, Key};
use creamery_tree::ExtentBuffer;

use crate::world::{NODE, World};

impl World {
    /// Verifies every block and compares all items with `model`, in order. No other thread may use the tree meanwhile.
    pub(crate) fn verify<'m>(&self, model: impl IntoIterator<Item = (Key, &'m [u8])>) {
        assert!(!self.store.is_poisoned());
        let mut walk = VerifyWalk { world: self, model: model.into_iter(), blocks: 0 };
        let root = copied(self.tree.root_buffer());
        walk.block(BlockRef::new(&root), true, None);
        if let Some((key, _)) = walk.model.next() {
            panic!("{key} and perhaps others are missing");
        }
        let blocks = walk.blocks;
        assert_eq!(self.tree.blocks(), blocks, "blocks in the tree's count");
        assert_eq!(self.host.blocks_in_use(), blocks, "blocks in use");
    }
}

/// Copies the block's bytes, so that a walk holds one lock at a time.
fn copied(buffer: Arc<ExtentBuffer>) -> Vec<u8> {
    buffer.read(Wait::Yes).expect("waiting is allowed").bytes().to_vec()
}

struct VerifyWalk<'w, M> {
    world: &'w World,
    model: M,
    blocks: u64,
}

impl<'m, M: Iterator<Item = (Key, &'m [u8])>> VerifyWalk<'_, M> {
    /// `end` is the first key behind this subtree.
    fn block(&mut self, block: BlockRef<'_>, is_root: bool, end: Option<Key>) {
        let (at, count) = (block.logical(), block.count());
        self.blocks += 1;
        assert!(count > 0 || (is_root && block.is_leaf()), "block {at} is empty");
        let mut before = None;
        for slot in 0..count {
            let key = block.key(slot);
            assert!(before < Some(key), "block {at} slot {slot}: {key} after {before:?}");
            before = Some(key);
        }
        assert!(
            before.is_none() || end.is_none() || before < end,
            "block {at}: {before:?} belongs behind {end:?}"
        );
        if block.is_leaf() {
            return self.leaf(block);
        }
        let mut used = 0;
        for slot in 0..count {
            used += 1;
            let (logical, generation) = block.child(slot);
            let want = Expected {
                logical,
                level: Some(block.level() - 1),
                generation: Some(generation),
                owner: Some(TreeId::FS),
                first_key: Some(block.key(slot)),
                fsid: self.world.volume.metadata_uuid(),
                checksum: self.world.volume.checksum_type(),
            };
            let bytes = copied(self.world.store.get(&want, Wait::Yes).expect("a child"));
            let child = BlockRef::new(&bytes);
            let (found, key) = (child.first_key(), block.key(slot));
            assert!(
                found == Some(key) || found > Some(key) && !block.is_written() && !child.is_written(),
                "block {at} slot {slot}: key {key} of the pointer to {logical}, whose first is {found:?}"
            );
            assert_eq!(
                (child.level(), child.generation()),
                (block.level() - 1, generation),
                "block {logical}"
            );
            assert_eq!(child.logical(), logical);
            let behind = if slot + 1 < count { Some(block.key(slot + 1)) } else { end };
            self.block(child, false, behind);
        }
        assert_eq!(used, count);
    }

    fn leaf(&mut self, leaf: BlockRef<'_>) {
        let at = leaf.logical();
        let capacity = NODE as usize - creamery_format::HEADER_LEN;
        let (mut boundary, mut used) = (capacity, 0);
        for slot in 0..leaf.count() {
            let end = leaf.item_offset(slot) + leaf.item_size(slot);
            assert!(!leaf.is_written() || end == boundary, "block {at} slot {slot}");
            boundary = leaf.item_offset(slot);
            used += creamery_format::ITEM_LEN + leaf.item_size(slot);
            let found = (leaf.key(slot), leaf.data(slot));
            let Some(known) = self.model.next() else { panic!("{} is one too many", found.0) };
            assert_eq!(found, known, "block {at} slot {slot}");
        }
        assert_eq!(leaf.free_space(), capacity - used, "block {at}: free space");
    }
}
