//! Printing, byte for byte like `btrfs inspect-internal dump-tree` and `dump-super` of btrfs-progs 6.14.
//!
//! Nothing here trusts its input: a block or superblock that failed its checks can be printed as well, and
//! parts that cannot be read are reported as damaged. `docs/use/dump-tree.md` lists the remaining differences.

mod devices;
mod extents;
mod files;
pub(crate) mod flags;
mod roots;
mod states;
mod superblock;
mod text;
mod walk;

use std::fmt;

use creamery_codec::ChecksumType;

use crate::block::{
    BlockRef, HEADER_FLAG_RELOC, HEADER_FLAG_WRITTEN, HEADER_LEN, ITEM_LEN, leaf_data_max, node_ptr_max,
};
use crate::corrupt::CorruptKind;
use crate::features::Incompat;
use crate::key::{Key, KeyType};
use crate::key_names;
use crate::superblock::Superblock;

pub use superblock::superblock;
pub use walk::{BadBlock, WalkError, filesystem, tree, tree_heading};

/// The facts beyond the block that printing needs.
///
/// ```
/// use creamery_format::dump::DumpContext;
/// let in_tokyo = DumpContext { utc_offset: |_| 9 * 3600, ..DumpContext::default() };
/// assert_eq!((in_tokyo.utc_offset)(0), 32400);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DumpContext {
    /// The filesystem's sector size.
    pub sector_size: u32,
    /// The filesystem's checksum.
    pub checksum: ChecksumType,
    /// Whether the filesystem has simple quotas ([`Incompat::SIMPLE_QUOTA`]).
    pub simple_quota: bool,
    /// Seconds that local time is ahead of UTC at a point in time (seconds since 1970).
    pub utc_offset: fn(i64) -> i64,
}

impl Default for DumpContext {
    /// Sectors of 4096 bytes, CRC-32C, UTC.
    fn default() -> Self {
        Self { sector_size: 4096, checksum: ChecksumType::Crc32c, simple_quota: false, utc_offset: |_| 0 }
    }
}

impl DumpContext {
    /// Creates the context for the filesystem of this superblock, with times in UTC.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Self {
        Self {
            sector_size: superblock.sector_size(),
            checksum: superblock.checksum_type(),
            simple_quota: superblock.incompat().contains(Incompat::SIMPLE_QUOTA),
            ..Self::default()
        }
    }
}

/// The reason why an item's printing stopped.
enum Stop {
    Write(fmt::Error),
    Damage(CorruptKind),
}

impl From<fmt::Error> for Stop {
    fn from(error: fmt::Error) -> Self {
        Self::Write(error)
    }
}

impl From<CorruptKind> for Stop {
    fn from(kind: CorruptKind) -> Self {
        Self::Damage(kind)
    }
}

/// Outcome of printing an item.
type Printed = Result<(), Stop>;

/// Prints a tree block: its header, then its items or key pointers.
///
/// # Errors
/// Only what `w` returns.
pub fn block(w: &mut dyn fmt::Write, block: BlockRef<'_>, context: &DumpContext) -> fmt::Result {
    header(w, block)?;
    if block.is_leaf() { leaf(w, block, context) } else { node(w, block) }
}

/// Returns the number of entries that can be read: at most as many as the block can hold.
fn entries(block: BlockRef<'_>) -> usize {
    let max = match block.is_leaf() {
        true => leaf_data_max(block.node_size()) / ITEM_LEN,
        false => node_ptr_max(block.node_size()),
    };
    block.count().min(max)
}

fn free_space(block: BlockRef<'_>) -> i64 {
    if !block.is_leaf() {
        return node_ptr_max(block.node_size()) as i64 - block.count() as i64;
    }
    let start = match entries(block) {
        0 => leaf_data_max(block.node_size()),
        count => block.item_offset(count - 1),
    };
    start as i64 - (block.count() * ITEM_LEN) as i64
}

fn header(w: &mut dyn fmt::Write, block: BlockRef<'_>) -> fmt::Result {
    let (logical, count, free) = (block.logical(), block.count(), free_space(block));
    let what = if block.is_leaf() { "leaf" } else { "node" };
    write!(w, "{what} {logical} ")?;
    if !block.is_leaf() {
        write!(w, "level {} ", block.level())?;
    }
    write!(w, "items {count} free space {free} generation {} owner ", block.generation())?;
    key_names::write_objectid(w, block.owner().objectid(), KeyType::UNTYPED)?;
    let flags = block.flags() & ((1 << 56) - 1);
    write!(w, "\n{what} {logical} flags 0x{flags:x}(")?;
    let written = if flags & HEADER_FLAG_WRITTEN != 0 { "WRITTEN" } else { "" };
    let reloc = if flags & HEADER_FLAG_RELOC != 0 { "RELOC" } else { "" };
    let between = if written.is_empty() || reloc.is_empty() { "" } else { "|" };
    writeln!(w, "{written}{between}{reloc}) backref revision {}", block.backref_revision())?;
    writeln!(w, "fs uuid {}", block.fsid())?;
    writeln!(w, "chunk uuid {}", block.chunk_tree_uuid())
}

