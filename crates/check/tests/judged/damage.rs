//! The table of damage: one thing is changed in all copies and sealed, and the finding has to be the one stated.
//!
//! Where btrfs check complains, so must we; whether it does is stated, too, and shown.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use creamery_base::{Logical, ObjectId, TreeId};
use creamery_check::Problem::{self, *};
use creamery_format::{BlockMut, BlockRef, Key, KeyType, RawSuperblock};
use creamery_testkit::Run;
use creamery_testkit::harness::Case;

use crate::image::{Image, Item, checked, generation};
use crate::shapes;

type Edit = fn(&mut [u8], usize);

enum Change {
    /// The first item of this type in the tree for which the function says yes.
    Item(TreeId, KeyType, fn(&Item) -> bool, Edit),
    /// The last such item.
    Last(TreeId, KeyType, fn(&Item) -> bool, Edit),
    /// The root block of a tree.
    Block(TreeId, Edit),
    /// A leaf that is not the tree's root.
    Leaf(TreeId, Edit),
    Superblock(fn(&mut RawSuperblock)),
    /// Anything else.
    Image(fn(&Image) -> Result<()>),
}
use Change::{Block, Image as Any, Item as One, Last, Leaf, Superblock as Super};

struct Row {
    name: &'static str,
    change: Change,
    want: &'static [Problem],
    /// Whether btrfs check complains.
    btrfs: bool,
}

const fn row(name: &'static str, change: Change, want: &'static [Problem], btrfs: bool) -> Row {
    Row { name, change, want, btrfs }
}

fn any(_: &Item) -> bool {
    true
}

/// Adds to the eight bytes at `at` of the item's data.
fn add(bytes: &mut [u8], slot: usize, at: usize, more: u64) {
    let mut block = BlockMut::new(bytes);
    let field = &mut block.data_mut(slot)[at..at + 8];
    let old = u64::from_le_bytes(field.try_into().expect("eight bytes"));
    field.copy_from_slice(&old.wrapping_add(more).to_le_bytes());
}

fn set(bytes: &mut [u8], slot: usize, at: usize, new: &[u8]) {
    BlockMut::new(bytes).data_mut(slot)[at..at + new.len()].copy_from_slice(new);
}

fn remove(bytes: &mut [u8], slot: usize) {
    BlockMut::new(bytes).remove_items(slot, 1);
}

fn rekey(bytes: &mut [u8], slot: usize, edit: impl Fn(Key) -> Key) {
    let key = BlockRef::new(bytes).key(slot);
    BlockMut::new(bytes).set_item_key(slot, &edit(key));
}

fn u64_at(item: &Item, at: usize) -> u64 {
    u64::from_le_bytes(item.data[at..at + 8].try_into().expect("eight bytes"))
}

fn mode(item: &Item) -> u32 {
    u32::from_le_bytes(item.data[52..56].try_into().expect("four bytes"))
}

fn is_file(item: &Item) -> bool {
    mode(item) & 0o170_000 == 0o100_000 && item.key.objectid.get() > 256
}

fn is_directory(item: &Item) -> bool {
    mode(item) & 0o170_000 == 0o040_000
}

fn big_file(item: &Item) -> bool {
    is_file(item) && u64_at(item, 16) == 3_000_000
}

/// A regular extent that is on disk.
fn on_disk(item: &Item) -> bool {
    item.data.len() == 53 && item.data[20] == 1 && u64_at(item, 21) != 0
}

fn is_data(item: &Item) -> bool {
    u64_at(item, 16) & 1 == 1
}

fn has_data_ref(item: &Item) -> bool {
    is_data(item) && item.data.len() > 24 && item.data[24] == 178
}

fn subvolume(item: &Item) -> bool {
    item.key.objectid.get() >= 256 && item.key.objectid <= ObjectId::LAST_FREE
}

fn not_root_directory(item: &Item) -> bool {
    item.key.objectid.get() > 256
}

