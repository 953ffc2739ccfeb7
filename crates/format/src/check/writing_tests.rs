use super::*;
use crate::block_mut::{BlockMut, NewBlock};
use crate::items::extent::{RawExtentDataRef, RawExtentItem};
use crate::items::file_extent::{FILE_EXTENT_REGULAR, RawFileExtent};
use creamery_base::{Logical, Uuid};
use zerocopy::IntoBytes;

const NEWEST: u64 = 9;
const RULES: WritingRules = WritingRules {
    newest: Generation::new(NEWEST),
    sector_size: 4096,
    node_size: 16384,
    checksum_size: 4,
    has_skinny_metadata: true,
};

type Items<'a> = &'a [(u64, KeyType, u64, Vec<u8>)];

fn check_as(owner: TreeId, items: Items<'_>, rules: &WritingRules) -> Result<(), String> {
    let mut bytes = vec![0; 16384];
    let new = NewBlock {
        logical: Logical::new(1 << 20),
        generation: Generation::new(3),
        owner,
        level: 0,
        fsid: Uuid::nil(),
        chunk_tree_uuid: Uuid::nil(),
    };
    let mut leaf = BlockMut::init(&mut bytes, &new);
    for (slot, (objectid, kind, offset, data)) in items.iter().enumerate() {
        leaf.insert_items(slot, &[(Key::new(ObjectId::new(*objectid), *kind, *offset), data.len())]);
        leaf.data_mut(slot).copy_from_slice(data);
    }
    check_leaf_for_writing(leaf.as_ref(), rules).map_err(|damage| damage.to_string())
}

fn check(owner: TreeId, items: Items<'_>) -> Result<(), String> {
    check_as(owner, items, &RULES)
}

#[track_caller]
fn refused(reason: &str, verdict: Result<(), String>) {
    let message = verdict.expect_err(reason);
    assert!(message.contains(reason), "{message:?} is not {reason:?}");
}

fn inode(edit: impl FnOnce(&mut RawInodeItem)) -> Vec<u8> {
    let mut inode = RawInodeItem {
        generation: NEWEST.into(),
        transid: NEWEST.into(),
        mode: 0o040_755.into(),
        nlink: 1.into(),
        ..Default::default()
    };
    edit(&mut inode);
    inode.as_bytes().to_vec()
}

fn file_extent(edit: impl FnOnce(&mut RawFileExtent)) -> Vec<u8> {
    let mut extent = RawFileExtent {
        generation: NEWEST.into(),
        ram_bytes: 8192.into(),
        kind: FILE_EXTENT_REGULAR,
        disk_bytenr: (1 << 20).into(),
        disk_num_bytes: 8192.into(),
        num_bytes: 8192.into(),
        ..Default::default()
    };
    edit(&mut extent);
    extent.as_bytes().to_vec()
}

#[test]
fn an_inode_is_not_newer_than_the_transaction_that_runs() {
    let item = |objectid, data| check(TreeId::FS, &[(objectid, KeyType::INODE_ITEM, 0, data)]);
    assert_eq!(item(256, inode(|_| ())), Ok(()));
    assert_eq!(item(6, inode(|inode| inode.transid = 0.into())), Ok(()), "the root tree has a directory");
    refused("generation of an inode", item(256, inode(|inode| inode.generation = (NEWEST + 1).into())));
    refused("transid of an inode", item(256, inode(|inode| inode.transid = u64::MAX.into())));
    refused("inode number", item(255, inode(|_| ())));
    refused("inode number", item(u64::MAX, inode(|_| ())));
    refused("cache of inode numbers", item(ObjectId::FREE_INO.get(), inode(|_| ())));
    assert_eq!(item(256, inode(|inode| inode.set_flags(InodeFlags::VERITY))), Ok(()));
    refused("flags of an inode", item(256, inode(|inode| inode.flags = (1 << 33).into())));
}

#[test]
fn items_of_an_inode_are_behind_its_item_in_subvolumes() {
    let items =
        [(256, KeyType::INODE_ITEM, 0, inode(|_| ())), (257, KeyType::EXTENT_DATA, 0, file_extent(|_| ()))];
    refused("without its inode item, expected 256, found 257", check(TreeId::FS, &items));
    assert_eq!(check(TreeId::TREE_LOG, &items), Ok(()), "a log has items of inodes that it has not");
    assert_eq!(check(TreeId::FS, &items[1..]), Ok(()), "the inode may be in the leaf before");
}

