//! The root tree: the roots of other trees, the hierarchy of subvolumes, and the UUID tree.

use std::collections::{BTreeMap, BTreeSet};

use creamery_base::{ObjectId, Result, TreeId, Uuid};
use creamery_format::{
    BlockRef, DirEntries, Expected, FileType, Incompat, Key, KeyType, RawRootItem, RootRef, uuid_key,
    uuid_subvolumes,
};
use creamery_volume::Volume;
use zerocopy::FromBytes;

use crate::features::Features;
use crate::problem::Problem;
use crate::reader::Reader;
use crate::report::{ProblemSite, Sink};
use crate::space_cache::SpaceCaches;
use crate::walk::{Meta, Root, Sequence};

/// A root ref or backref: directory, index, name.
type NameOfRoot = (u64, u64, Vec<u8>);

/// The content of the root tree.
#[derive(Default)]
pub(crate) struct Roots {
    pub(crate) items: Vec<(Key, RawRootItem)>,
    /// The latest transaction in each root item, besides the root's own.
    told: Vec<(Key, u64)>,
    refs: BTreeMap<(u64, u64), NameOfRoot>,
    backrefs: BTreeMap<(u64, u64), NameOfRoot>,
    /// Deleted subvolumes that the next mount goes on dropping.
    orphans: BTreeSet<u64>,
    /// The key in the entry "default", and its kind of file.
    default: Option<(Key, Option<FileType>)>,
    pub(crate) caches: SpaceCaches,
}

impl Sequence<Vec<u8>> for Roots {
    fn leaf(&mut self, _meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        for slot in 0..leaf.count() {
            let (key, data) = (leaf.key(slot), leaf.data(slot));
            match key.kind {
                KeyType::ROOT_ITEM => {
                    if let Ok(item) = RawRootItem::from_item(data) {
                        self.items.push((key, item));
                    }
                    if let Ok(raw) = RawRootItem::ref_from_bytes(data) {
                        self.told.push((key, raw.generation_v2.get().max(raw.last_snapshot.get())));
                    }
                }
                KeyType::ROOT_REF | KeyType::ROOT_BACKREF => {
                    let Ok(found) = RootRef::parse(data) else { continue };
                    let name = (found.dirid, found.sequence, found.name.to_vec());
                    if key.kind == KeyType::ROOT_REF {
                        self.refs.insert((key.objectid.get(), key.offset), name);
                    } else {
                        self.backrefs.insert((key.offset, key.objectid.get()), name);
                    }
                }
                KeyType::ORPHAN_ITEM if key.objectid == ObjectId::ORPHAN => {
                    self.orphans.insert(key.offset);
                }
                KeyType::DIR_ITEM if key.objectid == ObjectId::ROOT_TREE_DIR => {
                    let default = DirEntries::new(data).flatten().find(|entry| entry.name == b"default");
                    self.default = self.default.or(default.map(|entry| (entry.location, entry.file_type())));
                }
                _ => self.caches.item(leaf, slot),
            }
        }
    }
}

impl Roots {
    /// The roots of all root items.
    pub(crate) fn roots(&self) -> impl Iterator<Item = (Root, &RawRootItem)> {
        self.items.iter().map(|(key, item)| {
            let progress = Key::from(item.drop_progress);
            let dropping = item.refs.get() == 0 && progress.objectid.get() != 0;
            let root = Root {
                tree: TreeId::from(key.objectid),
                logical: item.root(),
                level: item.level,
                generation: item.root_generation(),
                last_snapshot: item.last_snapshot.get(),
                dropped: dropping.then_some((progress, item.drop_level)),
            };
            (root, item)
        })
    }

    pub(crate) fn find(&self, tree: TreeId) -> Option<Root> {
        self.roots().map(|(root, _)| root).find(|root| root.tree == tree)
    }

    /// Compares the copies of all roots if a member missed writes.
    ///
    /// # Errors
    /// Two good copies differ: members were written to separately.
    pub(crate) fn expect_one_history(&self, volume: &Volume) -> Result<()> {
        self.roots().try_for_each(|(root, _)| {
            let want = Expected {
                level: Some(root.level),
                generation: Some(root.generation),
                ..Expected::anything(root.logical, &volume.superblock())
            };
            volume.expect_equal_copies(&want)
        })
    }

