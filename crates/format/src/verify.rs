//! The gate for tree blocks: a block is trusted if and only if [`verify_block`] passed it. It runs after every read and, on
//! the sealed bytes, before every write.
//!
//! It proves three things: the checksum; that the block is the requested one (filesystem, address, level, generation,
//! owner, first key); and that a walk through it cannot leave it (entry count, key order, item bounds, child pointers).

use creamery_base::{Generation, Logical, TreeId, Uuid};
use creamery_codec::{ChecksumType, checksum};

use crate::block::{BlockRef, HEADER_LEN, ITEM_LEN, LEVEL_MAX, leaf_data_max, node_ptr_max};
use crate::check::check_item;
use crate::corrupt::{BlockSite, CorruptKind, Corruption, SumHex};
use crate::key::Key;
use crate::superblock::Superblock;

/// Bytes of the checksum field at the start of a block.
pub const CSUM_FIELD: usize = 32;
/// The smallest sector size. Addresses of tree blocks are multiples of the sector size.
const SECTOR_MIN: u64 = 4096;

/// The values that the reader knows of a block before reading it.
///
/// ```
/// use creamery_base::*;
/// use creamery_codec::ChecksumType;
/// use creamery_format::*;
/// let new = NewBlock {
///     logical: Logical::new(1 << 20), generation: Generation::new(7), owner: TreeId::FS, level: 0,
///     fsid: Uuid::nil(), chunk_tree_uuid: Uuid::nil(),
/// };
/// let mut bytes = vec![0; 4096];
/// let mut block = BlockMut::init(&mut bytes, &new);
/// block.insert_items(0, &[(Key::MIN, 0)]);
/// block.mark_written();
/// seal(&mut bytes, ChecksumType::Crc32c);
/// let mut want = Expected {
///     logical: Logical::new(1 << 20), level: Some(0), generation: Some(Generation::new(7)),
///     owner: Some(TreeId::FS), first_key: Some(Key::MIN), fsid: Uuid::nil(), checksum: ChecksumType::Crc32c,
/// };
/// assert!(verify_block(&bytes, &want).is_ok());
/// want.logical = Logical::new(2 << 20);
/// assert!(verify_block(&bytes, &want).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Where it was read.
    pub logical: Logical,
    /// Its level, from the parent or the root item.
    pub level: Option<u8>,
    /// Its generation, from the parent or the root item.
    pub generation: Option<Generation>,
    /// The tree through which it was reached. Blocks of a subvolume may belong to any subvolume, because snapshots share them.
    pub owner: Option<TreeId>,
    /// Its first key, from the parent.
    pub first_key: Option<Key>,
    /// The filesystem's metadata UUID.
    pub fsid: Uuid,
    /// The filesystem's checksum.
    pub checksum: ChecksumType,
}

impl Expected {
    /// Expects any block of the filesystem at an address, and nothing else of it.
    #[must_use]
    pub fn anything(logical: Logical, superblock: &Superblock) -> Self {
        Self {
            logical,
            level: None,
            generation: None,
            owner: None,
            first_key: None,
            fsid: superblock.metadata_uuid(),
            checksum: superblock.checksum_type(),
        }
    }
}

/// Writes the checksum of a finished block into its header. Mark the block as written before
/// ([`mark_written`](crate::BlockMut::mark_written)): until then the field says where the data of a loose leaf begins.
pub fn seal(bytes: &mut [u8], kind: ChecksumType) {
    let sum = checksum(kind, &bytes[CSUM_FIELD..]);
    bytes[..CSUM_FIELD].copy_from_slice(sum.field());
}

/// Checks everything that can be checked on one block; the module lists the checks.
///
/// # Errors
/// The first problem found.
pub fn verify_block(bytes: &[u8], want: &Expected) -> Result<(), Corruption> {
    verify(bytes, want, verify_checksum)
}

/// Checks a block without its checksum, for a reader that rescues data. A walk through the block cannot leave it, either.
///
/// # Errors
/// The first problem found.
pub fn verify_block_but_checksum(bytes: &[u8], want: &Expected) -> Result<(), Corruption> {
    verify(bytes, want, |_, _| Ok(()))
}

fn verify(
    bytes: &[u8],
    want: &Expected,
    sum: fn(&[u8], &Expected) -> Result<(), CorruptKind>,
) -> Result<(), Corruption> {
    let mut site =
        BlockSite { level: want.level, tree: want.owner, logical: want.logical, slot: None, key: None };
    let corrupt = |site, kind| Err(Corruption::new(site, kind));
    if bytes.len() < SECTOR_MIN as usize {
        let kind = CorruptKind::BlockLength { found: bytes.len(), want: SECTOR_MIN as usize };
        return corrupt(site, kind);
    }
    sum(bytes, want).and_then(|()| verify_identity(bytes, want)).or_else(|kind| corrupt(site, kind))?;
    let block = BlockRef::new(bytes);
    site.level = Some(block.level());
    site.tree = Some(want.owner.unwrap_or_else(|| block.owner()));
    verify_count(block, want).or_else(|kind| corrupt(site, kind))?;
    let entries = if block.is_leaf() { verify_leaf(block) } else { verify_node(block) };
    entries.or_else(|(slot, kind)| {
        corrupt(BlockSite { slot: Some(slot), key: Some(block.key(slot)), ..site }, kind)
    })
}

