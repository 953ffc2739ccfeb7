//! Files and directories.

use anyhow::{Context, Result};
use creamery_base::TreeId;
use creamery_check::Problem::*;
use creamery_format::{Key, KeyType};

use super::Change::{Image as Any, Item as One, Last, Leaf};
use super::edits::{
    add, any, big_file, entry_of_file, is_directory, is_file, mode, not_root_directory, on_disk, rekey,
    rekey_with_parents, remove, set, u64_at,
};
use super::{DamageRow, row};
use crate::image::{Image, Item};

const FS: TreeId = TreeId::FS;
/// A subvolume whose files share nothing.
const SUBVOLUME: TreeId = TreeId::new(256);

pub(super) const ROWS: &[DamageRow] = &[
    row("link count", One(FS, KeyType::INODE_ITEM, is_file, |b, s| add(b, s, 40, 1)), &[InodeLinks], true),
    row(
        "bytes of a file",
        One(FS, KeyType::INODE_ITEM, big_file, |b, s| add(b, s, 24, 4096)),
        &[InodeBytes],
        true,
    ),
    row(
        "size of a directory",
        One(FS, KeyType::INODE_ITEM, is_directory, |b, s| add(b, s, 16, 1)),
        &[DirectorySize],
        true,
    ),
    row(
        "inode item lost",
        One(FS, KeyType::INODE_ITEM, is_file, remove),
        &[InodeMissing, EntryWithoutInode],
        true,
    ),
    row(
        "inode ref lost",
        One(FS, KeyType::INODE_REF, not_root_directory, remove),
        &[EntryWithoutRef, InodeLinks],
        true,
    ),
    row("extref lost", One(FS, KeyType::INODE_EXTREF, any, remove), &[EntryWithoutRef, InodeLinks], true),
    row(
        "extref hash",
        Last(FS, KeyType::INODE_EXTREF, any, |b, s| rekey(b, s, |k| Key { offset: k.offset + 1, ..k })),
        &[ExtrefHash],
        false,
    ),
    row(
        "entry by index lost",
        One(FS, KeyType::DIR_INDEX, entry_of_file, remove),
        &[DirectoryIndexes, DirectorySize, RefWithoutEntry],
        true,
    ),
    row(
        "entry by name lost",
        One(FS, KeyType::DIR_ITEM, entry_of_file, remove),
        &[DirectoryIndexes, DirectorySize],
        true,
    ),
    row(
        "slash in an entry",
        One(FS, KeyType::DIR_INDEX, entry_of_file, |b, s| set(b, s, 31, b"/")),
        &[BlockName],
        true,
    ),
    row(
        "zero byte in an inode ref",
        One(FS, KeyType::INODE_REF, not_root_directory, |b, s| set(b, s, 10, b"\0")),
        &[BlockName],
        true,
    ),
    row(
        "slash in an extref",
        One(FS, KeyType::INODE_EXTREF, any, |b, s| set(b, s, 18, b"/")),
        &[BlockName],
        true,
    ),
    row(
        "type in an entry",
        One(FS, KeyType::DIR_INDEX, entry_of_file, |b, s| set(b, s, 29, &[5])),
        &[EntryType, DirectoryIndexes],
        true,
    ),
    row(
        "mode of a file",
        One(FS, KeyType::INODE_ITEM, big_file, |b, s| set(b, s, 52, &0o010_644_u32.to_le_bytes())),
        &[EntryType, InodeItems],
        true,
    ),
    row(
        "bits of a mode that mean nothing",
        One(FS, KeyType::INODE_ITEM, big_file, |b, s| set(b, s, 54, &[1])),
        &[BlockItem],
        true,
    ),
    row(
        "inode of the future",
        One(FS, KeyType::INODE_ITEM, is_file, |b, s| add(b, s, 0, 1 << 40)),
        &[InodeGeneration],
        true,
    ),
    row(
        "unlinked inode",
        One(FS, KeyType::INODE_ITEM, is_file, |b, s| set(b, s, 40, &[0; 4])),
        &[InodeUnlinked, InodeLinks],
        true,
    ),
    row(
        "extent moved",
        One(FS, KeyType::EXTENT_DATA, on_disk, |b, s| add(b, s, 21, 4096)),
        &[ExtentMissing, ReferenceCount],
        true,
    ),
    row(
        "generation of a file extent",
        One(FS, KeyType::EXTENT_DATA, on_disk, |b, s| set(b, s, 0, &u32::MAX.to_le_bytes())),
        &[FileExtentGeneration],
        true,
    ),
    row(
        "file extent beyond its extent",
        One(FS, KeyType::EXTENT_DATA, on_disk, |b, s| add(b, s, 37, 1 << 20)),
        &[],
        true,
    ),
    row(
        "directory with many links",
        One(FS, KeyType::INODE_ITEM, is_directory, |b, s| set(b, s, 40, &2_u32.to_le_bytes())),
        &[BlockItem],
        true,
    ),
    row("extent lost", One(FS, KeyType::EXTENT_DATA, on_disk, remove), &[InodeBytes, ReferenceCount], true),
    row(
        "extents overlap",
        Last(FS, KeyType::EXTENT_DATA, |it| on_disk(it) && it.key.offset > 0, |b, s| add(b, s - 1, 45, 8192)),
        &[FileExtentOverlap, InodeBytes],
        true,
    ),
    row(
        "checksums unwanted",
        One(FS, KeyType::INODE_ITEM, big_file, |b, s| add(b, s, 64, 1)),
        &[ChecksumUnwanted],
        true,
    ),
    row(
        "entry of a file that never was",
        One(FS, KeyType::DIR_INDEX, entry_of_file, |b, s| add(b, s, 0, 1 << 30)),
        &[EntryWithoutInode, RefWithoutEntry],
        true,
    ),
    row(
        "directory with data",
        One(FS, KeyType::INODE_ITEM, big_file, |b, s| set(b, s, 52, &0o040_755_u32.to_le_bytes())),
        &[InodeItems, EntryType],
        true,
    ),
    row(
        "flags of a symlink",
        One(FS, KeyType::INODE_ITEM, |it| mode(it) & 0o170_000 == 0o120_000, |b, s| add(b, s, 64, 0x40)),
        &[InodeFlags],
        true,
    ),
    row(
        "index of a root directory's own name",
        One(FS, KeyType::INODE_REF, |it| it.key.objectid.get() == it.key.offset, |b, s| set(b, s, 0, &[3])),
        &[RefWithoutEntry],
        true,
    ),
    row(
        "file extent longer than in memory",
        One(FS, KeyType::EXTENT_DATA, on_disk, |b, s| set(b, s, 8, &[0; 8])),
        &[BlockItem],
        true,
    ),
    row(
        "larger than any file",
        One(FS, KeyType::INODE_ITEM, is_file, |b, s| set(b, s, 16, &[0xff; 8])),
        &[BlockItem],
        false,
    ),
    row(
        "offset in an inode's key",
        One(FS, KeyType::INODE_ITEM, is_file, |b, s| rekey(b, s, |k| Key { offset: 1, ..k })),
        &[BlockItem],
        false,
    ),
    row(
        "inline data that does not unpack",
        One(FS, KeyType::EXTENT_DATA, |it| it.data[20] == 0, |b, s| set(b, s, 16, &[3])),
        &[FileInline],
        false,
    ),
    row("compressed data without checksums", Any(compress_unsummed), &[ChecksumCompressed], true),
    row(
        "written data that is said not to be",
        One(SUBVOLUME, KeyType::EXTENT_DATA, on_disk, |b, s| set(b, s, 20, &[2])),
        &[ChecksumUnwritten],
        true,
    ),
    row(
        "data that does not unpack",
        One(SUBVOLUME, KeyType::EXTENT_DATA, on_disk, |b, s| set(b, s, 16, &[3])),
        &[DataPacked],
        false,
    ),
    row(
        "compressed data that is too long",
        One(
            FS,
            KeyType::EXTENT_DATA,
            |it| on_disk(it) && u64_at(it, 8) > 1 << 20,
            |b, s| set(b, s, 16, &[1]),
        ),
        &[DataPacked],
        false,
    ),
    row("name twice", Any(name_twice), &[EntryTwice], false),
    row(
        "item of no type",
        One(FS, KeyType::XATTR_ITEM, any, |b, s| rekey(b, s, |k| Key { kind: KeyType::new(26), ..k })),
        &[ItemForeign],
        false,
    ),
    row("fs-verity", Any(|image| verity(image, 0)), &[VerityItem], false),
    row("descriptor of fs-verity", Any(|image| verity(image, 1)), &[VerityItem], false),
    row(
        "size of a symbolic link",
        One(FS, KeyType::INODE_ITEM, |it| mode(it) >> 12 == 0o12, |b, s| add(b, s, 16, 2)),
        &[SymlinkSize],
        false,
    ),
    row(
        "symbolic link without a target",
        One(FS, KeyType::EXTENT_DATA, |it| it.data.ends_with(b"target"), |b, s| set(b, s, 21, &[0; 6])),
        &[SymlinkTarget],
        false,
    ),
    row(
        "size of a fifo",
        One(FS, KeyType::INODE_ITEM, |it| mode(it) >> 12 == 0o1, |b, s| add(b, s, 16, 1)),
        &[SpecialSize],
        false,
    ),
    row(
        "size of a device",
        One(FS, KeyType::INODE_ITEM, |it| mode(it) >> 12 == 0o2, |b, s| add(b, s, 16, 4096)),
        &[SpecialSize],
        false,
    ),
    row("owner of a leaf that snapshots share", Leaf(FS, |b, _| b[94] = 1), &[BlockOwner], true),
    row("inode cache", Any(inode_cache), &[InodeCache, EntryWithoutInode], true),
    row(
        "name hash",
        One(FS, KeyType::DIR_ITEM, any, |b, s| rekey(b, s, |k| Key { offset: k.offset + 1, ..k })),
        &[BlockItem],
        true,
    ),
];

