//! Blocks that a tree has and the extent tree lacks.
//!
//! A change of the UUID finds the blocks in the extent tree. A block that is not listed there would keep the old UUID, and its contents
//! and all blocks below it would become unreadable. So a walk over all trees comes before the first write, and one such block refuses the
//! whole change.
//!
//! Blocks of a tree that is being dropped, or that a balance has left, may be gone already: there, an unlisted block is ignored.

use std::collections::HashSet;

use creamery_base::{Error, ErrorKind, Logical, Result, TreeId};
use creamery_device::AlignedBuffer;
use creamery_format::{BlockRef, Expected};

/// The blocks that the extent tree lists, and those of them that a walk has reached.
#[derive(Default)]
pub(super) struct Listed {
    blocks: HashSet<Logical>,
    reached: HashSet<Logical>,
}

/// A tree to walk.
pub(super) struct WalkedTree {
    pub(super) id: TreeId,
    pub(super) root: Expected,
    /// Whether blocks of it may be gone.
    pub(super) is_dropped: bool,
}

impl Listed {
    /// Adds a block that the extent tree lists.
    pub(super) fn add(&mut self, at: Logical) {
        self.blocks.insert(at);
    }

    /// Walks a tree, and checks that its blocks are listed.
    /// Errors: a block is not listed; those of `read`.
    pub(super) fn check(
        &mut self,
        tree: &WalkedTree,
        read: &dyn Fn(&Expected) -> Result<AlignedBuffer>,
    ) -> Result<()> {
        // The levels bound its depth: reading checks that each is one lower than its parent's.
        let mut todo = vec![Expected { owner: None, ..tree.root }];
        while let Some(want) = todo.pop() {
            if !self.blocks.contains(&want.logical) {
                if tree.is_dropped {
                    continue;
                }
                let what = format!(
                    "tree {} has a tree block at logical {} that the extent tree lacks: it would keep the old UUID \
                     and become unreadable",
                    tree.id, want.logical
                );
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
            // A leaf has no blocks below it, and shared blocks are walked once.
            if want.level == Some(0) || !self.reached.insert(want.logical) {
                continue;
            }
            let bytes = read(&want)?;
            let block = BlockRef::new(&bytes);
            todo.extend((0..block.count()).map(|slot| {
                let (logical, generation) = block.child(slot);
                Expected {
                    logical,
                    level: Some(block.level() - 1),
                    generation: Some(generation),
                    first_key: Some(block.key(slot)),
                    ..want
                }
            }));
        }
        Ok(())
    }
}
