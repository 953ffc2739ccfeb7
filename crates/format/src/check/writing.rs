//! Checks of leaves of a filesystem that is written, beyond those of every reader.
//!
//! Linux checks every leaf for rules that reading does not need: transactions in the future, extents that overlap, references out of
//! order. It refuses the whole leaf, for reading too. So no program may write such a leaf, or begin a transaction with
//! one: [`check_leaf_for_writing`] runs on each leaf that is read on a volume open for writing, and before
//! each write of one. It is one pass over the items, which compares each item with the one before it, and allocates nothing.

use creamery_base::{Generation, ObjectId, TreeId};
use zerocopy::FromBytes;

use super::files::check_alignment;
use crate::block::BlockRef;
use crate::corrupt::{BlockSite, CorruptKind, Corruption};
use crate::items::device::RawDevExtent;
use crate::items::extent::{ExtentFlags, ExtentItem, ExtentRef};
use crate::items::file_extent::FileExtent;
use crate::items::inode::{InodeFlags, RawInodeItem};
use crate::items::root::RawRootItem;
use crate::key::{Key, KeyType};

/// Facts of the filesystem that the check of a leaf needs.
///
/// ```
/// use creamery_base::Generation;
/// let rules = creamery_format::WritingRules {
///     newest: Generation::new(8), sector_size: 4096, node_size: 16384, checksum_size: 4, has_skinny_metadata: true,
/// };
/// assert!(rules.newest > Generation::new(7));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WritingRules {
    /// The last transaction that an item may name: the one behind the superblock's.
    pub newest: Generation,
    /// Bytes of a sector.
    pub sector_size: u32,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// Bytes of a checksum.
    pub checksum_size: usize,
    /// Whether extents of tree blocks may have their level in their keys.
    pub has_skinny_metadata: bool,
}

/// Bits of a subvolume's number: those above are levels of quota groups.
const TREE_ID_BITS: u32 = 48;
/// Linux had this inode until 5.11.
const CACHE: &str = "inode: the cache of inode numbers, which `btrfs rescue clear-ino-cache` removes";
/// The flags in the upper half of an inode's that writers know.
const UPPER_FLAGS_KNOWN: u64 = InodeFlags::VERITY.bits();

/// Checks a block that [`verify_block`](crate::verify_block) has passed. For a node it only checks the owner.
///
/// ```
/// use creamery_base::*;
/// use creamery_format::*;
/// let new = NewBlock {
///     logical: Logical::new(1 << 20), generation: Generation::new(7), owner: TreeId::FS, level: 0,
///     fsid: Uuid::nil(), chunk_tree_uuid: Uuid::nil(),
/// };
/// let mut bytes = vec![0; 4096];
/// let mut block = BlockMut::init(&mut bytes, &new);
/// let rules = WritingRules {
///     newest: Generation::new(8), sector_size: 4096, node_size: 4096, checksum_size: 4, has_skinny_metadata: true,
/// };
/// assert!(check_leaf_for_writing(block.as_ref(), &rules).is_err(), "a subvolume has a root directory");
/// block.insert_items(0, &[(Key::MIN, 0)]);
/// assert!(check_leaf_for_writing(block.as_ref(), &rules).is_ok());
/// ```
///
/// # Errors
/// The first item that Linux does not accept.
pub fn check_leaf_for_writing(leaf: BlockRef<'_>, rules: &WritingRules) -> Result<(), Corruption> {
    let site = BlockSite {
        level: Some(leaf.level()),
        tree: Some(leaf.owner()),
        logical: leaf.logical(),
        slot: None,
        key: None,
    };
    if leaf.owner().is_subvolume() && leaf.owner().get() >> TREE_ID_BITS != 0 {
        let found = leaf.owner().get();
        return Err(Corruption::new(site, CorruptKind::OwnerRange { found, max: (1 << TREE_ID_BITS) - 1 }));
    }
    if !leaf.is_leaf() {
        return Ok(());
    }
    if leaf.count() == 0 && is_never_empty(leaf.owner()) {
        return Err(Corruption::new(site, CorruptKind::Empty));
    }
    let has_inodes = leaf.owner().is_subvolume();
    let mut previous: Option<Previous> = None;
    for slot in 0..leaf.count() {
        let (key, data) = (leaf.key(slot), leaf.data(slot));
        let checked = check_after(previous.as_ref(), &key, has_inodes)
            .and_then(|()| check_item_for_writing(&key, data, rules));
        checked
            .map_err(|kind| Corruption::new(BlockSite { slot: Some(slot), key: Some(key), ..site }, kind))?;
        previous = Some(Previous { key, end: end_of(&key, data, rules) });
    }
    Ok(())
}

/// The item before the current one.
struct Previous {
    key: Key,
    /// The end of its extent, its checksums or its range of a file.
    end: u64,
}

/// Whether a tree is never empty.
fn is_never_empty(owner: TreeId) -> bool {
    [TreeId::ROOT, TreeId::CHUNK, TreeId::DEV, TreeId::FS, TreeId::DATA_RELOC].contains(&owner)
}