/// Marks one extent of a file without checksums as compressed.
fn compress_unsummed(image: &Image) -> Result<()> {
    let items = image.items(FS)?;
    let unsummed = |it: &&Item| it.key.kind == KeyType::INODE_ITEM && is_file(it) && u64_at(it, 64) & 1 == 1;
    let inode = items.iter().find(unsummed).context("no file without checksums")?;
    let extent = items
        .iter()
        .find(|it| {
            (it.key.objectid, it.key.kind) == (inode.key.objectid, KeyType::EXTENT_DATA) && on_disk(it)
        })
        .context("it has no extent")?;
    image.change(extent.block, |bytes| set(bytes, extent.slot, 16, &[1]))
}

/// Gives one of two files whose names have one hash the name of the other one, in all three places.
fn name_twice(image: &Image) -> Result<()> {
    let (one, other) = (b"tamblxmc", b"pjrhmdny");
    for item in image.items(FS)? {
        let names = [KeyType::DIR_ITEM, KeyType::DIR_INDEX, KeyType::INODE_REF].contains(&item.key.kind);
        let at = item.data.windows(other.len()).position(|name| name == other);
        if let Some(at) = at.filter(|_| names) {
            image.change(item.block, |bytes| set(bytes, item.slot, at, one))?;
        }
    }
    Ok(())
}

