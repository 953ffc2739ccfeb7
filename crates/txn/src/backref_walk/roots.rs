//! The trees that a block is part of: from block to parents, up to the roots.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Logical, Result, TreeId};
use creamery_format::{BlockRef, Key, LEVEL_MAX};

use super::references::References;
use super::trees::{BlockSource, Root, Trees};
use crate::extent_tree::Backref;

/// Blocks whose trees are cached. When there are more, the cache is cleared.
const KNOWN_MAX: usize = 64 << 10;

/// One step up from a block.
enum Up {
    /// It is the root of a tree that counts.
    Root(TreeId),
    Parent(Logical),
    /// No tree that counts leads there.
    Nowhere,
}

pub(super) struct RootsAbove {
    /// Most trees to look for, for each block.
    most: usize,
    /// Whether trees of relocation and deleted trees count, the latter until they are dropped.
    with_deleted: bool,
    known: HashMap<Logical, Arc<[TreeId]>>,
}

fn damaged(block: Logical, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("corrupt extent: logical={block}, {what}"))
}

impl RootsAbove {
    pub(super) fn new(most: usize) -> Self {
        Self { most, with_deleted: false, known: HashMap::new() }
    }

    /// Looks for `most` trees, including deleted ones that are not dropped yet, and those of relocation.
    pub(super) fn with_deleted(most: usize) -> Self {
        Self { with_deleted: true, ..Self::new(most) }
    }

    /// The trees that the block at `block`, of level `level`, is part of; at most `most` of them.
    /// It calls itself with the next level, at most seven times (WALK-1).
    /// Errors: device errors; damage.
    pub(super) fn of(
        &mut self,
        trees: &mut Trees<impl BlockSource>,
        block: Logical,
        level: u8,
    ) -> Result<Arc<[TreeId]>> {
        if let Some(known) = self.known.get(&block) {
            return Ok(Arc::clone(known)); // WALK-2
        }
        let mut found = BTreeSet::new();
        let mut references = References::to(block);
        'enough: while let Some(some) = references.next(trees)? {
            for backref in some {
                match step_up(trees, block, level, backref, self.with_deleted)? {
                    Up::Root(id) => drop(found.insert(id)),
                    Up::Parent(parent) => found.extend(self.of(trees, parent, level + 1)?.iter().copied()),
                    Up::Nowhere => {}
                }
                if found.len() >= self.most {
                    break 'enough;
                }
            }
        }
        let roots: Arc<[TreeId]> = found.into_iter().take(self.most).collect();
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(block, Arc::clone(&roots));
        Ok(roots)
    }
}

fn step_up(
    trees: &mut Trees<impl BlockSource>,
    block: Logical,
    level: u8,
    backref: Backref,
    with_deleted: bool,
) -> Result<Up> {
    let parent = match backref {
        Backref::SharedBlock { parent } if parent == block && with_deleted => {
            return Ok(Up::Root(TreeId::TREE_RELOC));
        }
        Backref::SharedBlock { parent } if parent == block => None,
        Backref::SharedBlock { parent } => Some(parent_by_address(trees, block, level, parent)?),
        Backref::TreeBlock { root } => {
            let Some(tree) = trees.root(root)? else { return Ok(Up::Nowhere) };
            if tree.pointer.logical == block {
                return Ok(if tree.is_deleted && !with_deleted { Up::Nowhere } else { Up::Root(root) });
            }
            parent_in_tree(trees, block, level, tree)?
        }
        Backref::ExtentData { .. } | Backref::SharedData { .. } => {
            return Err(damaged(block, "a tree block is referred to as data"));
        }
    };
    Ok(parent.map_or(Up::Nowhere, Up::Parent))
}

/// Finds the parent by the block's first key. Some blocks of a tree that is being dropped are gone, but none above an existing one.
fn parent_in_tree(
    trees: &mut Trees<impl BlockSource>,
    block: Logical,
    level: u8,
    tree: Root,
) -> Result<Option<Logical>> {
    let first = first_key(trees, block, level)?;
    match trees.parent(tree.pointer, block, level, &first) {
        Err(error) if tree.is_deleted && error.kind() == ErrorKind::Corrupt => Ok(None),
        other => other,
    }
}

fn first_key(trees: &mut Trees<impl BlockSource>, block: Logical, level: u8) -> Result<Key> {
    let bytes = trees.block(block, level)?;
    BlockRef::new(&bytes).first_key().ok_or_else(|| damaged(block, "an empty tree block is not a root"))
}

/// Checks that `parent` is one (WALK-3).
fn parent_by_address(
    trees: &mut Trees<impl BlockSource>,
    child: Logical,
    level: u8,
    parent: Logical,
) -> Result<Logical> {
    if level >= LEVEL_MAX {
        return Err(damaged(child, &format!("a block of level {level} has a parent")));
    }
    let bytes = trees.block(parent, level + 1)?;
    let node = BlockRef::new(&bytes);
    if (0..node.count()).any(|slot| node.child(slot).0 == child) {
        return Ok(parent);
    }
    Err(damaged(child, &format!("its parent {parent} does not point to it")))
}
