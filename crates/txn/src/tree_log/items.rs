//! The items of logs in memory: trees of their own, in blocks of their own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Logical, ObjectId, Result, TreeId, Wait};
use creamery_format::{Key, KeyType, RawRootItem};
use creamery_tree::{BufferStore, CowHost, RootPointer, Tree};
use zerocopy::IntoBytes;

use super::blocks::{LogBlocks, LogHost};
use super::ranges::Ranges;
use crate::handle::Handle;

/// Clean blocks of logs that stay in memory, bytes; who syncs the same inode again finds its items there.
const CACHE_BYTES: u64 = 8 << 20;

/// What is known of an inode when it is synced.
///
/// ```
/// use creamery_base::ObjectId;
/// let log = creamery_txn::InodeLog { sequence: 7, ..creamery_txn::InodeLog::of(ObjectId::new(257)) };
/// assert!(log.items.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct InodeLog {
    /// The inode.
    pub ino: ObjectId,
    /// Its number of changes: what was seen later has a greater one.
    pub sequence: u64,
    /// All items that its log is to have, in order of their keys.
    pub items: Vec<(Key, Vec<u8>)>,
    /// Where its data lies that has checksums: address and bytes.
    pub data: Vec<(Logical, u64)>,
    /// The names among the items that the last commit does not have: directory and name.
    pub names: Vec<(ObjectId, Vec<u8>)>,
}

impl InodeLog {
    /// A log that has nothing of `ino` yet.
    #[must_use]
    pub const fn of(ino: ObjectId) -> Self {
        Self { ino, sequence: 0, items: Vec::new(), data: Vec::new(), names: Vec::new() }
    }

    /// Bytes that the items take.
    pub(crate) fn bytes(&self) -> usize {
        self.items.iter().map(|(_, data)| data.len() + creamery_format::ITEM_LEN).sum()
    }
}

/// Tells the checksums of a range of data, in runs of as many as an item may have.
pub(crate) type CsumSource<'a> = dyn Fn(Logical, u64) -> Result<Vec<(Logical, Vec<u8>)>> + 'a;

/// The logs of a transaction.
pub(super) struct Log {
    store: Arc<BufferStore>,
    blocks: RefCell<LogBlocks>,
    roots: Tree,
    logs: HashMap<TreeId, SubvolumeLog>,
}

struct SubvolumeLog {
    tree: Tree,
    /// Where the root item says that its root is.
    recorded: Option<RootPointer>,
    /// What was seen of each inode last, and in which batch that is written.
    inodes: HashMap<ObjectId, (u64, u64)>,
    /// The inodes that were given names, by directory and name.
    names: HashMap<(ObjectId, Vec<u8>), ObjectId>,
    csums: Ranges,
}

impl Log {
    pub(super) fn new(store: &BufferStore, handle: &Handle<'_>) -> Result<Self> {
        let store = BufferStore::new(Arc::clone(store.volume()), CACHE_BYTES, store.chunk_tree_uuid());
        let (store, blocks) = (Arc::new(store), RefCell::default());
        let roots = Tree::create(Arc::clone(&store), TreeId::TREE_LOG, &LogHost { handle, blocks: &blocks })?;
        Ok(Self { store, blocks, roots, logs: HashMap::new() })
    }

    /// How many blocks it has.
    pub(super) fn block_count(&self) -> usize {
        self.blocks.borrow().len()
    }

    /// What it takes in memory, bytes.
    pub(super) fn memory(&self) -> u64 {
        let memory = self.store.memory();
        memory.clean + memory.dirty + memory.writing
    }

    pub(super) fn store(&self) -> &Arc<BufferStore> {
        &self.store
    }

    pub(super) fn blocks_mut(&mut self) -> &mut LogBlocks {
        self.blocks.get_mut()
    }

    pub(super) fn into_blocks(self) -> LogBlocks {
        self.blocks.into_inner()
    }

    /// Where the superblock is to lead.
    pub(super) fn root(&self) -> Result<RootPointer> {
        self.roots.root_pointer()
    }

