//! The items of logs in memory: trees of their own, in blocks of their own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, Logical, ObjectId, Result, TreeId, Wait};
use creamery_format::{DirEntries, Key, KeyType, RawInodeItem, RawRootItem};
use creamery_tree::{BufferStore, CowHost, Cursor, RootPointer, Tree};
use zerocopy::{FromBytes, IntoBytes};

use super::blocks::{LogBlocks, LogHost};
use super::given_names::GivenNames;
use super::inode_log::{InodeLog, LogGroup, LogLink, LogScope};
use super::ranges::Ranges;
use crate::handle::Handle;

/// Clean blocks of logs that stay in memory, bytes; another sync of the same inode finds its items there.
const CACHE_BYTES: u64 = 8 << 20;

/// Returns the checksums of a range of data, in runs as long as an item may be.
pub(crate) type CsumSource<'a> = dyn Fn(Logical, u64) -> Result<Vec<(Logical, Vec<u8>)>> + 'a;

/// New checksums for a log.
#[derive(Default)]
pub(super) struct LogChecksums {
    ranges: Vec<(u64, u64)>,
    runs: Vec<(Logical, Vec<u8>)>,
}

/// The checksums of a group's data that a subvolume's log, if there is one, does not have yet.
/// Errors: a sector has none; device errors; damage.
pub(super) fn read_csums(
    log: Option<&Log>,
    subvolume: TreeId,
    group: &LogGroup,
    source: &CsumSource<'_>,
) -> Result<LogChecksums> {
    let log = log.and_then(|log| log.logs.get(&subvolume));
    let (mut csums, mut seen) = (LogChecksums::default(), Ranges::default());
    for inode in &group.inodes {
        let missing = match log {
            Some(log) => log.without_csums(&inode.data)?,
            None => {
                inode.data.iter().map(|&(at, len)| Ok((at.get(), end_of(at, len)?))).collect::<Result<_>>()?
            }
        };
        for (from, to) in missing {
            for (from, to) in seen.missing(from, to) {
                csums.runs.extend(source(Logical::new(from), to - from)?);
                csums.ranges.push((from, to));
                seen.add(from, to);
            }
        }
    }
    Ok(csums)
}

/// The logs of a transaction.
pub(super) struct Log {
    store: Arc<BufferStore>,
    blocks: RefCell<LogBlocks>,
    roots: Tree,
    logs: HashMap<TreeId, SubvolumeLog>,
}

struct SubvolumeLog {
    tree: Tree,
    /// The root pointer in its root item.
    recorded: Option<RootPointer>,
    /// The number of changes of each completely logged inode at its last put, and the batch of that put.
    inodes: HashMap<ObjectId, (u64, u64)>,
    given: GivenNames,
    csums: Ranges,
}

impl Log {
    pub(super) fn new(store: &BufferStore, handle: &Handle<'_>) -> Result<Self> {
        let store = BufferStore::new(Arc::clone(store.volume()), CACHE_BYTES, store.chunk_tree_uuid());
        let (store, blocks) = (Arc::new(store), RefCell::default());
        let roots = Tree::create(Arc::clone(&store), TreeId::TREE_LOG, &LogHost { handle, blocks: &blocks })?;
        Ok(Self { store, blocks, roots, logs: HashMap::new() })
    }

    /// The number of blocks.
    pub(super) fn block_count(&self) -> usize {
        self.blocks.borrow().len()
    }