fn entry_of_file(item: &Item) -> bool {
    item.data[29] == 1
}

const FS: TreeId = TreeId::FS;
const EXTENT: TreeId = TreeId::EXTENT;

const FILES: &[Row] = &[
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
        "name hash",
        One(FS, KeyType::DIR_ITEM, any, |b, s| rekey(b, s, |k| Key { offset: k.offset + 1, ..k })),
        &[BlockItem],
        true,
    ),
];

const BLOCKS: &[Row] = &[
    row("relocation flag", Block(TreeId::UUID, |b, _| b[56] |= 2), &[BlockFlags], true),
    row("backref revision", Block(TreeId::UUID, |b, _| b[63] = 0), &[BlockFlags], true),
    row(
        "checksum",
        Any(|image| {
            let root = image.blocks(FS)?[0];
            let mut bytes = image.block(root)?;
            bytes[200] ^= 1;
            image.write(root, &bytes)
        }),
        &[BlockChecksum],
        true,
    ),
    row("filesystem id", Leaf(FS, |b, _| b[32] ^= 1), &[BlockIdentity], true),
    row("address", Leaf(FS, |b, _| b[50] ^= 1), &[BlockIdentity], true),
    row(
        "generation",
        Leaf(FS, |b, _| {
            let old = generation(b);
            BlockMut::new(b).set_generation(old.next());
        }),
        &[BlockGeneration],
        true,
    ),
    row("level", Leaf(FS, |b, _| b[100] = 1), &[BlockLevel], true),
    row("owner", Block(TreeId::CSUM, |b, _| BlockMut::new(b).set_owner(TreeId::DEV)), &[BlockOwner], true),
    row(
        "owner among subvolumes",
        Block(FS, |b, _| BlockMut::new(b).set_owner(TreeId::new(900))),
        &[ExtentOwner],
        true,
    ),
    row(
        "first key",
        Leaf(FS, |b, _| {
            let (first, second) = (BlockRef::new(b).key(0), BlockRef::new(b).key(1));
            let between =
                first.next().filter(|key| *key < second).unwrap_or(first.prev().expect("not the least key"));
            BlockMut::new(b).set_item_key(0, &between);
        }),
        &[BlockFirstKey],
        true,
    ),
    row(
        "key order",
        Leaf(FS, |b, _| {
            let (first, second) = (BlockRef::new(b).key(1), BlockRef::new(b).key(2));
            let mut block = BlockMut::new(b);
            block.set_item_key(1, &second);
            block.set_item_key(2, &first);
        }),
        &[BlockKeyOrder],
        true,
    ),
    row(
        "keys of the neighbour",
        Leaf(FS, |b, _| {
            let last = BlockRef::new(b).count() - 1;
            BlockMut::new(b).set_item_key(last, &Key::new(ObjectId::LAST_FREE, KeyType::XATTR_ITEM, 7));
        }),
        &[BlockItem],
        true,
    ),
    row(
        "number of items",
        Leaf(FS, |b, _| b[96..100].copy_from_slice(&60_000_u32.to_le_bytes())),
        &[BlockCount],
        true,
    ),
    row("item offset", Leaf(FS, |b, _| b[101 + 17] ^= 4), &[BlockItemBounds], true),
    row("pointer", Block(FS, |b, _| b[101 + 17..101 + 25].fill(0)), &[BlockPointer], true),
    row("pointer into nowhere", Block(FS, |b, _| b[101 + 22] ^= 0x40), &[BlockAddress], true),
    row(
        "one copy",
        Any(|image| {
            let root = image.blocks(FS)?[0];
            let at = image.volume.map(root, 4096)?.mirrors()[0][0].at.offset;
            image.poke(at + 300, &[0xff; 64])
        }),
        &[BlockCopy],
        false,
    ),
];