#[test]
fn parts_of_a_file_are_aligned_and_do_not_overlap() {
    let item = |offset, edit: &dyn Fn(&mut RawFileExtent)| {
        (257, KeyType::EXTENT_DATA, offset, file_extent(|extent| edit(extent)))
    };
    let one = |edit: &dyn Fn(&mut RawFileExtent)| check(TreeId::FS, &[item(0, edit)]);
    assert_eq!(check(TreeId::FS, &[item(0, &|_| ()), item(8192, &|_| ())]), Ok(()));
    refused("file extent begins", check(TreeId::FS, &[item(0, &|_| ()), item(4096, &|_| ())]));
    refused("generation of a file extent", one(&|extent| extent.generation = (NEWEST + 1).into()));
    refused("num_bytes is not aligned", one(&|extent| extent.num_bytes = 4097.into()));
    refused("ram_bytes is not aligned", one(&|extent| extent.ram_bytes = 1.into()));
    let large = WritingRules { sector_size: 65536, ..RULES };
    refused(
        "ram_bytes is not aligned",
        check_as(
            TreeId::FS,
            &[item(0, &|extent| {
                extent.disk_num_bytes = 65536.into();
                extent.num_bytes = 65536.into();
            })],
            &large,
        ),
    );
}

#[test]
fn checksum_items_do_not_overlap_and_hold_whole_checksums() {
    let item = |offset, len| (ObjectId::EXTENT_CSUM.get(), KeyType::EXTENT_CSUM, offset, vec![0; len]);
    let csums = |items: Items<'_>| check(TreeId::CSUM, items);
    assert_eq!(csums(&[item(0, 8), item(8192, 4)]), Ok(()));
    refused("checksum item begins before", csums(&[item(0, 12), item(8192, 4)]));
    refused("object of a checksum item", csums(&[(5, KeyType::EXTENT_CSUM, 0, vec![0; 4])]));
    let long = WritingRules { checksum_size: 32, ..RULES };
    refused("multiple of 32", check_as(TreeId::CSUM, &[item(0, 36)], &long));
}

#[test]
fn a_root_is_not_newer_than_the_transaction_that_runs() {
    let item = |objectid, offset, edit: fn(&mut RawRootItem)| {
        let mut root = RawRootItem::default();
        root.set_root(Logical::new(1 << 20), 0, Generation::new(NEWEST));
        edit(&mut root);
        check(TreeId::ROOT, &[(objectid, KeyType::ROOT_ITEM, offset, root.as_bytes().to_vec())])
    };
    assert_eq!(item(5, 0, |_| ()), Ok(()));
    refused(
        "generation of a root",
        item(5, 0, |root| {
            root.set_root(Logical::new(1 << 20), 0, Generation::new(NEWEST + 1));
        }),
    );
    refused("second generation", item(5, 0, |root| root.generation_v2 = u64::MAX.into()));
    refused("last snapshot", item(5, 0, |root| root.last_snapshot = (NEWEST + 1).into()));
    refused("tree of a root item", item(0, 0, |_| ()));
    refused("relocation", item(TreeId::TREE_RELOC.get(), 0, |_| ()));
}

fn extent_item(flags: ExtentFlags, refs: &[ExtentRef], tree_block: &[u8]) -> Vec<u8> {
    let refs_count = refs.iter().map(|found| u64::from(found.count())).sum::<u64>();
    let head =
        RawExtentItem { refs: refs_count.into(), generation: NEWEST.into(), flags: flags.bits().into() };
    let mut data = [head.as_bytes(), tree_block].concat();
    refs.iter().for_each(|found| found.write_inline(&mut data));
    data
}

fn of_file(root: u64, objectid: u64, offset: u64) -> ExtentRef {
    RawExtentDataRef { root: root.into(), objectid: objectid.into(), offset: offset.into(), count: 1.into() }
        .into()
}