fn node(w: &mut dyn fmt::Write, block: BlockRef<'_>) -> fmt::Result {
    for slot in 0..entries(block) {
        let (child, generation) = block.child(slot);
        writeln!(w, "\tkey {} block {child} gen {generation}", block.key(slot))?;
    }
    Ok(())
}

fn leaf(w: &mut dyn fmt::Write, block: BlockRef<'_>, context: &DumpContext) -> fmt::Result {
    for slot in 0..entries(block) {
        let (key, offset, size) = (block.key(slot), block.item_offset(slot), block.item_size(slot));
        writeln!(w, "\titem {slot} key {key} itemoff {offset} itemsize {size}")?;
        let start = HEADER_LEN + offset;
        let damage = match block.bytes().get(start..start + size) {
            Some(data) => match item(w, &key, data, context) {
                Ok(()) => continue,
                Err(Stop::Write(error)) => return Err(error),
                Err(Stop::Damage(kind)) => kind,
            },
            None => {
                let (found, max) = ((offset + size) as u64, leaf_data_max(block.node_size()) as u64);
                CorruptKind::ItemEnd { found, max }
            }
        };
        writeln!(w, "\t\tdamaged: {damage}")?;
    }
    Ok(())
}

/// Prints the contents of an item.
fn item(w: &mut dyn fmt::Write, key: &Key, data: &[u8], context: &DumpContext) -> Printed {
    match key.kind {
        KeyType::INODE_ITEM => files::inode(w, data, context),
        KeyType::INODE_REF => files::inode_refs(w, data),
        KeyType::INODE_EXTREF => files::inode_extrefs(w, data),
        KeyType::DIR_ITEM | KeyType::DIR_INDEX | KeyType::XATTR_ITEM => files::dir_entries(w, data),
        KeyType::DIR_LOG_ITEM | KeyType::DIR_LOG_INDEX => files::dir_log(w, data),
        KeyType::ORPHAN_ITEM => Ok(writeln!(w, "\t\torphan item")?),
        KeyType::EXTENT_DATA => files::file_extent(w, data),
        KeyType::CSUM_ITEM => Ok(writeln!(w, "\t\tcsum item")?),
        KeyType::EXTENT_CSUM => extents::csum(w, key, data, context),
        KeyType::ROOT_ITEM => roots::root(w, data, context),
        KeyType::ROOT_REF => roots::root_ref(w, "ref", data),
        KeyType::ROOT_BACKREF => roots::root_ref(w, "backref", data),
        KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => extents::extent_item(w, key, data),
        KeyType::TREE_BLOCK_REF => Ok(writeln!(w, "\t\ttree block backref")?),
        KeyType::SHARED_BLOCK_REF => Ok(writeln!(w, "\t\tshared block backref")?),
        KeyType::EXTENT_DATA_REF | KeyType::SHARED_DATA_REF | KeyType::EXTENT_OWNER_REF => {
            extents::keyed_ref(w, key, data)
        }
        KeyType::EXTENT_REF_V0 => Ok(writeln!(w, "\t\textent ref v0 (deprecated)")?),
        KeyType::BLOCK_GROUP_ITEM => devices::block_group(w, data),
        KeyType::FREE_SPACE_INFO => devices::free_space_info(w, data),
        KeyType::FREE_SPACE_EXTENT => Ok(writeln!(w, "\t\tfree space extent")?),
        KeyType::FREE_SPACE_BITMAP => Ok(writeln!(w, "\t\tfree space bitmap")?),
        KeyType::CHUNK_ITEM => devices::chunk_item(w, data),
        KeyType::DEV_ITEM => devices::dev_item(w, data),
        KeyType::DEV_EXTENT => devices::dev_extent(w, data),
        KeyType::RAID_STRIPE => devices::raid_stripe(w, data),
        KeyType::UUID_SUBVOL | KeyType::UUID_RECEIVED_SUBVOL => roots::uuid(w, data),
        _ => states::item(w, key, data, context),
    }
}

#[cfg(test)]
mod tests;
