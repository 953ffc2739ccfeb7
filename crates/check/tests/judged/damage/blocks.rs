//! Tree blocks.

use creamery_base::{ObjectId, TreeId};
use creamery_check::Problem::*;
use creamery_format::{BlockMut, BlockRef, HEADER_FLAG_WRITTEN, Key, KeyType};

use super::Change::{Block, Image as Any, Leaf};
use super::{DamageRow, row};
use crate::image::generation;

const FS: TreeId = TreeId::FS;

pub(super) const ROWS: &[DamageRow] = &[
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
    row(
        "not marked as written",
        Leaf(FS, |b, _| {
            let flags = BlockRef::new(b).flags() & !HEADER_FLAG_WRITTEN;
            BlockMut::new(b).set_flags(flags);
        }),
        &[BlockNotWritten],
        false, // but Linux does
    ),
    row(
        "pointer newer than its node",
        Any(|image| {
            let root = image.blocks(FS)?[0];
            let bytes = image.block(root)?;
            let ((child, _), newer) = (BlockRef::new(&bytes).child(0), generation(&bytes).next());
            image.change(child, |b| BlockMut::new(b).set_generation(newer))?;
            image.change(root, |b| BlockMut::new(b).set_child(0, child, newer))
        }),
        &[BlockPointer],
        false,
    ),
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

/// Rows for blocks of several sectors.
pub(super) const SECTORS: &[DamageRow] = &[
    // The check goes on below the block, as the copies together have all of it. Linux looks at whole copies only.
    row(
        "another sector of each copy",
        Any(|image| {
            let root = image.blocks(FS)?[0];
            let mapped = image.volume.map(root, 16384)?;
            for (copy, sector) in mapped.mirrors().iter().zip([0, 8192]) {
                image.poke(copy[0].at.offset + sector + 300, &[0xff; 64])?;
            }
            Ok(())
        }),
        &[BlockChecksum],
        true,
    ),
];