    /// Checks that generations are possible, and that required trees exist.
    pub(crate) fn judge_items(&self, required: &[TreeId], complete: bool, reader: &Reader<'_>) {
        let newest = reader.generation;
        for (key, item) in &self.items {
            if item.root_generation() > newest {
                let message = format!("expected at most {newest}, found {}", item.root_generation());
                reader.sink.add(Problem::RootGeneration, ProblemSite::key(TreeId::ROOT, *key), message);
            }
        }
        for (key, _) in &self.items {
            let tree = TreeId::from(key.objectid);
            if key.offset != 0 && !tree.is_subvolume() && tree != TreeId::TREE_RELOC {
                let message = format!("its key has the offset {}, expected 0", key.offset);
                reader.sink.add(Problem::TreeMissing, ProblemSite::key(TreeId::ROOT, *key), message);
            }
        }
        let relocation = self.items.iter().find(|(key, _)| key.objectid == TreeId::DATA_RELOC.objectid());
        if let Some((key, _)) = relocation.filter(|(_, item)| item.refs.get() == 0) {
            reader.sink.add(Problem::DataRelocUnreferenced, ProblemSite::key(TreeId::ROOT, *key), "");
        }
        // Linux does not read such a leaf.
        let most = newest.get().saturating_add(1);
        for (key, found) in self.told.iter().filter(|(_, found)| *found > most) {
            let message =
                format!("expected at most {most}, found {found} as its second or that of a snapshot");
            reader.sink.add(Problem::RootGeneration, ProblemSite::key(TreeId::ROOT, *key), message);
        }
        for tree in required.iter().filter(|tree| complete && self.find(**tree).is_none()) {
            let key = Key::new(tree.objectid(), KeyType::ROOT_ITEM, 0);
            reader.sink.add(Problem::TreeMissing, ProblemSite::key(TreeId::ROOT, key), "");
        }
    }

    fn ids(&self) -> BTreeSet<u64> {
        self.items.iter().map(|(key, _)| key.objectid.get()).collect()
    }

    /// Checks that every subvolume has a directory entry, and that both directions agree.
    pub(crate) fn judge_refs(&self, reader: &Reader<'_>) -> Result<()> {
        let sink = reader.sink;
        let ids = self.ids();
        for (&(parent, child), name) in &self.refs {
            let place = ProblemSite::key(TreeId::ROOT, Key::new(parent.into(), KeyType::ROOT_REF, child));
            if self.backrefs.get(&(parent, child)) != Some(name) {
                sink.add(Problem::RootBackrefMissing, place.clone(), show(name));
            }
            if !ids.contains(&parent) || !ids.contains(&child) {
                sink.add(Problem::RootRefTree, place.clone(), show(name));
                continue;
            }
            let Some(root) = self.find(TreeId::new(parent)).filter(|root| root.dropped.is_none()) else {
                continue;
            };
            if !has_entries(reader, &root, child, name)? {
                sink.add(Problem::RootRefEntry, place, show(name));
            }
        }
        for (&(parent, child), name) in &self.backrefs {
            if self.refs.get(&(parent, child)) != Some(name) {
                let key = Key::new(child.into(), KeyType::ROOT_BACKREF, parent);
                sink.add(Problem::RootRefMissing, ProblemSite::key(TreeId::ROOT, key), show(name));
            }
        }
        let with_parent: BTreeSet<u64> = self.backrefs.keys().map(|pair| pair.1).collect();
        for (key, item) in &self.items {
            let tree = TreeId::from(key.objectid);
            let hangs = tree == TreeId::FS || with_parent.contains(&tree.get());
            if tree.is_subvolume() && item.refs.get() > 0 && !hangs {
                sink.add(Problem::SubvolumeUnreferenced, ProblemSite::key(TreeId::ROOT, *key), "");
            }
            if tree.is_subvolume() && item.refs.get() == 0 && !self.orphans.contains(&tree.get()) {
                sink.add(Problem::SubvolumeOrphan, ProblemSite::key(TreeId::ROOT, *key), "");
            }
        }
        Ok(())
    }

    /// Checks that one entry names the default subvolume. The root tree was read completely.
    pub(crate) fn judge_default(&self, features: &Features, sink: &Sink) {
        let place = || ProblemSite::tree(TreeId::ROOT);
        let Some((location, kind)) = self.default else {
            return sink.add(Problem::DefaultEntry, place(), "no entry names one");
        };
        let default = location.objectid.get();
        if location.kind != KeyType::ROOT_ITEM || !TreeId::new(default).is_subvolume() {
            return sink.add(Problem::DefaultImpossible, place(), format!("it names {location}"));
        }
        if (location.kind, kind) != (KeyType::ROOT_ITEM, Some(FileType::Directory)) {
            let message = format!("it names {location}, expected a subvolume and a directory");
            return sink.add(Problem::DefaultEntry, place(), message);
        }
        if !self.ids().contains(&default) {
            sink.add(Problem::DefaultSubvolume, place(), format!("tree {default}"));
        }
        if default != TreeId::FS.get() {
            features.see(Incompat::DEFAULT_SUBVOL, place);
        }
    }