    /// Memory in use, bytes.
    pub(super) fn memory(&self) -> u64 {
        let blocks = self.store.memory();
        let names: u64 = self.logs.values().map(|log| log.given.memory()).sum();
        blocks.clean + blocks.dirty + blocks.writing + names
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

    /// The root of the logs, for the superblock.
    pub(super) fn root(&self) -> Result<RootPointer> {
        self.roots.root_pointer()
    }

    /// The batch of an inode's last put, if the inode had at least `sequence` changes then (LOG-5).
    pub(super) fn batch_of(&self, subvolume: TreeId, ino: ObjectId, sequence: u64) -> Option<u64> {
        self.logs.get(&subvolume)?.batch_of(ino, sequence)
    }

    /// The last batch that contains a part of a group, if all of the group was put in this or a later state.
    pub(super) fn batch_of_all(&self, subvolume: TreeId, group: &LogGroup) -> Option<u64> {
        let mut batches =
            group.inodes.iter().map(|inode| self.batch_of(subvolume, inode.ino, inode.sequence));
        batches.try_fold(0, |last, batch| batch.map(|batch| last.max(batch)))
    }

    /// Whether it contains an inode.
    pub(super) fn has(&self, id: InodeId) -> bool {
        self.logs.get(&id.subvolume).is_some_and(|log| log.inodes.contains_key(&id.ino))
    }

    /// Whether it has the state to which `inode` is the difference.
    pub(super) fn is_followed_by(&self, subvolume: TreeId, inode: &InodeLog) -> bool {
        let LogScope::Extents { since, .. } = &inode.scope else { return true };
        let seen = self.logs.get(&subvolume).and_then(|log| log.inodes.get(&inode.ino));
        seen.is_some_and(|(seen, _)| {
            seen == since || self.batch_of(subvolume, inode.ino, inode.sequence).is_some()
        })
    }

    /// The items from the one at or before `first` to `last`. Errors: damage.
    pub(super) fn items(&self, subvolume: TreeId, first: &Key, last: &Key) -> Result<Vec<(Key, Vec<u8>)>> {
        let Some(log) = self.logs.get(&subvolume) else { return Ok(Vec::new()) };
        collect(log.tree.cursor_at_or_before(first, Wait::Yes)?, last)
    }

    /// Whether `group` gives a name, or the number of an entry, to another inode than the log, and does not contain the earlier owner.
    /// That inode may have lost the name since, and a replay could not give it to both.
    pub(super) fn has_names_of_others(&self, subvolume: TreeId, group: &LogGroup) -> bool {
        let Some(log) = self.logs.get(&subvolume) else { return false };
        group.inodes.iter().any(|inode| {
            let owners = inode.links.iter().flat_map(|link| log.given.owners(link));
            owners.into_iter().any(|owner| !group.tells_of(owner))
        })
    }

    /// Whether an inode has lost more of its logged names than a put's promise has blocks for.
    pub(super) fn takes_back_many(&self, subvolume: TreeId, group: &LogGroup) -> bool {
        let Some(log) = self.logs.get(&subvolume) else { return false };
        let lost = |inode: &InodeLog| {
            log.given.of(inode.ino).iter().filter(|link| !inode.links.contains(link)).count()
        };
        group.inodes.iter().any(|inode| lost(inode) > 1)
            || group.gone.iter().any(|ino| log.given.of(*ino).len() > 1)
    }

    /// The names of an inode in the log.
    pub(super) fn names_of(&self, subvolume: TreeId, ino: ObjectId) -> Vec<LogLink> {
        self.logs.get(&subvolume).map_or_else(Vec::new, |log| log.given.of(ino).to_vec())
    }

    /// The numbers of a directory's entries in the log, each with its inode.
    pub(super) fn entries_of(&self, subvolume: TreeId, dir: ObjectId) -> Vec<(u64, ObjectId)> {
        self.logs.get(&subvolume).map_or_else(Vec::new, |log| log.given.entries_of(dir))
    }

    /// The other inodes that have one of the names, or the number of one, in the log.
    pub(super) fn owners(&self, subvolume: TreeId, ino: ObjectId, links: &[LogLink]) -> Vec<ObjectId> {
        let Some(log) = self.logs.get(&subvolume) else { return Vec::new() };
        let owners = links.iter().flat_map(|link| log.given.owners(link));
        owners.filter(|owner| *owner != ino).collect()
    }

    /// Makes the items of inodes those of `group`, to be written with `batch`. A later state of an inode stays.
    /// Errors: no space; device errors. The logs are useless afterwards.
    pub(super) fn put(
        &mut self,
        handle: &Handle<'_>,
        subvolume: TreeId,
        group: &LogGroup,
        batch: u64,
        csums: &LogChecksums,
    ) -> Result<()> {
        let host = LogHost { handle, blocks: &self.blocks };
        if !self.logs.contains_key(&subvolume) {
            let tree = Tree::create(Arc::clone(&self.store), TreeId::TREE_LOG, &host)?;
            self.logs.insert(subvolume, SubvolumeLog::new(tree));
        }
        let log = self.logs.get_mut(&subvolume).expect("it was just made");
        group.gone.iter().try_for_each(|ino| log.bury(&host, *ino))?;
        let is_new = |inode: &&InodeLog| log.batch_of(inode.ino, inode.sequence).is_none();
        let new: Vec<&InodeLog> = group.inodes.iter().filter(is_new).collect();
        for inode in &new {
            log.put_items(&host, inode)?;
        }
        log.put_csums(&host, csums)?;
        for inode in new {
            log.given.give(inode.ino, &inode.links);
            if inode.scope != LogScope::Names {
                log.inodes.insert(inode.ino, (inode.sequence, batch));
            }
        }
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
        Self {
            tree,
            recorded: None,
            inodes: HashMap::new(),
            given: GivenNames::default(),
            csums: Ranges::default(),
        }
    }

    /// The batch of an inode's last put, if the inode had at least `sequence` changes then (LOG-5).
    fn batch_of(&self, ino: ObjectId, sequence: u64) -> Option<u64> {
        let (seen, batch) = self.inodes.get(&ino)?;
        (seen.wrapping_sub(sequence).cast_signed() >= 0).then_some(*batch)
    }

    /// Puts the items of an inode. It does not touch equal items: mostly only the inode's item changes. It removes directory entries for
    /// names that the inode has lost since its last put.
    fn put_items(&mut self, host: &dyn CowHost, inode: &InodeLog) -> Result<()> {
        let mut items = &inode.items[..];
        for (first, last) in inode.key_ranges() {
            let (here, behind) = items.split_at(items.partition_point(|(key, _)| *key <= last));
            assert!(here.first().is_none_or(|(key, _)| *key >= first), "LOG-6: items of what has changed");
            self.put_range(host, (&first, &last), here)?;
            items = behind;
        }
        assert!(items.is_empty(), "LOG-6: items of what has changed");
        let lost = self.given.of(inode.ino).iter().filter(|link| !inode.links.contains(link));
        lost.into_iter().try_for_each(|link| self.remove_entry(host, link, inode.ino))
    }

    /// Marks an inode as gone: a replay ignores an inode without a name.
    fn bury(&mut self, host: &dyn CowHost, ino: ObjectId) -> Result<()> {
        let key = Key::new(ino, KeyType::INODE_ITEM, 0);
        let item = self.tree.get(&key, Wait::Yes, |data| RawInodeItem::read_from_bytes(data).ok())?;
        if let Some(mut item) = item.flatten().filter(|item| item.nlink.get() > 0) {
            item.nlink = 0.into();
            self.tree.upsert(host, &key, item.as_bytes())?;
        }
        self.given.of(ino).iter().try_for_each(|link| self.remove_entry(host, link, ino))?;
        self.given.give(ino, &[]);
        self.inodes.remove(&ino);
        Ok(())
    }

    /// Removes the directory entry that gives a name to an inode.
    fn remove_entry(&self, host: &dyn CowHost, link: &LogLink, ino: ObjectId) -> Result<()> {
        let key = Key::new(link.dir, KeyType::DIR_INDEX, link.index);
        let is_it = |data: &[u8]| {
            let entry = DirEntries::new(data).next();
            entry.is_some_and(|entry| {
                entry.is_ok_and(|entry| entry.location.objectid == ino && entry.name == link.name)
            })
        };
        match self.tree.get(&key, Wait::Yes, is_it)? {
            Some(true) => self.tree.remove(host, &key).map(drop),
            _ => Ok(()),
        }
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

    /// The ranges of some data whose checksums the log does not have yet.
    fn without_csums(&self, data: &[(Logical, u64)]) -> Result<Vec<(u64, u64)>> {
        let mut missing = Vec::new();
        for &(at, len) in data {
            missing.extend(self.csums.missing(at.get(), end_of(at, len)?));
        }
        Ok(missing)
    }

    fn put_csums(&mut self, host: &dyn CowHost, csums: &LogChecksums) -> Result<()> {
        for (at, csums) in &csums.runs {
            let key = Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at.get());
            self.tree.insert(host, &key, csums)?;
        }
        csums.ranges.iter().for_each(|(from, to)| self.csums.add(*from, *to));
        Ok(())
    }
}

fn end_of(at: Logical, len: u64) -> Result<u64> {
    let end = at.checked_add(len).ok_or_else(|| Error::new(ErrorKind::Corrupt, "data past the end"))?;
    Ok(end.get())
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