const EXTENTS: &[Row] = &[
    row(
        "reference count",
        One(EXTENT, KeyType::EXTENT_ITEM, is_data, |b, s| add(b, s, 0, 1)),
        &[ExtentRefCount],
        true,
    ),
    row(
        "extent item lost",
        One(EXTENT, KeyType::EXTENT_ITEM, has_data_ref, remove),
        &[ExtentMissing, BlockGroupUsed, FreeSpaceMissing, ChecksumStale],
        true,
    ),
    row(
        "reference by another tree",
        One(EXTENT, KeyType::EXTENT_ITEM, has_data_ref, |b, s| add(b, s, 25, 1000)),
        &[ReferenceStale, ReferenceMissing],
        true,
    ),
    row(
        "reference by another inode",
        One(EXTENT, KeyType::EXTENT_ITEM, has_data_ref, |b, s| add(b, s, 33, 1)),
        &[ReferenceStale, ReferenceMissing],
        true,
    ),
    row(
        "references of one file",
        One(EXTENT, KeyType::EXTENT_ITEM, has_data_ref, |b, s| {
            add(b, s, 0, 1);
            set(b, s, 49, &[BlockRef::new(b).data(s)[49] + 1]);
        }),
        &[ReferenceCount],
        true,
    ),
    row(
        "level of a tree block",
        One(EXTENT, KeyType::METADATA_ITEM, any, |b, s| rekey(b, s, |k| Key { offset: k.offset + 1, ..k })),
        &[ExtentLevel],
        true,
    ),
    row(
        "tree block of nobody",
        Any(|image| {
            let leaf = *image.blocks(TreeId::CSUM)?.last().context("no block")?;
            edit_extent(image, leaf, remove)
        }),
        &[ExtentMissing, BlockGroupUsed],
        true,
    ),
    row(
        "owner of a tree block",
        Any(|image| {
            let leaf = *image.blocks(TreeId::CSUM)?.last().context("no block")?;
            edit_extent(image, leaf, |b, s| add(b, s, 25, 2))
        }),
        &[ExtentOwner, ReferenceStale, ReferenceMissing],
        true,
    ),
    row(
        "full backref",
        Any(|image| {
            let leaf = *image.blocks(FS)?.first().context("no block")?;
            edit_extent(image, leaf, |b, s| set(b, s, 17, &[1]))
        }),
        &[ReferenceStale, ReferenceMissing],
        true,
    ),
    row(
        "extent of the future",
        One(EXTENT, KeyType::EXTENT_ITEM, is_data, |b, s| add(b, s, 8, 1 << 40)),
        &[ExtentGeneration],
        true,
    ),
    row(
        "extent too long",
        One(EXTENT, KeyType::EXTENT_ITEM, has_data_ref, |b, s| {
            rekey(b, s, |k| Key { offset: k.offset + 4096, ..k })
        }),
        &[ReferenceMissing],
        true,
    ),
    row(
        "extent out of order",
        One(EXTENT, KeyType::EXTENT_ITEM, has_data_ref, |b, s| {
            rekey(b, s, |k| Key { objectid: ObjectId::new(4096), ..k });
        }),
        &[BlockKeyOrder],
        true,
    ),
    row(
        "used bytes of a group",
        One(EXTENT, KeyType::BLOCK_GROUP_ITEM, any, |b, s| add(b, s, 0, 4096)),
        &[BlockGroupUsed, SuperblockBytesUsed],
        true,
    ),
    row("block group lost", Last(EXTENT, KeyType::BLOCK_GROUP_ITEM, any, remove), &[BlockGroupMissing], true),
    row(
        "flags of a group",
        Last(EXTENT, KeyType::BLOCK_GROUP_ITEM, any, |b, s| add(b, s, 16, 1 << 4)),
        &[BlockGroupWrong],
        true,
    ),
    row("checksums lost", One(TreeId::CSUM, KeyType::EXTENT_CSUM, any, remove), &[ChecksumMissing], true),
    row(
        "checksums of nothing",
        Last(TreeId::CSUM, KeyType::EXTENT_CSUM, any, |b, s| {
            rekey(b, s, |k| Key { offset: k.offset + (64 << 20), ..k })
        }),
        &[ChecksumStale, ChecksumMissing],
        true,
    ),
    row(
        "data",
        Any(|image| {
            let item = image.items(TreeId::CSUM)?.into_iter().next().context("no sums")?;
            image.write(Logical::new(item.key.offset), &[0xa5; 4096])
        }),
        &[DataChecksum],
        true,
    ),
    row(
        "free space lost",
        Last(TreeId::FREE_SPACE, KeyType::FREE_SPACE_EXTENT, any, remove),
        &[FreeSpaceMissing, FreeSpaceCount],
        true,
    ),
    row(
        "free space in use",
        Last(TreeId::FREE_SPACE, KeyType::FREE_SPACE_EXTENT, any, |b, s| {
            rekey(b, s, |k| Key {
                objectid: ObjectId::new(k.objectid.get() - 4096),
                offset: k.offset + 4096,
                ..k
            });
        }),
        &[FreeSpaceUsed],
        true,
    ),
    row(
        "count of free extents",
        Last(TreeId::FREE_SPACE, KeyType::FREE_SPACE_INFO, any, |b, s| set(b, s, 0, &77_u32.to_le_bytes())),
        &[FreeSpaceCount],
        true,
    ),
    row(
        "free space info lost",
        Last(TreeId::FREE_SPACE, KeyType::FREE_SPACE_INFO, any, remove),
        &[FreeSpaceInfoMissing],
        true,
    ),
    row(
        "form of free space",
        Last(TreeId::FREE_SPACE, KeyType::FREE_SPACE_INFO, any, |b, s| set(b, s, 4, &[1])),
        &[FreeSpaceForm],
        true,
    ),
];