/// Checks an item against the one before it.
fn check_after(previous: Option<&Previous>, key: &Key, has_inodes: bool) -> Result<(), CorruptKind> {
    let Some(previous) = previous else { return Ok(()) };
    let (is_same, before) = (previous.key.objectid == key.objectid, previous.key.kind);
    let belongs = matches!(
        key.kind,
        KeyType::INODE_REF
            | KeyType::XATTR_ITEM
            | KeyType::DIR_ITEM
            | KeyType::DIR_INDEX
            | KeyType::EXTENT_DATA
    );
    if has_inodes && belongs && !is_same {
        let (found, want) = (key.objectid.get(), previous.key.objectid.get());
        return Err(CorruptKind::Mismatch { what: "item of an inode without its inode item", found, want });
    }
    let is_extent = |kind| kind == KeyType::EXTENT_ITEM || kind == KeyType::METADATA_ITEM;
    let (what, start) = match key.kind {
        KeyType::EXTENT_DATA if is_same && before == key.kind => ("file extent", key.offset),
        KeyType::DEV_EXTENT if is_same && before == key.kind => ("device extent", key.offset),
        KeyType::EXTENT_CSUM if is_same && before == key.kind => ("checksum item", key.offset),
        kind if is_extent(kind) && is_extent(before) => ("extent", key.objectid.get()),
        _ => return Ok(()),
    };
    match start < previous.end {
        true => Err(CorruptKind::Overlap { what, found: start, end: previous.end }),
        false => Ok(()),
    }
}

/// Returns the end of the range that an item describes; 0 if it describes none.
fn end_of(key: &Key, data: &[u8], rules: &WritingRules) -> u64 {
    let (start, len) = match key.kind {
        KeyType::EXTENT_DATA => {
            let len = match FileExtent::parse(data) {
                Ok(FileExtent::Inline(head, _)) => {
                    head.ram_bytes.get().checked_next_multiple_of(rules.sector_size.into())
                }
                Ok(FileExtent::Regular(extent) | FileExtent::Prealloc(extent)) => {
                    Some(extent.num_bytes.get())
                }
                Err(_) => None,
            };
            (key.offset, len.unwrap_or(u64::MAX))
        }
        KeyType::DEV_EXTENT => {
            (key.offset, RawDevExtent::ref_from_bytes(data).map_or(0, |extent| extent.length.get()))
        }
        KeyType::EXTENT_CSUM => {
            let sectors = (data.len() / rules.checksum_size) as u64;
            (key.offset, sectors.saturating_mul(rules.sector_size.into()))
        }
        KeyType::EXTENT_ITEM => (key.objectid.get(), key.offset),
        KeyType::METADATA_ITEM => (key.objectid.get(), rules.node_size.into()),
        _ => (0, 0),
    };
    start.saturating_add(len)
}

/// Checks one item by itself. [`check_item`](crate::check_item) has passed it.
fn check_item_for_writing(key: &Key, data: &[u8], rules: &WritingRules) -> Result<(), CorruptKind> {
    match key.kind {
        KeyType::INODE_ITEM => inode(key, data, rules),
        KeyType::EXTENT_DATA => file_extent(key, data, rules),
        KeyType::EXTENT_CSUM => csums(key, data, rules),
        KeyType::ROOT_ITEM => root(key, data, rules),
        KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => extent(key, data, rules),
        KeyType::EXTENT_DATA_REF => match ExtentRef::parse_keyed(key.kind, key.offset, data)? {
            Some(found) => data_ref(&found, rules),
            None => Ok(()),
        },
        KeyType::DEV_ITEM if key.objectid != ObjectId::DEV_ITEMS => {
            let (found, want) = (key.objectid.get(), ObjectId::DEV_ITEMS.get());
            Err(CorruptKind::Mismatch { what: "object of a device item", found, want })
        }
        _ => Ok(()),
    }
}

fn not_newer(what: &'static str, found: u64, rules: &WritingRules) -> Result<(), CorruptKind> {
    match found <= rules.newest.get() {
        true => Ok(()),
        false => Err(CorruptKind::Range { what, found, min: 0, max: rules.newest.get() }),
    }
}

fn aligned(what: &'static str, found: u64, rules: &WritingRules) -> Result<(), CorruptKind> {
    let unit = rules.sector_size.into();
    match found.is_multiple_of(unit) {
        true => Ok(()),
        false => Err(CorruptKind::Alignment { what, found, unit }),
    }
}

/// Whether inodes have this number, including the directory in the root tree. The cache of inode numbers has another one, and Linux no
/// longer has that cache.
fn is_inode_number(number: u64) -> bool {
    let (first, last) = (ObjectId::FIRST_FREE.get(), ObjectId::LAST_FREE.get());
    (first..=last).contains(&number) || number == ObjectId::ROOT_TREE_DIR.get()
}

