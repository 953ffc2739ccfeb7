use super::*;
use crate::block_mut::{BlockMut, NewBlock};
use crate::items::dir::RawDirItem;
use crate::items::file_extent::{FILE_EXTENT_INLINE, FILE_EXTENT_REGULAR, RawFileExtent};
use crate::items::inode::RawInodeItem;
use creamery_base::{Generation, Logical, ObjectId, TreeId, Uuid};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

/// Returns the verdict on one item.
fn check(objectid: u64, kind: KeyType, offset: u64, data: &[u8]) -> Result<(), String> {
    let mut bytes = vec![0; 16384];
    let new = NewBlock {
        logical: Logical::new(1 << 20),
        generation: Generation::new(3),
        owner: TreeId::FS,
        level: 0,
        fsid: Uuid::nil(),
        chunk_tree_uuid: Uuid::nil(),
    };
    let mut leaf = BlockMut::init(&mut bytes, &new);
    leaf.insert_items(0, &[(Key::new(ObjectId::new(objectid), kind, offset), data.len())]);
    leaf.data_mut(0).copy_from_slice(data);
    check_item(leaf.as_ref(), 0).map_err(|kind| kind.to_string())
}

fn refused(reason: &str, verdict: Result<(), String>) {
    let message = verdict.expect_err(reason);
    assert!(message.contains(reason), "{message:?} is not {reason:?}");
}

#[test]
fn every_fixed_size_is_checked() {
    for kind in 0..=255 {
        let kind = KeyType::new(kind);
        let known = !kind.to_string().starts_with("UNKNOWN");
        let verdict = check(4096, kind, 4096, &[0xff; 7]);
        let free_form = [
            KeyType::UNTYPED,
            KeyType::CSUM_ITEM,
            KeyType::VERITY_DESC_ITEM,
            KeyType::VERITY_MERKLE_ITEM,
            KeyType::TEMPORARY_ITEM,
            KeyType::PERSISTENT_ITEM,
            KeyType::STRING_ITEM,
            KeyType::EXTENT_OWNER_REF,
            KeyType::EXTENT_REF_V0,
            KeyType::FREE_SPACE_BITMAP,
        ];
        assert_eq!(verdict.is_ok(), !known || free_form.contains(&kind), "{kind}: {verdict:?}");
    }
}

#[test]
fn inodes_have_a_type_and_directories_one_link() {
    let mut inode = RawInodeItem { mode: U32::new(0o040_755), nlink: U32::new(1), ..Default::default() };
    assert_eq!(check(256, KeyType::INODE_ITEM, 0, inode.as_bytes()), Ok(()));
    refused("offset in the key", check(256, KeyType::INODE_ITEM, 1, inode.as_bytes()));
    inode.nlink = U32::new(2);
    refused("links of a directory", check(256, KeyType::INODE_ITEM, 0, inode.as_bytes()));
    inode.nlink = U32::new(1);
    inode.flags = U64::new(1 << 12 | 1 << 33 | 1);
    refused("flags of an inode, found 4096", check(256, KeyType::INODE_ITEM, 0, inode.as_bytes()));
    inode.flags = U64::new(1 << 33 | 1 << 31 | 0xfff);
    assert_eq!(check(256, KeyType::INODE_ITEM, 0, inode.as_bytes()), Ok(()));
    inode.mode = U32::new(0o755);
    refused("unknown file type", check(256, KeyType::INODE_ITEM, 0, inode.as_bytes()));
}

fn dir_item(name: &[u8], kind: u8, data: &[u8]) -> Vec<u8> {
    let inode = Key::new(ObjectId::new(257), KeyType::INODE_ITEM, 0);
    let location = if kind == 8 { Key::MIN } else { inode }.into();
    let (name_len, data_len) = (U16::new(name.len() as u16), U16::new(data.len() as u16));
    let head = RawDirItem { location, name_len, data_len, kind, ..Default::default() };
    [head.as_bytes(), name, data].concat()
}

#[test]
fn directory_entries_are_checked() {
    let hash = creamery_codec::name_hash(b"a").into();
    let entry = dir_item(b"a", 1, b"");
    assert_eq!(check(256, KeyType::DIR_ITEM, hash, &entry), Ok(()));
    assert_eq!(check(256, KeyType::DIR_INDEX, 2, &entry), Ok(()));
    refused("not the hash", check(256, KeyType::DIR_ITEM, hash + 1, &entry));
    refused("name length", check(256, KeyType::DIR_INDEX, 2, &dir_item(b"", 1, b"")));
    refused("name length", check(256, KeyType::DIR_INDEX, 2, &dir_item(&[b'x'; 256], 1, b"")));
    refused("has a value", check(256, KeyType::DIR_INDEX, 2, &dir_item(b"a", 1, b"v")));
    refused("type of directory entry", check(256, KeyType::DIR_INDEX, 2, &dir_item(b"a", 8, b"")));
    refused("type of directory entry", check(256, KeyType::DIR_INDEX, 2, &dir_item(b"a", 9, b"")));
    refused("several entries", check(256, KeyType::DIR_INDEX, 2, &[entry.clone(), entry.clone()].concat()));
    refused("cut short", check(256, KeyType::DIR_INDEX, 2, &entry[..30]));
    assert_eq!(check(256, KeyType::XATTR_ITEM, hash, &dir_item(b"a", 8, b"value")), Ok(()));
    refused("type of directory entry", check(256, KeyType::XATTR_ITEM, hash, &entry));
}

