//! The extent tree, checksums and free space.

use anyhow::Context;
use creamery_base::{Logical, ObjectId, TreeId};
use creamery_check::Problem::*;
use creamery_format::{BlockRef, Key, KeyType};

use super::Change::{Image as Any, Item as One, Last};
use super::edits::{
    add, any, edit_extent, has_data_ref, is_data, rekey, rekey_with_parents, remove, set, u64_at,
};
use super::{DamageRow, row};
use crate::image::Image;

const FS: TreeId = TreeId::FS;
const EXTENT: TreeId = TreeId::EXTENT;

/// A leaf without data of the top level, written after the last snapshot.
fn young_leaf(image: &Image) -> anyhow::Result<Logical> {
    let roots = image.items(TreeId::ROOT)?;
    let top = roots.iter().find(|it| (it.key.objectid, it.key.kind) == (FS.objectid(), KeyType::ROOT_ITEM));
    let last_snapshot = u64_at(top.context("no top level")?, 200);
    for logical in image.blocks(FS)? {
        let bytes = image.block(logical)?;
        let block = BlockRef::new(&bytes);
        let extents = (0..block.count()).any(|slot| block.key(slot).kind == KeyType::EXTENT_DATA);
        if block.is_leaf() && block.generation().get() > last_snapshot && !extents {
            return Ok(logical);
        }
    }
    anyhow::bail!("all leaves are old or have data")
}

pub(super) const ROWS: &[DamageRow] = &[
    row(
        "references out of order",
        One(
            EXTENT,
            KeyType::EXTENT_ITEM,
            |it| has_data_ref(it) && it.data.len() == 24 + 2 * 29,
            |b, s| {
                let mut block = creamery_format::BlockMut::new(b);
                block.data_mut(s)[24..].rotate_left(29);
            },
        ),
        &[ReferenceOrder],
        true,
    ),
    row(
        "free space of no block group",
        Last(TreeId::FREE_SPACE, KeyType::FREE_SPACE_INFO, any, |b, s| {
            rekey(b, s, |k| Key { objectid: ObjectId::new(k.objectid.get() - 4096), ..k });
        }),
        &[FreeSpaceGroup, FreeSpaceInfoMissing],
        true,
    ),
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
        "full backref of a leaf that nobody ever shared",
        Any(|image| edit_extent(image, young_leaf(image)?, |b, s| set(b, s, 17, &[1]))),
        &[BlockFlags],
        true,
    ),
    row(
        "extent item newer than its block",
        One(EXTENT, KeyType::METADATA_ITEM, |it| u64_at(it, 8) < 12, |b, s| add(b, s, 8, 1)),
        &[ExtentNewer],
        false,
    ),
    row(
        "extent of the future",
        One(EXTENT, KeyType::EXTENT_ITEM, is_data, |b, s| add(b, s, 8, 1 << 40)),
        &[ExtentGeneration],
        true,
    ),
    row(
        "extent a little newer than the filesystem",
        One(EXTENT, KeyType::EXTENT_ITEM, is_data, |b, s| set(b, s, 8, &u32::MAX.to_le_bytes())),
        &[ExtentGeneration],
        true,
    ),
    row(
        "last extent newer than the filesystem",
        Last(EXTENT, KeyType::EXTENT_ITEM, is_data, |b, s| add(b, s, 8, 1 << 20)),
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
        Last(EXTENT, KeyType::BLOCK_GROUP_ITEM, is_data, |b, s| add(b, s, 16, 1 << 4)),
        &[BlockGroupWrong],
        true,
    ),
    row("checksums lost", One(TreeId::CSUM, KeyType::EXTENT_CSUM, any, remove), &[ChecksumMissing], true),
    row(
        "checksums of nothing",
        Any(|image| {
            let item = image.items(TreeId::CSUM)?.into_iter().next_back().context("no sums")?;
            let key = Key { offset: item.key.offset + (64 << 20), ..item.key };
            rekey_with_parents(image, TreeId::CSUM, &item, key)
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
        "extent item older than its block",
        Any(|image| {
            edit_extent(image, image.blocks(TreeId::FS)?[0], |b, s| set(b, s, 8, &1_u64.to_le_bytes()))
        }),
        &[ExtentOlder],
        false,
    ),
    row(
        "full backrefs of a block that its owner refers to",
        Any(|image| edit_extent(image, image.blocks(TreeId::CSUM)?[0], |b, s| set(b, s, 17, &[1]))),
        &[BlockFlags],
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
