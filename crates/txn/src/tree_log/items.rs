//! The items of logs in memory: trees of their own, in blocks of their own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, Logical, ObjectId, Result, TreeId, Wait};
use creamery_format::{Key, KeyType, RawRootItem};
use creamery_tree::{BufferStore, CowHost, Cursor, RootPointer, Tree};
use zerocopy::IntoBytes;

use super::blocks::{LogBlocks, LogHost};
use super::ranges::Ranges;
use crate::handle::Handle;

/// Clean blocks of logs that stay in memory, bytes; who syncs the same inode again finds its items there.
const CACHE_BYTES: u64 = 8 << 20;

/// Which of an inode's extents its log is told of.
///
/// ```
/// use creamery_txn::LoggedExtents;
/// let first_sector = LoggedExtents::Changed { since: 7, ranges: vec![(0, 4096)] };
/// assert_ne!(first_sector, LoggedExtents::All);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoggedExtents {
    /// All that there is to say.
    All,
    /// Only those in some parts of the file, in order. What the log has of the rest since it was put with `since` changes stays.
    /// No extent that it has is only in part in one of them.
    Changed {
        /// The inode's number of changes then.
        since: u64,
        /// Beginnings and ends.
        ranges: Vec<(u64, u64)>,
    },
}

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
    /// All items that its log is to have, in order of their keys; of extents those that `extents` says.
    pub items: Vec<(Key, Vec<u8>)>,
    /// Which extents are among them.
    pub extents: LoggedExtents,
    /// Where its data lies that has checksums: address and bytes.
    pub data: Vec<(Logical, u64)>,
    /// The names among the items that the last commit does not have: directory and name.
    pub names: Vec<(ObjectId, Vec<u8>)>,
    /// The numbers of their entries: directory and number.
    pub numbers: Vec<(ObjectId, u64)>,
}

impl InodeLog {
    /// A log that has nothing of `ino` yet.
    #[must_use]
    pub const fn of(ino: ObjectId) -> Self {
        let extents = LoggedExtents::All;
        Self {
            ino,
            sequence: 0,
            items: Vec::new(),
            extents,
            data: Vec::new(),
            names: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// The keys that the items are all of.
    pub(crate) fn key_ranges(&self) -> Vec<(Key, Key)> {
        let extent = |offset| Key::new(self.ino, KeyType::EXTENT_DATA, offset);
        let first = Key::new(self.ino, KeyType::new(0), 0);
        match &self.extents {
            LoggedExtents::All => vec![(first, Key::new(self.ino, KeyType::new(u8::MAX), u64::MAX))],
            LoggedExtents::Changed { ranges, .. } => {
                let mut all =
                    vec![(first, Key::new(self.ino, KeyType::new(KeyType::EXTENT_DATA.get() - 1), u64::MAX))];
                all.extend(ranges.iter().map(|(start, end)| (extent(*start), extent(end - 1))));
                all
            }
        }
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
    /// And by which number of an entry.
    numbers: HashMap<(ObjectId, u64), ObjectId>,
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

    /// Whether it has something of an inode.
    pub(super) fn has(&self, id: InodeId) -> bool {
        self.logs.get(&id.subvolume).is_some_and(|log| log.inodes.contains_key(&id.ino))
    }

    /// Whether the log has of an inode what `inode` says the difference to.
    pub(super) fn is_followed_by(&self, subvolume: TreeId, inode: &InodeLog) -> bool {
        let LoggedExtents::Changed { since, .. } = &inode.extents else { return true };
        let seen = self.logs.get(&subvolume).and_then(|log| log.inodes.get(&inode.ino));
        seen.is_some_and(|(seen, _)| seen == since)
    }

    /// The items from the one at or before `first` to `last`. Errors: damage.
    pub(super) fn items(&self, subvolume: TreeId, first: &Key, last: &Key) -> Result<Vec<(Key, Vec<u8>)>> {
        let Some(log) = self.logs.get(&subvolume) else { return Ok(Vec::new()) };
        collect(log.tree.cursor_at_or_before(first, Wait::Yes)?, last)
    }

    /// Whether one of the names, or the number of one, is that of another inode in the log. Who had it then may have lost it since,
    /// and a replay could not give it to both.
    pub(super) fn has_name_of_others(&self, subvolume: TreeId, inode: &InodeLog) -> bool {
        let Some(log) = self.logs.get(&subvolume) else { return false };
        let is_others = |ino: Option<&ObjectId>| ino.is_some_and(|ino| *ino != inode.ino);
        inode.names.iter().any(|name| is_others(log.names.get(name)))
            || inode.numbers.iter().any(|number| is_others(log.numbers.get(number)))
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
        log.numbers.extend(inode.numbers.iter().map(|number| (*number, inode.ino)));
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
        let (inodes, names, numbers) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { tree, recorded: None, inodes, names, numbers, csums: Ranges::default() }
    }

    /// Items that stay as they are are not touched: mostly it is the inode's alone that changes.
    fn put_items(&self, host: &dyn CowHost, inode: &InodeLog) -> Result<()> {
        let mut items = &inode.items[..];
        for (first, last) in inode.key_ranges() {
            let (here, behind) = items.split_at(items.partition_point(|(key, _)| *key <= last));
            assert!(here.first().is_none_or(|(key, _)| *key >= first), "LOG-6: items of what has changed");
            self.put_range(host, (&first, &last), here)?;
            items = behind;
        }
        assert!(items.is_empty(), "LOG-6: items of what has changed");
        Ok(())
    }

    fn put_range(
        &self,
        host: &dyn CowHost,
        (first, last): (&Key, &Key),
        items: &[(Key, Vec<u8>)],
    ) -> Result<()> {
        let known = collect(self.tree.cursor(first, Wait::Yes)?, last)?;
        let of = |items: &[(Key, Vec<u8>)], key: &Key| items.binary_search_by(|(other, _)| other.cmp(key));
        for (key, _) in known.iter().filter(|(key, _)| of(items, key).is_err()) {
            self.tree.remove(host, key)?;
        }
        for (key, data) in items {
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

/// The items from a cursor on to `last`.
fn collect(mut cursor: Cursor<'_>, last: &Key) -> Result<Vec<(Key, Vec<u8>)>> {
    let mut items = Vec::new();
    while let Some((key, data)) = cursor.item().filter(|(key, _)| key <= last) {
        items.push((key, data.to_vec()));
        cursor.advance()?;
    }
    Ok(items)
}

fn root_item(root: RootPointer, bytes: u64) -> RawRootItem {
    let mut item = RawRootItem::default();
    item.set_root(root.logical, root.level, root.generation);
    item.bytes_used = bytes.into();
    item
}
