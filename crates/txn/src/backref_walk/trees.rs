//! The trees of one root tree, read by address.
//!
//! Blocks of a commit never change: a change copies a block first. So blocks are cached for a while.

use std::collections::HashMap;

use creamery_base::{Error, ErrorKind, Logical, Result, TreeId};
use creamery_format::{BlockRef, Expected, Key, KeyType, RawRootItem};
use creamery_tree::{BufferStore, CommitRootGuard, CommittedBlock, RootPointer};

use crate::roots::{RootTree, root_pointer};

/// Blocks in the cache. When there are more, the cache is cleared: the store has them, too, so this costs a look there.
const KEPT_MAX: usize = 256;

/// The source of blocks.
pub(crate) trait BlockSource {
    /// The block at an address. Errors: device errors; damage, another level than `level` too.
    fn read(&self, at: Logical, level: u8) -> Result<CommittedBlock>;

    /// A tree's root, where its root item may be out of date. Errors: device errors; damage.
    fn root(&self, _id: TreeId) -> Result<Option<RootPointer>> {
        Ok(None)
    }
}

/// The blocks of a commit.
pub(crate) struct CommittedBlocks<'e> {
    store: &'e BufferStore,
    guard: CommitRootGuard,
}

impl<'e> CommittedBlocks<'e> {
    pub(crate) const fn new(store: &'e BufferStore, guard: CommitRootGuard) -> Self {
        Self { store, guard }
    }
}

impl BlockSource for CommittedBlocks<'_> {
    fn read(&self, at: Logical, level: u8) -> Result<CommittedBlock> {
        read_by_address(self.store, at, level)
    }
}

/// The block at an address, of any tree. Errors: device errors; damage, another level than `level` too.
pub(crate) fn read_by_address(store: &BufferStore, at: Logical, level: u8) -> Result<CommittedBlock> {
    let volume = store.volume();
    let want = Expected {
        logical: at,
        level: Some(level),
        generation: None,
        owner: None,
        first_key: None,
        fsid: volume.metadata_uuid(),
        checksum: volume.checksum_type(),
    };
    store.committed(&want)
}

/// The blocks of a transaction that closes: they do not change while its gate is closed.
pub(crate) struct ClosedBlocks<'e>(pub(crate) &'e RootTree);

impl BlockSource for ClosedBlocks<'_> {
    fn read(&self, at: Logical, level: u8) -> Result<CommittedBlock> {
        read_by_address(self.0.tree().store(), at, level)
    }

    fn root(&self, id: TreeId) -> Result<Option<RootPointer>> {
        self.0.opened(id).map(|tree| tree.root_pointer()).transpose()
    }
}

/// A subvolume's tree, or another one.
#[derive(Clone, Copy)]
pub(super) struct Root {
    pub(super) pointer: RootPointer,
    /// Whether it is deleted: it cannot be reached by name, and some of it may be dropped.
    pub(super) is_deleted: bool,
    /// Everything before this key is dropped.
    pub(super) dropped_to: Key,
}

/// A leaf, and the first key of the next leaf.
pub(super) struct Leaf {
    pub(super) at: Logical,
    pub(super) next: Option<Key>,
    bytes: CommittedBlock,
}

impl Leaf {
    pub(super) fn block(&self) -> BlockRef<'_> {
        BlockRef::new(&self.bytes)
    }

    /// The items from `first` on.
    pub(super) fn from(&self, first: &Key) -> impl Iterator<Item = (Key, &[u8])> {
        let leaf = self.block();
        let (Ok(slot) | Err(slot)) = leaf.search(first, 0);
        (slot..leaf.count()).map(move |slot| (leaf.key(slot), leaf.data(slot)))
    }
}

pub(crate) struct Trees<B> {
    source: B,
    root_tree: RootPointer,
    extent_root: RootPointer,
    blocks: HashMap<Logical, CommittedBlock>,
    roots: HashMap<TreeId, Option<Root>>,
}

impl Trees<CommittedBlocks<'_>> {
    pub(super) const fn guard(&self) -> &CommitRootGuard {
        &self.source.guard
    }
}

impl<B: BlockSource> Trees<B> {
    /// Errors: device errors; damage.
    pub(crate) fn new(source: B, root_tree: RootPointer) -> Result<Self> {
        let (blocks, roots) = (HashMap::new(), HashMap::new());
        let mut trees = Self { source, root_tree, extent_root: root_tree, blocks, roots };
        let missing = || Error::new(ErrorKind::Corrupt, "the root tree has no extent tree");
        trees.extent_root = match trees.source.root(TreeId::EXTENT)? {
            Some(root) => root,
            None => root_pointer(&trees.root_item(TreeId::EXTENT)?.ok_or_else(missing)?),
        };
        Ok(trees)
    }