    /// The batch with which an inode was or is written that was put when it had at least `sequence` changes (LOG-5).
    pub(super) fn batch_of(&self, subvolume: TreeId, ino: ObjectId, sequence: u64) -> Option<u64> {
        let (seen, batch) = self.logs.get(&subvolume)?.inodes.get(&ino)?;
        (seen.wrapping_sub(sequence).cast_signed() >= 0).then_some(*batch)
    }

    /// Whether one of the names is that of another inode in the log. Who had it then may have lost it since, and a replay could not
    /// give it to both.
    pub(super) fn has_name_of_others(&self, subvolume: TreeId, inode: &InodeLog) -> bool {
        let Some(log) = self.logs.get(&subvolume) else { return false };
        inode.names.iter().any(|name| log.names.get(name).is_some_and(|ino| *ino != inode.ino))
    }

    /// Makes the items of an inode those of `inode`, to be written with `batch`.
    /// Errors: no space; device errors. The logs are of no use any more.
    pub(super) fn put(
        &mut self,
        handle: &Handle<'_>,
        subvolume: TreeId,
        inode: &InodeLog,
        batch: u64,
        csums: &CsumSource<'_>,
    ) -> Result<()> {
        let host = LogHost { handle, blocks: &self.blocks };
        if !self.logs.contains_key(&subvolume) {
            let tree = Tree::create(Arc::clone(&self.store), TreeId::TREE_LOG, &host)?;
            self.logs.insert(subvolume, SubvolumeLog::new(tree));
        }
        let log = self.logs.get_mut(&subvolume).expect("it was just made");
        log.put_items(&host, inode)?;
        log.put_csums(&host, &inode.data, csums)?;
        log.inodes.insert(inode.ino, (inode.sequence, batch));
        log.names.extend(inode.names.iter().map(|name| (name.clone(), inode.ino)));
        let root = log.tree.root_pointer()?;
        if log.recorded.replace(root) != Some(root) {
            let key = Key::new(TreeId::TREE_LOG.objectid(), KeyType::ROOT_ITEM, subvolume.get());
            let bytes = log.tree.blocks() * u64::from(self.store.volume().node_size());
            self.roots.upsert(&host, &key, root_item(root, bytes).as_bytes())?;
        }
        Ok(())
    }
}

impl SubvolumeLog {
    fn new(tree: Tree) -> Self {
        Self { tree, recorded: None, inodes: HashMap::new(), names: HashMap::new(), csums: Ranges::default() }
    }

    /// Items that stay as they are are not touched: mostly it is the inode's alone that changes.
    fn put_items(&self, host: &dyn CowHost, inode: &InodeLog) -> Result<()> {
        let mut known = Vec::new();
        let mut cursor = self.tree.cursor(&Key::new(inode.ino, KeyType::INODE_ITEM, 0), Wait::Yes)?;
        while let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid == inode.ino) {
            known.push((key, data.to_vec()));
            cursor.advance()?;
        }
        drop(cursor);
        let of = |items: &[(Key, Vec<u8>)], key: &Key| items.binary_search_by(|(other, _)| other.cmp(key));
        for (key, _) in known.iter().filter(|(key, _)| of(&inode.items, key).is_err()) {
            self.tree.remove(host, key)?;
        }
        for (key, data) in &inode.items {
            match of(&known, key) {
                Ok(at) if known[at].1 == *data => {}
                Ok(_) => self.tree.upsert(host, key, data)?,
                Err(_) => self.tree.insert(host, key, data)?,
            }
        }
        Ok(())
    }

    fn put_csums(
        &mut self,
        host: &dyn CowHost,
        data: &[(Logical, u64)],
        csums: &CsumSource<'_>,
    ) -> Result<()> {
        for &(at, len) in data {
            let end =
                at.checked_add(len).ok_or_else(|| Error::new(ErrorKind::Corrupt, "data past the end"))?;
            for (from, to) in self.csums.missing(at.get(), end.get()) {
                for (at, csums) in csums(Logical::new(from), to - from)? {
                    let key = Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at.get());
                    self.tree.insert(host, &key, &csums)?;
                }
                self.csums.add(from, to);
            }
        }
        Ok(())
    }
}

fn root_item(root: RootPointer, bytes: u64) -> RawRootItem {
    let mut item = RawRootItem::default();
    item.set_root(root.logical, root.level, root.generation);
    item.bytes_used = bytes.into();
    item
}
