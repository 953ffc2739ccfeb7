//! The trees of the last durable commit.
//!
//! A tree's commit root is that of the last transaction that closed, which may still be on its way to the devices. A walker that checks the
//! devices needs an earlier state: the one of the superblock there. A guard keeps all its blocks from being overwritten, so damage that such a
//! walker finds is real, however much is written beside it.
//!
//! # Invariants
//! - SCRUB-1: the trees are those of one commit that is durable, and the guard is at that commit or at an earlier one. Held by [`DurableTree`]: no
//!   other tree is walked under the guard. Shown by `durable_trees_stay_as_they_are_beside_commits`.
//! - SCRUB-5: a thread that walks over them holds no handle, so a commit waits for no walker.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Result, TreeId, Wait};
use creamery_format::{Key, KeyType, RawRootItem, Superblock};
use creamery_tree::{CommitCursor, CommitRootGuard, RootPointer, Tree, Walk};

use super::Engine;
use crate::held;
use crate::roots::root_pointer;

/// The trees of a durable commit, kept as they are.
///
/// ```no_run
/// # fn show(engine: &creamery_txn::Engine) -> creamery_base::Result<()> {
/// use creamery_base::{TreeId, Wait};
/// use creamery_format::Key;
/// let durable = engine.durable_trees()?;
/// let devices = durable.tree(TreeId::DEV)?;
/// let cursor = durable.cursor(&devices, &Key::MIN, Wait::Yes)?;
/// println!("{:?} of generation {}", cursor.item().map(|(key, _)| key), durable.generation());
/// # Ok(())
/// # }
/// ```
pub struct DurableTrees<'e> {
    engine: &'e Engine,
    guard: CommitRootGuard,
    superblock: Superblock,
    root_tree: DurableTree,
}

/// A tree of a durable commit, which [`DurableTrees::cursor`] walks over. Walking takes no lock of it: the tree never changes.
///
/// ```no_run
/// # fn show(engine: &creamery_txn::Engine) -> creamery_base::Result<()> {
/// use creamery_base::TreeId;
/// let durable = engine.durable_trees()?;
/// let extents: creamery_txn::DurableTree = durable.tree(TreeId::EXTENT)?;
/// # Ok(())
/// # }
/// ```
pub struct DurableTree {
    tree: Tree,
    commit: Generation,
}

impl Engine {
    /// The trees of the last durable commit, for a walker that yields: it drops them soon after
    /// [`is_in_the_way`](DurableTrees::is_in_the_way).
    /// Errors: device errors; damage.
    ///
    /// # Panics
    /// The thread holds a handle (SCRUB-5).
    pub fn durable_trees(&self) -> Result<DurableTrees<'_>> {
        held::assert_none("SCRUB-5: a thread with a handle walks over a durable commit");
        // The guard comes first: a commit that becomes durable in between is newer than it, and kept as well.
        let guard = self.store.readers().yielding_guard();
        let superblock = self.volume().superblock();
        let (kept, durable) = (guard.generation(), superblock.generation());
        assert!(kept <= durable, "SCRUB-1: a guard at {kept} for the commit {durable}");
        let (logical, level) = superblock.root();
        let root = RootPointer { logical, level, generation: durable };
        let tree = Tree::open_committed(Arc::clone(&self.store), TreeId::ROOT, root)?;
        let root_tree = DurableTree { tree, commit: durable };
        Ok(DurableTrees { engine: self, guard, superblock, root_tree })
    }
}

impl DurableTrees<'_> {
    /// The generation of the commit.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.superblock.generation()
    }

    /// The superblock of the commit.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Whether a thread waits for space that the commit uses and later ones do not.
    #[must_use]
    pub fn is_in_the_way(&self) -> bool {
        self.guard.is_in_the_way()
    }

    /// A tree of the commit that is no subvolume.
    /// Errors: not found; device errors; damage.
    pub fn tree(&self, id: TreeId) -> Result<DurableTree> {
        let root = match id {
            TreeId::CHUNK => {
                let (logical, level, generation) = self.superblock.chunk_root();
                RootPointer { logical, generation, level }
            }
            _ => self.root_of(id)?,
        };
        let tree = Tree::open_committed(Arc::clone(&self.engine.store), id, root)?;
        Ok(DurableTree { tree, commit: self.generation() })
    }

    fn root_of(&self, id: TreeId) -> Result<RootPointer> {
        let key = Key::new(id.objectid(), KeyType::ROOT_ITEM, 0);
        let cursor = self.cursor(&self.root_tree, &key, Wait::Yes)?;
        let found =
            cursor.item().filter(|(found, _)| (found.objectid, found.kind) == (key.objectid, key.kind));
        let (key, data) = found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("tree {id}")))?;
        let item = RawRootItem::from_item(data)
            .map_err(|kind| Error::with_source(ErrorKind::Corrupt, format!("root item {key}"), kind))?;
        Ok(root_pointer(&item))
    }

    /// A cursor at the first item of `tree` whose key is `start` or greater.
    /// Errors: device errors; damage.
    ///
    /// # Panics
    /// The tree is that of another commit (SCRUB-1).
    pub fn cursor<'t>(
        &self,
        tree: &'t DurableTree,
        start: &Key,
        walk: impl Into<Walk>,
    ) -> Result<CommitCursor<'t>> {
        let (kept, found) = (self.generation(), tree.commit);
        assert_eq!(found, kept, "SCRUB-1: a tree of the commit {found} under a guard for {kept}");
        tree.tree.commit_cursor_under(self.guard.clone(), start, Generation::default(), walk)
    }
}