/// Makes the last attribute of a file an fs-verity item of it; the file has no fs-verity.
fn verity(image: &Image, offset: u64) -> Result<()> {
    let items = image.items(FS)?;
    let is_last =
        |pair: &&[Item]| pair[0].key.kind == KeyType::XATTR_ITEM && pair[1].key.kind >= KeyType::EXTENT_DATA;
    let last = items.windows(2).find(is_last).context("no attribute of a file with data")?;
    let key = Key { kind: KeyType::VERITY_DESC_ITEM, offset, ..last[0].key };
    rekey_with_parents(image, FS, &last[0], key)
}

/// Makes the last inode of the tree, which has only a name, the inode of the inode cache.
fn inode_cache(image: &Image) -> Result<()> {
    let items = image.items(FS)?;
    let inode = items.iter().rfind(|it| it.key.kind == KeyType::INODE_ITEM).context("no inode")?;
    // From the last one on, so that keys stay in order.
    for item in items.iter().rev().filter(|it| it.key.objectid == inode.key.objectid) {
        let objectid = creamery_base::ObjectId::FREE_INO;
        rekey_with_parents(image, FS, item, Key { objectid, ..item.key })?;
    }
    Ok(())
}

/// Rows for a filesystem in which items describe holes.
pub(super) const HOLES: &[DamageRow] =
    &[row("hole lost", One(FS, KeyType::EXTENT_DATA, hole, remove), &[FileHole], true)];

fn hole(item: &Item) -> bool {
    item.data.len() == 53 && item.data[20] == 1 && u64_at(item, 21) == 0
}