fn inode(key: &Key, data: &[u8], rules: &WritingRules) -> Result<(), CorruptKind> {
    let found = key.objectid.get();
    if key.objectid == ObjectId::FREE_INO {
        return Err(CorruptKind::Unknown { what: CACHE, found });
    }
    if !is_inode_number(found) {
        let (min, max) = (ObjectId::FIRST_FREE.get(), ObjectId::LAST_FREE.get());
        return Err(CorruptKind::Range { what: "inode number", found, min, max });
    }
    let Ok(inode) = RawInodeItem::ref_from_bytes(data) else { return Ok(()) };
    not_newer("generation of an inode", inode.generation.get(), rules)?;
    not_newer("transid of an inode", inode.transid.get(), rules)?;
    let unknown = inode.flags.get() & !u64::from(u32::MAX) & !UPPER_FLAGS_KNOWN;
    match unknown {
        0 => Ok(()),
        found => Err(CorruptKind::Unknown { what: "flags of an inode", found }),
    }
}

fn file_extent(key: &Key, data: &[u8], rules: &WritingRules) -> Result<(), CorruptKind> {
    aligned("file offset", key.offset, rules)?;
    let (generation, regular) = match FileExtent::parse(data)? {
        FileExtent::Inline(head, _) => (head.generation.get(), None),
        FileExtent::Regular(extent) | FileExtent::Prealloc(extent) => (extent.generation.get(), Some(extent)),
    };
    not_newer("generation of a file extent", generation, rules)?;
    let Some(extent) = regular else { return Ok(()) };
    check_alignment(extent, |what, found| aligned(what, found, rules))
}

fn csums(key: &Key, data: &[u8], rules: &WritingRules) -> Result<(), CorruptKind> {
    if key.objectid != ObjectId::EXTENT_CSUM {
        let (found, want) = (key.objectid.get(), ObjectId::EXTENT_CSUM.get());
        return Err(CorruptKind::Mismatch { what: "object of a checksum item", found, want });
    }
    aligned("address", key.offset, rules)?;
    let (found, unit) = (data.len(), rules.checksum_size);
    match found.is_multiple_of(unit) {
        true => Ok(()),
        false => Err(CorruptKind::ItemArray { kind: key.kind, found, unit }),
    }
}

fn root(key: &Key, data: &[u8], rules: &WritingRules) -> Result<(), CorruptKind> {
    let tree = TreeId::from(key.objectid);
    if tree.get() == 0 {
        return Err(CorruptKind::Unknown { what: "tree of a root item", found: 0 });
    }
    if tree == TreeId::TREE_RELOC && key.offset == 0 {
        return Err(CorruptKind::Unknown { what: "tree that relocation copies", found: 0 });
    }
    // Both halves separately: if they differ, readers ignore the second one, but Linux checks it.
    let second = RawRootItem::ref_from_bytes(data).map_or(0, |root| root.generation_v2.get());
    let root = RawRootItem::from_item(data)?;
    not_newer("generation of a root", root.generation.get(), rules)?;
    not_newer("second generation of a root", second, rules)?;
    not_newer("last snapshot of a root", root.last_snapshot.get(), rules)
}

fn extent(key: &Key, data: &[u8], rules: &WritingRules) -> Result<(), CorruptKind> {
    aligned("address", key.objectid.get(), rules)?;
    let item = ExtentItem::parse(key.kind, data)?;
    if key.kind == KeyType::METADATA_ITEM && !rules.has_skinny_metadata {
        let found = key.kind.get().into();
        return Err(CorruptKind::Unknown { what: "extent item: metadata is not skinny", found });
    }
    if key.kind == KeyType::EXTENT_ITEM {
        let is_tree = item.head.flags().contains(ExtentFlags::TREE_BLOCK);
        let (found, want) = (key.offset, u64::from(rules.node_size));
        if is_tree && found != want {
            return Err(CorruptKind::Mismatch { what: "length of a tree block", found, want });
        }
        aligned("length", found, rules)?;
    }
    not_newer("generation of an extent", item.head.generation.get(), rules)?;
    let mut last: Option<(KeyType, u64)> = None;
    for found in item.refs() {
        let found = found?;
        data_ref(&found, rules)?;
        // Types ascend, and within a type the search values descend.
        let (found, by) = (found.kind(), found.key_offset());
        match last {
            Some((previous, after)) if found < previous || found == previous && by > after => {
                return Err(CorruptKind::RefOrder { previous, after, found, by });
            }
            _ => last = Some((found, by)),
        }
    }
    Ok(())
}

/// Checks that a data reference belongs to a file of a subvolume, of relocation, or of the root tree, which has caches of free space.
fn data_ref(found: &ExtentRef, rules: &WritingRules) -> Result<(), CorruptKind> {
    let ExtentRef::ExtentData { root, objectid, offset, .. } = *found else { return Ok(()) };
    if !root.is_shareable() && root != TreeId::ROOT {
        return Err(CorruptKind::Unknown { what: "tree of a reference to data", found: root.get() });
    }
    if !is_inode_number(objectid) && objectid != ObjectId::FREE_INO.get() {
        return Err(CorruptKind::Unknown { what: "inode of a reference to data", found: objectid });
    }
    aligned("offset of a reference to data", offset, rules)
}

#[cfg(test)]
#[path = "writing_tests.rs"]
mod tests;