const DEVICES: &[Row] = &[
    row(
        "device under another key",
        Last(TreeId::CHUNK, KeyType::DEV_ITEM, any, |b, s| {
            rekey(b, s, |k| Key { objectid: ObjectId::new(2), ..k })
        }),
        &[SuperblockDeviceCount],
        true,
    ),
    row(
        "device extent lost",
        Last(TreeId::DEV, KeyType::DEV_EXTENT, any, remove),
        &[DeviceExtentMissing, DeviceBytesUsed],
        true,
    ),
    row(
        "device extent of another chunk",
        Last(TreeId::DEV, KeyType::DEV_EXTENT, any, |b, s| add(b, s, 16, 1 << 30)),
        &[DeviceExtentWrong],
        true,
    ),
    row(
        "length of a device extent",
        One(TreeId::DEV, KeyType::DEV_EXTENT, any, |b, s| add(b, s, 24, 1 << 20)),
        &[DeviceExtentWrong, DeviceExtentOverlap, DeviceBytesUsed],
        true,
    ),
    row(
        "used bytes of a device",
        Last(TreeId::CHUNK, KeyType::DEV_ITEM, any, |b, s| add(b, s, 16, 4096)),
        &[DeviceBytesUsed, SuperblockDevice],
        true,
    ),
    row(
        "size of a device",
        Last(TreeId::CHUNK, KeyType::DEV_ITEM, any, |b, s| add(b, s, 8, 1 << 20)),
        &[DeviceSize, SuperblockTotalBytes],
        true,
    ),
    row(
        "stripe moved",
        Last(TreeId::CHUNK, KeyType::CHUNK_ITEM, any, |b, s| add(b, s, 56, 65536)),
        &[DeviceExtentMissing, DeviceExtentExtra],
        true,
    ),
    row(
        "chunk lost",
        Last(TreeId::CHUNK, KeyType::CHUNK_ITEM, any, remove),
        &[BlockGroupExtra, DeviceExtentExtra],
        true,
    ),
    row(
        "superblock: size",
        Super(|raw| raw.total_bytes = (raw.total_bytes.get() - 4096).into()),
        &[SuperblockTotalBytes],
        true,
    ),
    row(
        "superblock: used bytes",
        Super(|raw| raw.bytes_used = (raw.bytes_used.get() + 4096).into()),
        &[SuperblockBytesUsed],
        true,
    ),
    row(
        "superblock: device",
        Super(|raw| raw.dev_item.bytes_used = (raw.dev_item.bytes_used.get() + 4096).into()),
        &[SuperblockDevice],
        false,
    ),
    row(
        "superblock: system chunk of another place",
        Super(|raw| {
            let stripe = 17 + 48 + 32 + 8; // the second copy's offset
            raw.sys_chunk_array[stripe + 2] ^= 0x20;
        }),
        &[SystemChunkExtra],
        false,
    ),
    row(
        "superblock: second copy",
        Any(|image| image.poke((64 << 20) + 500, &[0xff; 8])),
        &[SuperblockCopyDamaged],
        false,
    ),
    row(
        "superblock: second copy erased",
        Any(|image| image.poke(64 << 20, &[0; 4096])),
        &[SuperblockCopyMissing],
        false,
    ),
];

