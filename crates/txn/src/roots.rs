//! The root tree: the roots of all other trees, and the root items of subvolumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::lock::{RankedRwLock, rank};
use creamery_base::{Error, ErrorKind, Generation, Result, Timespec, TreeId, Wait, memory};
use creamery_format::{Expected, Key, KeyType, RawRootItem};
use creamery_tree::{BufferStore, CowHost, RootPointer, Tree};
use creamery_volume::Volume;
use hashbrown::HashMap;
use zerocopy::{IntoBytes, little_endian::U64};

/// The key of a tree's root item and its item: the last one with that id (a snapshot's key offset is its
/// generation).
pub(crate) fn find_root_item(root_tree: &Tree, id: TreeId) -> Result<Option<(Key, RawRootItem)>> {
    let last = Key::new(id.objectid(), KeyType::ROOT_ITEM, u64::MAX);
    let cursor = root_tree.cursor_at_or_before(&last, Wait::Yes)?;
    let Some((key, data)) = cursor.item() else { return Ok(None) };
    if key.objectid != id.objectid() || key.kind != KeyType::ROOT_ITEM {
        return Ok(None);
    }
    let item = RawRootItem::from_item(data)
        .map_err(|kind| Error::with_source(ErrorKind::Corrupt, format!("root item {key}"), kind))?;
    Ok(Some((key, item)))
}

/// Compares the copies of all roots in the root tree, if a member of the volume missed writes: two histories may have equal generations, but their
/// copies differ.
///
/// # Errors
/// Unsupported: they differ. Device errors; damage.
pub(crate) fn expect_one_history(volume: &Volume, root_tree: &Tree) -> Result<()> {
    if !volume.has_stale_members() {
        return Ok(());
    }
    let mut cursor = root_tree.cursor(&Key::MIN, Wait::Yes)?;
    while let Some((key, data)) = cursor.item() {
        if key.kind == KeyType::ROOT_ITEM
            && let Ok(item) = RawRootItem::from_item(data)
        {
            let root = root_pointer(&item);
            let want = Expected {
                level: Some(root.level),
                generation: Some(root.generation),
                ..Expected::anything(root.logical, &volume.superblock())
            };
            volume.expect_equal_copies(&want)?;
        }
        cursor.advance()?;
    }
    Ok(())
}

/// The root pointer in a root item.
pub(crate) fn root_pointer(item: &RawRootItem) -> RootPointer {
    RootPointer { logical: item.root(), generation: item.root_generation(), level: item.level }
}