#[test]
fn extents_do_not_overlap_and_their_references_are_in_order() {
    let data = |at, len, refs: &[ExtentRef]| {
        (at, KeyType::EXTENT_ITEM, len, extent_item(ExtentFlags::DATA, refs, &[]))
    };
    let extents = |items: Items<'_>| check(TreeId::EXTENT, items);
    let mut refs = [of_file(5, 257, 0), of_file(5, 258, 0)];
    refs.sort_by_key(|found| std::cmp::Reverse(found.key_offset()));
    assert_eq!(extents(&[data(4096, 4096, &refs), data(8192, 4096, &refs)]), Ok(()));
    refused("extent begins before", extents(&[data(4096, 8192, &refs), data(8192, 4096, &refs)]));
    refs.reverse();
    refused("references out of order", extents(&[data(4096, 4096, &refs)]));
    let shared = ExtentRef::SharedData { parent: Logical::new(65536), count: 1 };
    assert_eq!(extents(&[data(4096, 4096, &[refs[0], shared])]), Ok(()));
    refused("references out of order", extents(&[data(4096, 4096, &[shared, refs[0]])]));
    refused("tree of a reference to data", extents(&[data(4096, 4096, &[of_file(2, 257, 0)])]));
    refused("inode of a reference to data", extents(&[data(4096, 4096, &[of_file(5, 7, 0)])]));
    refused("offset of a reference to data", extents(&[data(4096, 4096, &[of_file(5, 257, 1)])]));
    let mut newer = data(4096, 4096, &refs[..1]);
    newer.3[8..16].copy_from_slice(&(NEWEST + 1).to_le_bytes());
    refused("generation of an extent", extents(&[newer]));
}

#[test]
fn extents_of_tree_blocks_are_as_long_as_these() {
    let tree = [ExtentRef::TreeBlock { root: TreeId::FS }];
    let skinny = (65536, KeyType::METADATA_ITEM, 0, extent_item(ExtentFlags::TREE_BLOCK, &tree, &[]));
    let whole =
        |len| (81920, KeyType::EXTENT_ITEM, len, extent_item(ExtentFlags::TREE_BLOCK, &tree, &[0; 18]));
    assert_eq!(check(TreeId::EXTENT, &[skinny.clone(), whole(16384)]), Ok(()));
    refused("length of a tree block", check(TreeId::EXTENT, &[whole(32768)]));
    let fat = WritingRules { has_skinny_metadata: false, ..RULES };
    refused("metadata is not skinny", check_as(TreeId::EXTENT, std::slice::from_ref(&skinny), &fat));
    let beside = (65536 + 4096, KeyType::METADATA_ITEM, 0, skinny.3.clone());
    refused("extent begins before", check(TreeId::EXTENT, &[skinny, beside]));
}

#[test]
fn trees_that_are_never_empty_have_no_empty_leaf() {
    for owner in [TreeId::ROOT, TreeId::CHUNK, TreeId::DEV, TreeId::FS, TreeId::DATA_RELOC] {
        refused("is empty", check(owner, &[]));
    }
    for owner in [TreeId::CSUM, TreeId::UUID, TreeId::TREE_LOG, TreeId::new(256)] {
        assert_eq!(check(owner, &[]), Ok(()));
    }
}

#[test]
fn device_items_and_extents_are_held_to_their_rules() {
    let extent = |offset, len: u64| {
        let extent = RawDevExtent { length: len.into(), ..Default::default() };
        (1, KeyType::DEV_EXTENT, offset, extent.as_bytes().to_vec())
    };
    assert_eq!(check(TreeId::DEV, &[extent(0, 4096), extent(4096, 4096)]), Ok(()));
    refused("device extent begins before", check(TreeId::DEV, &[extent(0, 8192), extent(4096, 4096)]));
    refused("object of a device item", check(TreeId::CHUNK, &[(2, KeyType::DEV_ITEM, 1, Vec::new())]));
}

#[test]
fn a_block_is_of_a_tree_whose_number_subvolumes_may_have() {
    let item = || [(256, KeyType::INODE_ITEM, 0, inode(|_| ()))];
    assert_eq!(check(TreeId::new((1 << 48) - 1), &item()), Ok(()));
    refused("owner out of range", check(TreeId::new(1 << 48), &item()));
    assert_eq!(check(TreeId::DATA_RELOC, &item()), Ok(()));
}