const ROOTS: &[Row] = &[
    row(
        "root directory of another number",
        One(TreeId::ROOT, KeyType::ROOT_ITEM, subvolume, |b, s| set(b, s, 168, &[0; 8])),
        &[RootDirectory],
        true,
    ),
    row("root ref lost", One(TreeId::ROOT, KeyType::ROOT_REF, any, remove), &[RootRefMissing], true),
    row(
        "root backref lost",
        One(TreeId::ROOT, KeyType::ROOT_BACKREF, any, remove),
        &[RootBackrefMissing, SubvolumeUnreferenced],
        true,
    ),
    row(
        "root ref of another directory",
        One(TreeId::ROOT, KeyType::ROOT_REF, any, |b, s| add(b, s, 0, 1)),
        &[RootBackrefMissing, RootRefMissing, RootRefEntry],
        true,
    ),
    row(
        "generation of a tree",
        One(TreeId::ROOT, KeyType::ROOT_ITEM, subvolume, |b, s| add(b, s, 160, 1)),
        &[BlockGeneration],
        true,
    ),
    row(
        "level of a tree",
        One(TreeId::ROOT, KeyType::ROOT_ITEM, subvolume, |b, s| add(b, s, 238, 1)),
        &[BlockLevel],
        true,
    ),
    row(
        "tree lost",
        One(TreeId::ROOT, KeyType::ROOT_ITEM, |it| it.key.objectid.get() == 7, remove),
        &[TreeMissing],
        true,
    ),
    row(
        "subvolume lost",
        One(TreeId::ROOT, KeyType::ROOT_ITEM, subvolume, remove),
        &[RootRefTree, ReferenceStale],
        true,
    ),
    row("uuid lost", One(TreeId::UUID, KeyType::UUID_SUBVOL, any, remove), &[UuidMissing], false),
    row(
        "uuid of nothing",
        One(TreeId::UUID, KeyType::UUID_SUBVOL, any, |b, s| add(b, s, 0, 5000)),
        &[UuidMissing, UuidStale],
        false,
    ),
    row(
        "entry of a subvolume lost",
        One(FS, KeyType::DIR_INDEX, |it| it.data[8] == 132, remove),
        &[RootRefEntry, DirectoryIndexes],
        true,
    ),
];

/// Edits the extent item of a tree block.
fn edit_extent(image: &Image, of: Logical, edit: Edit) -> Result<()> {
    let items = image.items(EXTENT)?;
    let item = items
        .iter()
        .find(|it| it.key.kind == KeyType::METADATA_ITEM && it.key.objectid.get() == of.get())
        .context("no extent item")?;
    image.change(item.block, |bytes| edit(bytes, item.slot))
}