    /// Checks that the UUID tree has exactly the subvolumes.
    pub(crate) fn judge_uuids(&self, listed: &UuidTree, sink: &Sink) {
        let mut known = BTreeSet::new();
        for (key, item) in &self.items {
            let tree = TreeId::from(key.objectid);
            if !tree.is_subvolume() {
                continue;
            }
            for (kind, uuid) in
                [(KeyType::UUID_SUBVOL, item.uuid), (KeyType::UUID_RECEIVED_SUBVOL, item.received_uuid)]
            {
                if uuid == [0; 16] {
                    continue;
                }
                let entry = (uuid_key(Uuid::from_bytes(uuid), kind), tree.get());
                if item.refs.get() > 0 && !listed.0.contains(&entry) {
                    let message = format!("tree {tree} as {}", Uuid::from_bytes(uuid));
                    sink.add(Problem::UuidMissing, ProblemSite::key(TreeId::UUID, entry.0), message);
                }
                known.insert(entry);
            }
        }
        for (key, id) in listed.0.difference(&known) {
            sink.add(Problem::UuidStale, ProblemSite::key(TreeId::UUID, *key), format!("tree {id}"));
        }
    }
}

fn show((dir, index, name): &NameOfRoot) -> String {
    format!("'{}' in directory {dir} with index {index}", String::from_utf8_lossy(name))
}

/// The pairs of UUID key and tree in the UUID tree.
#[derive(Default)]
pub(crate) struct UuidTree(BTreeSet<(Key, u64)>);

impl Sequence<Vec<u8>> for UuidTree {
    fn leaf(&mut self, _meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        for slot in 0..leaf.count() {
            let key = leaf.key(slot);
            if matches!(key.kind, KeyType::UUID_SUBVOL | KeyType::UUID_RECEIVED_SUBVOL) {
                self.0.extend(uuid_subvolumes(leaf.data(slot)).map(|id| (key, id)));
            }
        }
    }
}

/// Whether the directory has the subvolume under its name and under its index.
fn has_entries(reader: &Reader<'_>, root: &Root, child: u64, name: &NameOfRoot) -> Result<bool> {
    let (dir, index, name) = name;
    let hash = u64::from(creamery_codec::name_hash(name));
    for (kind, offset) in [(KeyType::DIR_INDEX, *index), (KeyType::DIR_ITEM, hash)] {
        let key = Key::new(ObjectId::new(*dir), kind, offset);
        let Some(data) = lookup(reader, root, key)? else { return Ok(false) };
        let same = DirEntries::new(&data).flatten().any(|entry| {
            entry.name == &name[..]
                && entry.location.kind == KeyType::ROOT_ITEM
                && entry.location.objectid.get() == child
        });
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The data of one item of a tree. A damaged block on the way counts as a missing item: the walk has reported it.
pub(crate) fn lookup(reader: &Reader<'_>, root: &Root, key: Key) -> Result<Option<Vec<u8>>> {
    let quiet = Sink::new(0);
    let reader = Reader::new(reader.volume, &quiet);
    let mut want = root.expected(&reader);
    loop {
        let Some(bytes) = reader.block(&want, None) else { return Ok(None) };
        let block = BlockRef::new(&bytes);
        if block.is_leaf() {
            return Ok(block.search(&key, 0).ok().map(|slot| block.data(slot).to_vec()));
        }
        want = child_with(&bytes, &key, want);
    }
}

/// Whether a tree contains a block at the place of the block's first key.
pub(crate) fn holds_block(reader: &Reader<'_>, root: &Root, block: &Meta) -> Result<bool> {
    let quiet = Sink::new(0);
    let reader = Reader::new(reader.volume, &quiet);
    let Some((first, _)) = block.keys else { return Ok(false) };
    let mut want = root.expected(&reader);
    // This ends because levels fall.
    while want.level.is_some_and(|level| level > block.level) {
        let Some(bytes) = reader.block(&want, None) else { return Ok(false) };
        want = child_with(&bytes, &first, want);
    }
    Ok((want.logical, want.level) == (block.logical, Some(block.level)))
}

/// A node's description of its child with `key`.
fn child_with(node: &[u8], key: &Key, want: Expected) -> Expected {
    let node = BlockRef::new(node);
    let slot = node.child_slot(key);
    let (logical, generation) = node.child(slot);
    Expected {
        logical,
        level: Some(node.level() - 1),
        generation: Some(generation),
        first_key: Some(node.key(slot)),
        ..want
    }
}