    pub(super) const fn extent_root(&self) -> RootPointer {
        self.extent_root
    }

    /// The block at an address. Errors: device errors; damage: another level, too.
    pub(super) fn block(&mut self, at: Logical, level: u8) -> Result<CommittedBlock> {
        if let Some(bytes) = self.blocks.get(&at) {
            let found = BlockRef::new(bytes).level();
            if found != level {
                let message = format!("corrupt node: logical={at}, expected {level}, found level {found}");
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            return Ok(bytes.clone());
        }
        let bytes = self.source.read(at, level)?;
        if self.blocks.len() >= KEPT_MAX {
            self.blocks.clear();
        }
        self.blocks.insert(at, bytes.clone());
        Ok(bytes)
    }

    /// The root of a tree; `None` when there is no such tree, and for the copies of trees that relocation makes.
    pub(super) fn root(&mut self, id: TreeId) -> Result<Option<Root>> {
        if let Some(known) = self.roots.get(&id) {
            return Ok(*known);
        }
        let item = if id == TreeId::TREE_RELOC { None } else { self.root_item(id)? };
        let pointer = self.source.root(id)?;
        let root = item.map(|item| {
            let is_deleted = item.refs.get() == 0;
            let dropped_to = if is_deleted { item.drop_progress.into() } else { Key::MIN };
            let pointer = pointer.unwrap_or_else(|| root_pointer(&item));
            Root { pointer, is_deleted, dropped_to }
        });
        self.roots.insert(id, root);
        Ok(root)
    }

    fn root_item(&mut self, id: TreeId) -> Result<Option<RawRootItem>> {
        let last = Key::new(id.objectid(), KeyType::ROOT_ITEM, u64::MAX);
        let Some((key, data)) = self.at_or_before(self.root_tree, &last)? else { return Ok(None) };
        if key.objectid != id.objectid() || key.kind != KeyType::ROOT_ITEM {
            return Ok(None);
        }
        let damaged = |kind| Error::with_source(ErrorKind::Corrupt, format!("root item {key}"), kind);
        RawRootItem::from_item(&data).map(Some).map_err(damaged)
    }

    /// The block of level `level` that has or would have `key`, and the first key of the next block.
    fn descend(&mut self, root: RootPointer, key: &Key, level: u8) -> Result<Leaf> {
        let (mut at, mut next) = (root.logical, None);
        let mut bytes = self.block(at, root.level)?;
        for below in (level..root.level).rev() {
            let node = BlockRef::new(&bytes);
            let slot = node.child_slot(key);
            if slot + 1 < node.count() {
                next = Some(node.key(slot + 1));
            }
            let (first, (child, generation)) = (node.key(slot), node.child(slot));
            let lower = self.block(child, below)?;
            let found = BlockRef::new(&lower);
            if found.generation() != generation || found.first_key() != Some(first) {
                let message = format!(
                    "corrupt node: logical={at} slot={slot}, its pointer to {child} disagrees with that block"
                );
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            (at, bytes) = (child, lower);
        }
        Ok(Leaf { at, next, bytes })
    }

    /// The leaf that has or would have `key`.
    /// Errors: device errors; damage, for example leaves that do not follow each other: so a walk by `next` ends.
    pub(super) fn leaf(&mut self, root: RootPointer, key: &Key) -> Result<Leaf> {
        let leaf = self.descend(root, key, 0)?;
        if leaf.next.is_some_and(|next| next <= *key) {
            let message = format!("corrupt node: the tree at {} is out of order at {key}", root.logical);
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(leaf)
    }

    /// The parent of `child` in a tree; `None` when the tree does not lead there.
    pub(super) fn parent(
        &mut self,
        root: RootPointer,
        child: Logical,
        level: u8,
        first_key: &Key,
    ) -> Result<Option<Logical>> {
        if root.level <= level {
            return Ok(None);
        }
        let parent = self.descend(root, first_key, level + 1)?;
        let node = parent.block();
        Ok((node.child(node.child_slot(first_key)).0 == child).then_some(parent.at))
    }

    /// The last item whose key is `key` or smaller.
    pub(super) fn at_or_before(&mut self, root: RootPointer, key: &Key) -> Result<Option<(Key, Vec<u8>)>> {
        let found = self.descend(root, key, 0)?;
        let leaf = found.block();
        let slot = match leaf.search(key, 0) {
            Ok(slot) => Some(slot),
            Err(slot) => slot.checked_sub(1),
        };
        Ok(slot.map(|slot| (leaf.key(slot), leaf.data(slot).to_vec())))
    }
}