fn apply(image: &Image, change: &Change) -> Result<()> {
    let pick = |tree, kind, wanted: fn(&Item) -> bool, last: bool| -> Result<Item> {
        let mut items = image.items(tree)?;
        // The first slot of a leaf is its parent's key: taking it away is another kind of damage.
        items.retain(|it| it.key.kind == kind && (it.slot > 0 || last) && wanted(it));
        let found = if last { items.pop() } else { items.into_iter().next() };
        found.context("the image has no such item")
    };
    match change {
        One(tree, kind, wanted, edit) => {
            let item = pick(*tree, *kind, *wanted, false)?;
            image.change(item.block, |bytes| edit(bytes, item.slot))
        }
        Last(tree, kind, wanted, edit) => {
            let item = pick(*tree, *kind, *wanted, true)?;
            image.change(item.block, |bytes| edit(bytes, item.slot))
        }
        Block(tree, edit) => image.change(image.blocks(*tree)?[0], |bytes| edit(bytes, 0)),
        Leaf(tree, edit) => {
            let leaf = *image.blocks(*tree)?.get(2).context("the tree has one block")?;
            image.change(leaf, |bytes| edit(bytes, 0))
        }
        Super(edit) => image.change_superblocks(edit),
        Any(edit) => edit(image),
    }
}

fn judge(base: &Path, damaged: &Path, row: &Row) -> Result<()> {
    shapes::copy(base, damaged)?;
    apply(&Image::open(damaged)?, &row.change)?;
    let finished = Run::new("btrfs").args(["check", "--check-data-csum"]).arg(damaged).output()?;
    // Of some mismatches it tells and ends with 0 all the same.
    let said = finished.stderr_text();
    let told = ["mismatch", "didn't find", "ERROR:"].iter().any(|word| said.contains(word));
    let complains = finished.code != Some(0) || told;
    let report = match checked(damaged, true) {
        Ok(report) => report,
        Err(error) => bail!("not checked at all: {error}"),
    };
    let numbers: Vec<u16> = report.findings.iter().map(|finding| finding.number).collect();
    for want in row.want {
        let shown: Vec<String> = report.findings.iter().take(12).map(ToString::to_string).collect();
        ensure!(numbers.contains(&want.number()), "want {} ({want}), found {shown:#?}", want.number());
    }
    ensure!(!complains || !report.is_clean(), "btrfs check complains and we do not: {finished}");
    ensure!(
        complains == row.btrfs,
        "btrfs check {}: {finished}",
        if complains { "complains" } else { "is content" }
    );
    Ok(())
}

pub(crate) fn cases() -> Vec<Case> {
    let groups =
        [("files", FILES), ("blocks", BLOCKS), ("extents", EXTENTS), ("devices", DEVICES), ("roots", ROOTS)];
    let case = |(name, rows): (&'static str, &'static [Row])| {
        Case::new(format!("damage/{name}"), &shapes::NEEDS, move |bench| {
            let base = shapes::make(&bench.scratch, &["-n", "4096"], "")?;
            let damaged = bench.scratch.file("damaged.img");
            let failed: Vec<String> = rows
                .iter()
                .filter_map(|row| {
                    judge(&base, &damaged, row).err().map(|error| format!("{}: {error:#}", row.name))
                })
                .collect();
            ensure!(failed.is_empty(), "{} of {} rows:\n{}", failed.len(), rows.len(), failed.join("\n"));
            Ok(())
        })
    };
    let mut cases: Vec<Case> = groups.into_iter().map(case).collect();
    cases.push(Case::new("damage/undescribed-hole", &shapes::NEEDS, |bench| {
        let base = shapes::make(&bench.scratch, &["-O", "^no-holes"], "")?;
        let hole = |it: &Item| it.data.len() == 53 && it.data[20] == 1 && u64_at(it, 21) == 0;
        let lost = row("hole lost", One(FS, KeyType::EXTENT_DATA, hole, remove), &[FileHole], true);
        judge(&base, &bench.scratch.file("damaged.img"), &lost)
    }));
    cases
}