/// Checks that these are the bytes that were written.
fn verify_checksum(bytes: &[u8], want: &Expected) -> Result<(), CorruptKind> {
    let header = BlockRef::new(bytes).header();
    let sum = checksum(want.checksum, &bytes[CSUM_FIELD..]);
    let len = want.checksum.size();
    if header.csum[..len] != *sum.as_bytes(want.checksum) {
        let (found, want) = (SumHex::new(header.csum, len), SumHex::new(*sum.field(), len));
        return Err(CorruptKind::Checksum { found, want });
    }
    Ok(())
}

/// Checks the header: that this is the requested block.
fn verify_identity(bytes: &[u8], want: &Expected) -> Result<(), CorruptKind> {
    let block = BlockRef::new(bytes);
    if block.fsid() != want.fsid {
        return Err(CorruptKind::Fsid { found: block.fsid(), want: want.fsid });
    }
    if block.logical() != want.logical {
        return Err(CorruptKind::Address { found: block.logical(), want: want.logical });
    }
    if block.level() > LEVEL_MAX {
        return Err(CorruptKind::LevelMax { found: block.level() });
    }
    if let Some(level) = want.level
        && block.level() != level
    {
        return Err(CorruptKind::Level { found: block.level(), want: level });
    }
    if let Some(generation) = want.generation
        && block.generation() != generation
    {
        return Err(CorruptKind::WrongGeneration { found: block.generation(), want: generation });
    }
    // Like Linux: a writer takes a block without the mark for one of its own transaction, and changes it in place.
    if !block.is_written() {
        return Err(CorruptKind::NotWritten);
    }
    match want.owner {
        Some(owner) if !block.may_belong_to(owner) => {
            Err(CorruptKind::Owner { found: block.owner(), want: owner })
        }
        _ => Ok(()),
    }
}

fn verify_count(block: BlockRef<'_>, want: &Expected) -> Result<(), CorruptKind> {
    let max = match block.is_leaf() {
        true => leaf_data_max(block.node_size()) / ITEM_LEN,
        false => node_ptr_max(block.node_size()),
    };
    if block.count() > max {
        return Err(CorruptKind::Count { found: block.count(), max });
    }
    let Some(first) = block.first_key() else {
        // Only the root of an empty tree, which is found without a parent's key, is empty.
        let empty_root = want.level == Some(0) && want.first_key.is_none();
        return if empty_root { Ok(()) } else { Err(CorruptKind::Empty) };
    };
    match want.first_key {
        Some(want) if want != first => Err(CorruptKind::FirstKey { found: first, want }),
        _ => Ok(()),
    }
}

/// Checks that keys ascend, data is contiguous and inside the block, and each item is possible.
fn verify_leaf(block: BlockRef<'_>) -> Result<(), (usize, CorruptKind)> {
    let max = leaf_data_max(block.node_size()) as u64;
    let heads = (block.count() * ITEM_LEN) as u64;
    let mut boundary = max;
    let mut previous: Option<Key> = None;
    for (slot, item) in block.items().iter().enumerate() {
        let key = Key::from(item.key);
        verify_order(previous, key).map_err(|kind| (slot, kind))?;
        previous = Some(key);
        let start = u64::from(item.offset.get());
        let end = start + u64::from(item.size.get());
        if end > max {
            return Err((slot, CorruptKind::ItemEnd { found: end, max }));
        }
        if end != boundary {
            return Err((slot, CorruptKind::ItemGap { found: end, want: boundary }));
        }
        if start < heads {
            return Err((slot, CorruptKind::ItemOverlap { found: start, min: heads, max }));
        }
        boundary = start;
    }
    (0..block.count()).try_for_each(|slot| check_item(block, slot).map_err(|kind| (slot, kind)))
}

/// Checks that keys ascend, and children have possible addresses and are not newer than the node. A change of a child copies the node, or
/// the same transaction has copied it already. So no block that is reached from a superblock is newer than the superblock.
fn verify_node(block: BlockRef<'_>) -> Result<(), (usize, CorruptKind)> {
    let mut previous: Option<Key> = None;
    for (slot, ptr) in block.key_ptrs().iter().enumerate() {
        let key = Key::from(ptr.key);
        verify_order(previous, key).map_err(|kind| (slot, kind))?;
        previous = Some(key);
        let child = Logical::new(ptr.blockptr.get());
        if child.get() == 0 {
            return Err((slot, CorruptKind::ChildNull));
        }
        if !child.is_aligned(SECTOR_MIN) {
            return Err((slot, CorruptKind::ChildAlignment { found: child, unit: SECTOR_MIN }));
        }
        let (found, max) = (Generation::new(ptr.generation.get()), block.generation());
        if found > max {
            return Err((slot, CorruptKind::ChildGeneration { found, max }));
        }
    }
    Ok(())
}

fn verify_order(previous: Option<Key>, found: Key) -> Result<(), CorruptKind> {
    match previous {
        Some(previous) if previous >= found => Err(CorruptKind::KeyOrder { previous, found }),
        _ => Ok(()),
    }
}

const _: () = assert!(HEADER_LEN > CSUM_FIELD);

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