/// Returns each kind of item with names, with `name` in it: its description, and the verdict.
fn verdicts_on(name: &[u8]) -> Vec<(&'static str, Result<(), String>)> {
    use crate::items::inode::{RawInodeExtref, RawInodeRef};
    use crate::items::root::RawRootRef;
    let name_len = U16::new(name.len() as u16);
    let hash = creamery_codec::name_hash(name).into();
    let entry = dir_item(name, 1, b"");
    let reference = [RawInodeRef { name_len, ..Default::default() }.as_bytes(), name].concat();
    let extref = [RawInodeExtref { name_len, ..Default::default() }.as_bytes(), name].concat();
    let root_ref = [RawRootRef { name_len, ..Default::default() }.as_bytes(), name].concat();
    vec![
        ("entry by name", check(256, KeyType::DIR_ITEM, hash, &entry)),
        ("entry by index", check(256, KeyType::DIR_INDEX, 2, &entry)),
        ("inode ref", check(257, KeyType::INODE_REF, 256, &reference)),
        ("inode extref", check(257, KeyType::INODE_EXTREF, 9, &extref)),
        ("root ref", check(5, KeyType::ROOT_REF, 256, &root_ref)),
        ("root backref", check(256, KeyType::ROOT_BACKREF, 5, &root_ref)),
        ("attribute", check(257, KeyType::XATTR_ITEM, hash, &dir_item(name, 8, b""))),
    ]
}

#[test]
fn a_name_that_leads_elsewhere_is_damage_in_every_item_that_holds_names() {
    for (name, reason) in [
        (&b"../../victim/key"[..], "name has a slash, found at byte 2 of 16"),
        (b"/etc/passwd", "name has a slash, found at byte 0 of 11"),
        (b"folder/", "name has a slash, found at byte 6 of 7"),
        (b"half\0", "name has a zero byte, found at byte 4 of 5"),
        (b".", "name stands for a directory"),
        (b"..", "name stands for a directory"),
    ] {
        for (item, verdict) in verdicts_on(name) {
            // Attributes are in no path: only bytes that a C string cannot hold are impossible.
            match item == "attribute" && !name.contains(&0) {
                true => assert_eq!(verdict, Ok(()), "{name:?}"),
                false => refused(reason, verdict),
            }
        }
    }
    for name in [&b"..."[..], b"..a", b".a", b" ", b"\xff\x1b[2J", b"a\\b", &[b'x'; 255]] {
        for (item, verdict) in verdicts_on(name) {
            assert_eq!(verdict, Ok(()), "{item}: {name:?}");
        }
    }
}

#[test]
fn only_what_is_its_own_parent_is_called_dot_dot() {
    use crate::items::inode::RawInodeRef;
    let head = RawInodeRef { name_len: U16::new(2), ..Default::default() };
    let dots = [head.as_bytes(), b".."].concat();
    assert_eq!(check(256, KeyType::INODE_REF, 256, &dots), Ok(()));
    refused("name stands for a directory", check(257, KeyType::INODE_REF, 256, &dots));
}