/// Opens a tree that is not open yet, so that its root is the one of a commit.
///
/// # Errors
/// Device errors; damage, for example a root that is newer than the filesystem, which a transaction could take for its own.
pub(crate) fn open_by_item(store: &Arc<BufferStore>, id: TreeId, item: &RawRootItem) -> Result<Tree> {
    let root = root_pointer(item);
    let newest = store.volume().generation();
    if root.generation > newest {
        let message = format!(
            "corrupt root of tree {id}: logical={}, newer than the filesystem, expected at most {newest}, found generation {}",
            root.logical, root.generation
        );
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    let blocks = item.bytes_used.get() / u64::from(store.volume().node_size());
    let last_snapshot = Generation::new(item.last_snapshot.get());
    let tree = Tree::open(Arc::clone(store), id, root, blocks, last_snapshot)?;
    tree.switch_commit_root(root);
    Ok(tree)
}

/// The root tree, and all trees that are open.
pub(crate) struct RootTree {
    tree: Arc<Tree>,
    open: RankedRwLock<HashMap<TreeId, Arc<Tree>>, { rank::TABLE }>,
    switches: Switches,
    /// Whether an opened tree may share blocks with another tree.
    shares_blocks: AtomicBool,
    /// Whether a shared block was copied since a subvolume was last dropped.
    has_copied_shared: AtomicBool,
}

/// Options of opened trees.
#[derive(Clone, Copy)]
pub(crate) struct Switches {
    pub(crate) early_unlock: bool,
    pub(crate) fingers: bool,
}

impl RootTree {
    pub(crate) fn new(tree: Tree, switches: Switches) -> Self {
        switches.apply_to(&tree);
        let tree = Arc::new(tree);
        let open = RankedRwLock::new(HashMap::from([(tree.id(), Arc::clone(&tree))]));
        let (shares_blocks, has_copied_shared) = Default::default();
        Self { tree, open, switches, shares_blocks, has_copied_shared }
    }

    /// The root tree itself.
    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Keeps a tree open that was opened by other means, or created.
    pub(crate) fn keep(&self, tree: Tree) -> Arc<Tree> {
        self.switches.apply_to(&tree);
        let tree = Arc::new(tree);
        self.look_for_shared_blocks(&tree);
        let before = self.open.write().insert(tree.id(), Arc::clone(&tree));
        assert!(before.is_none(), "a tree is open once");
        tree
    }

    /// The tree `id`, which is opened if it is not open yet.
    /// Errors: not found; device errors; damage.
    pub(crate) fn get(&self, id: TreeId) -> Result<Arc<Tree>> {
        if let Some(tree) = self.open.read().get(&id) {
            return Ok(Arc::clone(tree));
        }
        // Other threads may open it meanwhile, change it and commit.
        let _kept = self.tree.store().readers().guard();
        let (_, item) = self.item(id)?;
        let opened = open_by_item(self.tree.store(), id, &item);
        let mut open = self.open.write();
        // A thread that opened it meanwhile may have changed it and committed: then the item read above has an old
        // root.
        if let Some(tree) = open.get(&id) {
            return Ok(Arc::clone(tree));
        }
        let tree = opened?;
        self.switches.apply_to(&tree);
        let tree = Arc::new(tree);
        self.look_for_shared_blocks(&tree);
        open.insert(id, Arc::clone(&tree));
        Ok(tree)
    }

    /// The tree `id`, if it is open.
    pub(crate) fn opened(&self, id: TreeId) -> Option<Arc<Tree>> {
        self.open.read().get(&id).cloned()
    }

    fn look_for_shared_blocks(&self, tree: &Tree) {
        if tree.last_snapshot() > Generation::default() {
            self.shares_blocks.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a shared block is copied: its children have one user more.
    pub(crate) fn copy_shared(&self) {
        if !self.has_copied_shared() {
            self.has_copied_shared.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a shared block was copied since a subvolume was last dropped: that drop may have ended all sharing.
    pub(crate) fn has_copied_shared(&self) -> bool {
        self.has_copied_shared.load(Ordering::Relaxed)
    }

    /// Whether a tree that was opened so far may share blocks with another one.
    pub(crate) fn shares_blocks(&self) -> bool {
        self.shares_blocks.load(Ordering::Relaxed)
    }

    /// Forgets a tree that is gone: it is not open any more.
    pub(crate) fn forget(&self, id: TreeId) {
        self.open.write().remove(&id);
        self.has_copied_shared.store(false, Ordering::Relaxed);
    }

    /// All open trees, in order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<Tree>> {
        let mut all: Vec<_> = self.open.read().values().cloned().collect();
        all.sort_unstable_by_key(|tree| tree.id());
        all
    }

    /// Memory of the open trees, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let open = self.open.read();
        let trees: u64 = open.values().map(|tree| tree.memory()).sum();
        memory::hash_map::<TreeId, Arc<Tree>>(open.capacity()) + trees
    }

    /// A tree's root item and its key.
    /// Errors: not found; device errors; damage.
    pub(crate) fn item(&self, id: TreeId) -> Result<(Key, RawRootItem)> {
        let found = find_root_item(&self.tree, id)?;
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("root item of tree {id}")))
    }

    /// Writes the present roots of all trees into their root items, where they differ. True when any did.
    pub(crate) fn record_roots(&self, host: &dyn CowHost, now: Timespec) -> Result<bool> {
        let mut any = false;
        for tree in self.all().iter().filter(|tree| ![TreeId::ROOT, TreeId::CHUNK].contains(&tree.id())) {
            if tree.root_pointer()? != tree.commit_root() {
                any |= self.record_root(host, tree, now)?;
            }
        }
        Ok(any)
    }

    fn record_root(&self, host: &dyn CowHost, tree: &Tree, now: Timespec) -> Result<bool> {
        let root = tree.root_pointer()?;
        let Some((key, mut item)) = find_root_item(&self.tree, tree.id())? else {
            return Err(Error::new(ErrorKind::Corrupt, format!("tree {} has no root item", tree.id())));
        };
        if root_pointer(&item) == root {
            return Ok(false);
        }
        item.set_root(root.logical, root.level, root.generation);
        let node_size = u64::from(self.tree.store().volume().node_size());
        item.bytes_used = U64::new(tree.blocks().saturating_mul(node_size));
        if tree.id().is_subvolume() {
            item.ctransid = host.generation().get().into();
            item.ctime.sec = now.sec.into();
            item.ctime.nsec = now.nsec.into();
        }
        self.tree.upsert(host, &key, item.as_bytes())?;
        Ok(true)
    }

    /// Copies the leaf with a tree's root item: the root tree changes, and its contents do not.
    /// Errors: not found; no space; device errors; damage.
    pub(crate) fn touch(&self, host: &dyn CowHost, id: TreeId) -> Result<()> {
        let (key, item) = self.item(id)?;
        self.tree.upsert(host, &key, item.as_bytes())
    }

    /// Number of blocks that the running transaction has copied or made, in all trees. No thread changes them meanwhile.
    pub(crate) fn own_blocks(&self) -> u64 {
        self.open.read().values().map(|tree| tree.own_blocks()).sum()
    }

    /// Makes the present roots of all trees the commit roots of the closing commit.
    pub(crate) fn switch_commit_roots(&self) -> Result<()> {
        self.all().iter().try_for_each(|tree| {
            tree.switch_commit_root(tree.root_pointer()?);
            Ok(())
        })
    }
}

impl Switches {
    fn apply_to(self, tree: &Tree) {
        tree.set_early_unlock(self.early_unlock);
        tree.set_fingers(self.fingers);
    }
}
