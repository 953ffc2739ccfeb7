//! The root tree and the UUID tree.

use creamery_base::{ObjectId, TreeId};
use creamery_check::Problem::*;
use creamery_format::{Key, KeyType};

use super::Change::Item as One;
use super::edits::{add, any, rekey, remove, set, subvolume};
use super::{DamageRow, row};
use crate::image::Item;

const FS: TreeId = TreeId::FS;

fn data_reloc(item: &Item) -> bool {
    item.key.objectid == TreeId::DATA_RELOC.objectid()
}

pub(super) const ROWS: &[DamageRow] = &[
    row(
        "root directory of another number",
        One(TreeId::ROOT, KeyType::ROOT_ITEM, subvolume, |b, s| set(b, s, 168, &[0; 8])),
        &[RootDirectory],
        true,
    ),
    row(
        "subvolume deleted without an orphan item",
        One(TreeId::ROOT, KeyType::ROOT_ITEM, subvolume, |b, s| set(b, s, 216, &[0; 4])),
        &[SubvolumeOrphan],
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
        "slash in a root ref",
        One(TreeId::ROOT, KeyType::ROOT_REF, any, |b, s| set(b, s, 18, b"/")),
        &[BlockName],
        true,
    ),
    row(
        "zero byte in a root backref",
        One(TreeId::ROOT, KeyType::ROOT_BACKREF, any, |b, s| set(b, s, 18, b"\0")),
        &[BlockName],
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
    row(
        "data relocation tree deleted",
        One(TreeId::ROOT, KeyType::ROOT_ITEM, data_reloc, |b, s| set(b, s, 216, &[0; 4])),
        &[DataRelocUnreferenced],
        false,
    ),
    row(
        "default subvolume lost",
        One(TreeId::ROOT, KeyType::DIR_ITEM, any, |b, s| set(b, s, 0, &999_u64.to_le_bytes())),
        &[DefaultSubvolume],
        false,
    ),
    row(
        "another default subvolume, and no feature that says so",
        One(TreeId::ROOT, KeyType::DIR_ITEM, any, |b, s| set(b, s, 0, &256_u64.to_le_bytes())),
        &[FeatureUntold],
        false,
    ),
    row(
        "default subvolume of no entry",
        One(TreeId::ROOT, KeyType::DIR_ITEM, any, |b, s| {
            rekey(b, s, |k| Key { objectid: ObjectId::new(7), ..k });
        }),
        &[DefaultEntry],
        false,
    ),
    row(
        "default subvolume that is a file",
        One(TreeId::ROOT, KeyType::DIR_ITEM, any, |b, s| set(b, s, 29, &[1])),
        &[DefaultEntry],
        false,
    ),
    row(
        "default subvolume that is an inode",
        One(TreeId::ROOT, KeyType::DIR_ITEM, any, |b, s| {
            let inode: [u8; 17] = [1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
            set(b, s, 0, &inode);
        }),
        &[DefaultImpossible],
        false,
    ),
    row(
        "data relocation tree lost",
        One(TreeId::ROOT, KeyType::ROOT_ITEM, data_reloc, remove),
        &[TreeMissing],
        true,
    ),
    row(
        "last snapshot of a root that is not yet",
        One(TreeId::ROOT, KeyType::ROOT_ITEM, subvolume, |b, s| set(b, s, 200, &[255; 6])),
        &[RootGeneration],
        false,
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
