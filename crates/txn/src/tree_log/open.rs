//! Opening the logs on the devices. It reads every block, once (LOG-1).

use std::collections::BTreeSet;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Logical, Result, TreeId, Wait};
use creamery_format::{Expected, Key, KeyType, RawRootItem};
use creamery_tree::{BufferStore, RootPointer, Tree};

use crate::roots::root_pointer;

/// The log of a subvolume.
///
/// ```no_run
/// # fn show(log: &creamery_txn::LogTree) {
/// println!("a log of subvolume {} with {} blocks", log.subvolume(), log.tree().blocks());
/// # }
/// ```
pub struct LogTree {
    subvolume: TreeId,
    tree: Tree,
}

impl LogTree {
    /// The subvolume whose log it is.
    #[must_use]
    pub const fn subvolume(&self) -> TreeId {
        self.subvolume
    }

    /// Its items, which must not change.
    #[must_use]
    pub const fn tree(&self) -> &Tree {
        &self.tree
    }
}

/// Opens the logs that the superblock of `store`'s volume leads to. It calls `withhold` with each block before it reads the block.
///
/// # Errors
/// Device errors; damage by the rules of LOG-1.
pub(crate) fn open_logs(
    store: &Arc<BufferStore>,
    withhold: &mut dyn FnMut(Logical) -> Result<()>,
) -> Result<Vec<LogTree>> {
    let superblock = store.volume().superblock();
    let Some((logical, level)) = superblock.log_root() else { return Ok(Vec::new()) };
    let generation = superblock.generation().next();
    let mut blocks = Blocks { store, generation, seen: BTreeSet::new(), withhold };
    let root = RootPointer { logical, generation, level };
    blocks.walk(root)?;
    let roots = open(store, root)?;
    let mut logs = Vec::new();
    let mut cursor = roots.cursor(&Key::MIN, Wait::Yes)?;
    while let Some((key, data)) = cursor.item() {
        let (subvolume, root) = log_of(&key, data)?;
        logs.push((subvolume, root));
        cursor.advance()?;
    }
    drop(cursor);
    let open_one = |(subvolume, root): (TreeId, RootPointer)| {
        let of = |error: Error| error.context(format!("the log of subvolume {subvolume}"));
        blocks.walk(root).map_err(of)?;
        open(store, root).map(|tree| LogTree { subvolume, tree }).map_err(of)
    };
    logs.into_iter().map(open_one).collect()
}

fn open(store: &Arc<BufferStore>, root: RootPointer) -> Result<Tree> {
    Tree::open(Arc::clone(store), TreeId::TREE_LOG, root, 0, Generation::default())
}

/// The subvolume and root pointer in an item of the logs' root tree.
fn log_of(key: &Key, data: &[u8]) -> Result<(TreeId, RootPointer)> {
    let subvolume = TreeId::new(key.offset);
    let is_one = key.objectid == TreeId::TREE_LOG.objectid() && key.kind == KeyType::ROOT_ITEM;
    if !is_one || !subvolume.is_subvolume() {
        return Err(damaged(format!("item {key} does not belong among the roots of logs")));
    }
    let item = RawRootItem::from_item(data)
        .map_err(|kind| Error::with_source(ErrorKind::Corrupt, format!("root item {key}"), kind))?;
    Ok((subvolume, root_pointer(&item)))
}

fn damaged(what: String) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}

/// Finds all blocks of logs.
struct Blocks<'a> {
    store: &'a BufferStore,
    generation: Generation,
    seen: BTreeSet<Logical>,
    withhold: &'a mut dyn FnMut(Logical) -> Result<()>,
}

impl Blocks<'_> {
    /// Withholds and reads the blocks of one tree (LOG-1). It ends: no block comes twice, and each takes free space.
    fn walk(&mut self, root: RootPointer) -> Result<()> {
        let volume = self.store.volume();
        let mut waiting = vec![(root, None)];
        while let Some((at, first_key)) = waiting.pop() {
            let RootPointer { logical, generation, level } = at;
            if generation != self.generation {
                let want = self.generation;
                return Err(damaged(format!(
                    "log block {logical}, expected {want}, found generation {generation}"
                )));
            }
            if !self.seen.insert(logical) {
                return Err(damaged(format!("log block {logical} is reached twice")));
            }
            (self.withhold)(logical)?;
            let want = Expected {
                logical,
                level: Some(level),
                generation: Some(generation),
                owner: Some(TreeId::TREE_LOG),
                first_key,
                fsid: volume.metadata_uuid(),
                checksum: volume.checksum_type(),
            };
            let buffer = self.store.get(&want, Wait::Yes)?;
            let guard = buffer.read(Wait::Yes)?;
            let block = guard.block();
            for slot in (0..block.count()).filter(|_| !block.is_leaf()) {
                let (logical, generation) = block.child(slot);
                waiting.push((RootPointer { logical, generation, level: level - 1 }, Some(block.key(slot))));
            }
        }
        Ok(())
    }
}