#[test]
fn file_extents_stay_inside_their_extents() {
    let good = RawFileExtent {
        kind: FILE_EXTENT_REGULAR,
        ram_bytes: U64::new(16384),
        disk_bytenr: U64::new(1 << 20),
        disk_num_bytes: U64::new(16384),
        offset: U64::new(4096),
        num_bytes: U64::new(12288),
        ..Default::default()
    };
    let verdict = |extent: RawFileExtent| check(257, KeyType::EXTENT_DATA, 4096, extent.as_bytes());
    assert_eq!(verdict(good), Ok(()));
    assert_eq!(verdict(RawFileExtent { disk_bytenr: U64::new(0), ..good }), Ok(()));
    refused("end in the extent", verdict(RawFileExtent { num_bytes: U64::new(16384), ..good }));
    refused("end in the extent", verdict(RawFileExtent { offset: U64::new(u64::MAX - 4095), ..good }));
    refused("num_bytes", verdict(RawFileExtent { num_bytes: U64::new(0), ..good }));
    refused("not aligned", verdict(RawFileExtent { disk_bytenr: U64::new(100), ..good }));
    refused("unknown compression", verdict(RawFileExtent { compression: 4, ..good }));
    assert_eq!(verdict(RawFileExtent { other_encoding: U16::new(1), ..good }), Ok(()));
    let packed = RawFileExtent { compression: 1, ram_bytes: U64::new(4096), ..good };
    assert_eq!(verdict(packed), Ok(()));
    let wrapped = RawFileExtent { offset: U64::new(u64::MAX - 4095), ..packed };
    refused("end in the decompressed extent", verdict(wrapped));
    refused("not aligned", verdict(RawFileExtent { ram_bytes: U64::new(4097), ..packed }));
    refused("unknown encryption", verdict(RawFileExtent { encryption: 1, ..good }));
    refused("file extent type", verdict(RawFileExtent { kind: 3, ..good }));
    let inline = RawFileExtent { kind: FILE_EXTENT_INLINE, ram_bytes: U64::new(32), ..good };
    refused("not at file start", verdict(inline));
    assert_eq!(check(257, KeyType::EXTENT_DATA, 0, inline.as_bytes()), Ok(()));
    refused("length of inline data", check(257, KeyType::EXTENT_DATA, 0, &inline.as_bytes()[..52]));
}

#[test]
fn extent_items_and_their_references_agree() {
    use crate::items::extent::{ExtentRef, RawExtentItem};
    let item = |refs: u64, flags: u64, inline: &[ExtentRef]| {
        let head = RawExtentItem { refs: U64::new(refs), flags: U64::new(flags), ..Default::default() };
        let mut data = head.as_bytes().to_vec();
        inline.iter().for_each(|found| found.write_inline(&mut data));
        data
    };
    let tree = ExtentRef::TreeBlock { root: TreeId::FS };
    let shared = ExtentRef::SharedBlock { parent: Logical::new(8192) };
    let file = ExtentRef::ExtentData { root: TreeId::FS, objectid: 257, offset: 0, count: 2 };
    let leaf = ExtentRef::SharedData { parent: Logical::new(8192), count: 1 };
    let metadata = |data: &[u8]| check(8192, KeyType::METADATA_ITEM, 0, data);
    let data = |data: &[u8]| check(8192, KeyType::EXTENT_ITEM, 4096, data);
    assert_eq!(metadata(&item(2, 2, &[tree, shared])), Ok(()));
    assert_eq!(data(&item(3, 1, &[file, leaf])), Ok(()));
    refused("inline references", metadata(&item(1, 2, &[tree, shared])));
    refused("reference for this kind", metadata(&item(9, 2, &[file])));
    refused("reference for this kind", data(&item(9, 1, &[tree])));
    refused("kind of extent", data(&item(9, 0, &[])));
    refused("cut short", data(&item(3, 1, &[file])[..40]));
    refused("inline ref type", data(&[&item(3, 1, &[file])[..], &[99]].concat()));
    refused("level", check(8192, KeyType::METADATA_ITEM, 8, &item(1, 2, &[tree])));
    refused("parent block", metadata(&item(1, 2, &[ExtentRef::SharedBlock { parent: Logical::new(5) }])));
}

#[test]
fn ranges_do_not_wrap() {
    let top = u64::MAX - 4095;
    refused("length", check(top, KeyType::FREE_SPACE_EXTENT, 8192, &[]));
    refused("length", check(4096, KeyType::FREE_SPACE_EXTENT, 0, &[]));
    refused("block group type", check(256, KeyType::CHUNK_ITEM, 0, &[0; 48]));
    refused("address", check(ObjectId::EXTENT_CSUM.get(), KeyType::EXTENT_CSUM, top, &[0; 64]));
    let group = RawBlockGroupItem { used: 8192.into(), flags: 1.into(), chunk_objectid: 256.into() };
    refused("used bytes", check(4096, KeyType::BLOCK_GROUP_ITEM, 4096, group.as_bytes()));
}

#[test]
fn what_linux_reads_no_leaf_with_is_refused() {
    let group = RawBlockGroupItem { used: 0.into(), flags: 1.into(), chunk_objectid: 257.into() };
    refused("owner of a block group's chunk", check(4096, KeyType::BLOCK_GROUP_ITEM, 4096, group.as_bytes()));
    let mut root = RawRootItem { flags: (1 << 48 | 1).into(), ..Default::default() };
    assert_eq!(check(257, KeyType::ROOT_ITEM, 0, root.as_bytes()), Ok(()));
    root.flags = 2.into();
    refused("flags of a root", check(257, KeyType::ROOT_ITEM, 0, root.as_bytes()));
}
