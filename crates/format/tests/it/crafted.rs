//! Our output equals that of btrfs-progs 6.14, even for items and superblocks that none of our images has: they
//! are written over a good image's UUID tree and superblock.

use std::os::unix::fs::FileExt;

use creamery_base::{Logical, ObjectId, TreeId, Uuid};
use creamery_codec::ChecksumType;
use creamery_format::dump::{self, DumpContext};
use creamery_format::{
    BlockMut, BlockRef, HEADER_FLAG_WRITTEN, Incompat, Key, KeyType, MIXED_BACKREF_REV, NewBlock,
    RawSuperblock, seal,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::common::{Image, SUPER, Scratch, assert_equal, has_progs};

/// An image and the place of its UUID tree's only leaf.
struct Forge {
    scratch: Scratch,
    image: Image,
    leaf: Logical,
    header: NewBlock,
}

impl Forge {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let image = scratch.mkfs("image", "128M", "-m single -d single");
        let (want, bytes) = image
            .blocks()
            .into_iter()
            .find(|(_, bytes)| BlockRef::new(bytes).owner() == TreeId::UUID)
            .expect("mkfs makes a UUID tree");
        let header = NewBlock {
            logical: want.logical,
            generation: BlockRef::new(&bytes).generation(),
            owner: TreeId::UUID,
            level: 0,
            fsid: want.fsid,
            chunk_tree_uuid: Uuid::from_u128(5),
        };
        Self { scratch, image, leaf: want.logical, header }
    }

    /// Writes the block and compares the texts.
    fn compare(&self, level: u8, edit: impl FnOnce(&mut BlockMut<'_>)) {
        let mut bytes = vec![0; self.image.superblock.node_size() as usize];
        let mut block = BlockMut::init(&mut bytes, &NewBlock { level, ..self.header });
        block.set_flags(MIXED_BACKREF_REV << 56 | HEADER_FLAG_WRITTEN);
        edit(&mut block);
        seal(&mut bytes, ChecksumType::Crc32c);
        self.image
            .file
            .write_all_at(&bytes, self.image.physical(self.leaf))
            .expect("the image takes a block");
        let mut ours = String::new();
        dump::block(&mut ours, BlockRef::new(&bytes), &DumpContext::default())
            .expect("strings take everything");
        let theirs = self.image.their_dump(&format!("-b {}", self.leaf));
        assert_equal(&ours, &theirs, "crafted block");
    }

    fn compare_items(&self, items: &[(Key, Vec<u8>)]) {
        let mut items = items.to_vec();
        items.sort_by_key(|(key, _)| *key);
        let heads: Vec<(Key, usize)> = items.iter().map(|(key, data)| (*key, data.len())).collect();
        self.compare(0, |leaf| {
            leaf.insert_items(0, &heads);
            for (slot, (_, data)) in items.iter().enumerate() {
                leaf.data_mut(slot).copy_from_slice(data);
            }
        });
    }

    fn compare_keys(&self, keys: &mut Vec<Key>) {
        keys.sort_unstable();
        keys.dedup();
        for keys in keys.chunks(400) {
            self.compare(1, |node| {
                for (slot, key) in keys.iter().enumerate() {
                    node.insert_ptr(slot, key, self.leaf, self.header.generation);
                }
            });
        }
    }
}

fn key(objectid: u64, kind: KeyType, offset: u64) -> Key {
    Key::new(ObjectId::new(objectid), kind, offset)
}

/// Numbers, packed.
fn q(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

const fn minus(number: u64) -> u64 {
    number.wrapping_neg()
}

fn raw_key(objectid: u64, kind: KeyType, offset: u64) -> Vec<u8> {
    creamery_format::RawKey::from(key(objectid, kind, offset)).as_bytes().to_vec()
}

#[test]
fn keys_of_all_types_and_ids() {
    if !has_progs() {
        return;
    }
    let forge = Forge::new("keys");
    let mut keys: Vec<Key> = (0..=255).map(|kind| key(300, KeyType::new(kind), 7)).collect();
    keys.extend((0..20).chain(minus(260)..=u64::MAX).map(|id| key(id, KeyType::INODE_ITEM, 0)));
    forge.compare_keys(&mut keys);
    let mut keys = Vec::new();
    for objectid in [0, 1, 5, 6, 11, 256, u64::MAX, minus(4), minus(6), minus(8), minus(11)] {
        for kind in [0, 132, 204, 216, 228, 240, 242, 244, 246, 248, 249, 251, 252] {
            let offsets = [0, 5, 256, u64::MAX, minus(8), 1 << 48 | 5];
            keys.extend(offsets.map(|offset| key(objectid, KeyType::new(kind), offset)));
        }
    }
    forge.compare_keys(&mut keys);
}

#[test]
fn headers() {
    if !has_progs() {
        return;
    }
    let forge = Forge::new("headers");
    for flags in [0, 1, 2, 3, 4, 7, 1 << 55 | 1, 2 << 56, 1 << 56 | 3] {
        forge.compare(0, |leaf| leaf.set_flags(flags));
    }
    for owner in
        [0, 1, 6, 12, 13, 256, u64::MAX, minus(6), minus(8), minus(9), minus(11), minus(12), minus(13)]
    {
        forge.compare(0, |leaf| leaf.set_owner(TreeId::new(owner)));
    }
}

fn inode(flags: u64, seconds: i64, nanoseconds: u32) -> Vec<u8> {
    let mut data = q(&[1, 2, 3, 4, 5]);
    [6_u32, 7, 8, 0o106_755].iter().for_each(|number| data.extend(number.to_le_bytes()));
    data.extend(q(&[0x000f_ff00_000f, flags, 9, 0, 0, 0, 0]));
    for _ in 0..4 {
        data.extend(seconds.to_le_bytes());
        data.extend(nanoseconds.to_le_bytes());
    }
    data
}

fn dir_entry(kind: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut data = raw_key(257, KeyType::ROOT_ITEM, u64::MAX);
    data.extend(5_u64.to_le_bytes());
    data.extend((value.len() as u16).to_le_bytes());
    data.extend((name.len() as u16).to_le_bytes());
    data.push(kind);
    [&data, name, value].concat()
}

fn file_extent(kind: u8, compression: u8, rest: &[u8]) -> Vec<u8> {
    [&q(&[3, 100])[..], &[compression, 0, 0, 0, kind], rest].concat()
}

#[test]
fn items_of_subvolumes() {
    if !has_progs() {
        return;
    }
    let forge = Forge::new("files");
    let all: Vec<u8> = (0..=255).collect();
    let mut items = vec![
        (
            key(260, KeyType::INODE_REF, 5),
            [&q(&[1])[..], b"\x05\0a\tb\"\\", &q(&[2]), b"\x03\0\xc3\xa9\x7f"].concat(),
        ),
        (key(260, KeyType::INODE_EXTREF, 5), [&q(&[256, 1])[..], b"\x05\0a b\tc"].concat()),
        (key(260, KeyType::INODE_EXTREF, 6), [&q(&[256, 1])[..], b"\x2c\x01", &[b'x'; 300]].concat()),
        (key(261, KeyType::VERITY_DESC_ITEM, 0), b"abc".to_vec()),
        (key(262, KeyType::VERITY_MERKLE_ITEM, 0), b"abc".to_vec()),
        (key(300, KeyType::ORPHAN_ITEM, 300), vec![]),
        (key(minus(5), KeyType::ORPHAN_ITEM, 300), vec![]),
        (key(301, KeyType::DIR_LOG_ITEM, 1), q(&[7])),
        (key(301, KeyType::DIR_LOG_INDEX, 1), q(&[7])),
        (
            key(302, KeyType::XATTR_ITEM, 1),
            [dir_entry(8, b"user. x", &all), dir_entry(8, b"user.y", b"")].concat(),
        ),
        (key(302, KeyType::DIR_INDEX, 1), dir_entry(2, &[b'n'; 300], b"")),
        (key(302, KeyType::DIR_ITEM, 1), (0..12).flat_map(|kind| dir_entry(kind, b"n", b"")).collect()),
    ];
    let all_flags = (0..64).map(|bit| 1 << bit).chain([0, u64::MAX]);
    for (i, flags) in all_flags.enumerate() {
        items.push((
            key(1000 + i as u64, KeyType::INODE_ITEM, 0),
            inode(flags, i as i64 * 100_000_000 - 3_000_000_000, 7),
        ));
    }
    let mapping = q(&[4096, 8192, 4096, 4096]);
    for (i, (kind, compression, rest)) in (0_u8..4)
        .flat_map(|kind| (0..5).map(move |c| (kind, c)))
        .map(|(kind, c)| (kind, c, if kind == 0 { b"abc".to_vec() } else { mapping.clone() }))
        .enumerate()
    {
        items.push((key(303, KeyType::EXTENT_DATA, i as u64), file_extent(kind, compression, &rest)));
    }
    forge.compare_items(&items);
}

fn root_item(flags: u64, drop_progress: Vec<u8>, generation_v2: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; 160];
    data.extend(q(&[9, 256, 4096, u64::MAX, 8192, 7, flags]));
    data.extend(3_u32.to_le_bytes());
    data.extend(drop_progress);
    data.extend([4, 1]);
    data.extend(generation_v2.to_le_bytes());
    data.extend(0..48);
    data.extend(q(&[1, 2, 3, 4]));
    for seconds in [-1_i64, 3, 5, 1 << 40] {
        data.extend(seconds.to_le_bytes());
        data.extend(999_999_999_u32.to_le_bytes());
    }
    data.resize(439, 0);
    data.truncate(len);
    data
}

#[test]
fn items_of_roots_and_quotas() {
    if !has_progs() {
        return;
    }
    let forge = Forge::new("roots");
    let none = || raw_key(0, KeyType::UNTYPED, 0);
    let name = |name: &[u8]| [&q(&[256, 3])[..], &(name.len() as u16).to_le_bytes(), name].concat();
    let mut items = vec![
        (key(256, KeyType::ROOT_ITEM, 1), root_item(0, none(), 9, 439)),
        (key(257, KeyType::ROOT_ITEM, 2), root_item(1, raw_key(300, KeyType::DIR_ITEM, 55), 9, 439)),
        (key(258, KeyType::ROOT_ITEM, 2), root_item(1 << 48 | 3, none(), 9, 439)),
        (key(259, KeyType::ROOT_ITEM, 2), root_item(1 << 48, none(), 8, 439)),
        (
            key(260, KeyType::ROOT_ITEM, 2),
            root_item(0, raw_key(minus(5), KeyType::DIR_ITEM, u64::MAX), 8, 239),
        ),
        (key(minus(8), KeyType::ROOT_ITEM, 256), root_item(0, none(), 9, 439)),
        (key(5, KeyType::ROOT_REF, 256), name(b"a b\n\xc3\xa9\\")),
        (key(5, KeyType::ROOT_BACKREF, 256), name(b"abc")),
        (key(1, KeyType::UUID_SUBVOL, 2), q(&[5, 6, 7])),
        (key(1, KeyType::UUID_RECEIVED_SUBVOL, 2), q(&[5])),
        (key(1, KeyType::UUID_RECEIVED_SUBVOL, 3), b"12345678abc".to_vec()),
        (key(0, KeyType::QGROUP_STATUS, 2), q(&[1, 2, 2, u64::MAX, 77])),
        (key(0, KeyType::QGROUP_STATUS, 3), q(&[1, 2, u64::MAX, 3])),
        (key(0, KeyType::QGROUP_INFO, 5), q(&[1, minus(2), 3, 4, 5])),
        (key(0, KeyType::QGROUP_LIMIT, 5), q(&[0x3f, minus(2), 3, 4, 5])),
        (key(5, KeyType::QGROUP_RELATION, 1 << 48 | 100), vec![]),
        (key(minus(4), KeyType::TEMPORARY_ITEM, 0), q(&(1 << 33..(1 << 33) + 56).collect::<Vec<u64>>())),
        (key(5, KeyType::TEMPORARY_ITEM, 0), q(&[1])),
        (key(0, KeyType::PERSISTENT_ITEM, 1), q(&[1, 2, 3, 4, u64::MAX])),
        (key(7, KeyType::PERSISTENT_ITEM, 1), q(&[1])),
        (
            key(minus(11), KeyType::UNTYPED, 1 << 20),
            [raw_key(258, KeyType::INODE_ITEM, 0), q(&[1, 2, 3])].concat(),
        ),
        (key(minus(12), KeyType::UNTYPED, 1 << 20), q(&[1, 2, 3])),
        (key(0, KeyType::STRING_ITEM, 0), b"some string".to_vec()),
        (key(77, KeyType::new(99), 1), b"whatever".to_vec()),
    ];
    for state in 0..6 {
        items.push((key(0, KeyType::DEV_REPLACE, state), q(&[1, 2, 3, state, state, 5, 6, 8, 9])));
    }
    forge.compare_items(&items);
}

/// An extent item's data.
fn extent(flags: u64, rest: &[&[u8]]) -> Vec<u8> {
    [&q(&[5, 7, flags])[..], &rest.concat()].concat()
}

#[test]
fn items_of_extents_and_devices() {
    if !has_progs() {
        return;
    }
    let forge = Forge::new("extents");
    let info = [raw_key(300, KeyType::DIR_ITEM, 55), vec![2]].concat();
    let at = |kind: KeyType, offset: u64| key(8192, kind, offset);
    let extent_key = |offset: u64| at(KeyType::EXTENT_ITEM, offset);
    let chunk = |flags: u64, stripes: u16| {
        let head = [q(&[1 << 20, 2, 65536, flags]), [1_u32, 2, 3].map(u32::to_le_bytes).concat()].concat();
        let stripe = [q(&[1, 4096]), (0..16).collect()].concat();
        [&head[..], &stripes.to_le_bytes(), &[2, 0], &stripe.repeat(stripes.into())].concat()
    };
    let mut items = vec![
        (extent_key(4096), extent(1, &[])),
        (extent_key(4097), extent(2, &[&info, &[176], &q(&[5])])),
        (extent_key(4098), extent(258, &[&info, &[182], &q(&[4096])])),
        (extent_key(4099), extent(1, &[&[178], &q(&[5, 257, minus(4096)]), &[1, 0, 0, 0]])),
        (extent_key(4100), extent(1, &[&[184], &q(&[4096]), &[1, 0, 0, 0], &[172], &q(&[5])])),
        (extent_key(4101), extent(3, &[&info, &[176], &q(&[minus(9)])])),
        (extent_key(4102), extent(0, &[])),
        (at(KeyType::METADATA_ITEM, 7), extent(2, &[&[176], &q(&[7]), &[182], &q(&[4096])])),
        (at(KeyType::METADATA_ITEM, 8), extent(256, &[])),
        (at(KeyType::METADATA_ITEM, u64::MAX), extent(u64::MAX, &[])),
        (at(KeyType::EXTENT_OWNER_REF, 5), q(&[9])),
        (at(KeyType::EXTENT_REF_V0, 5), q(&[9])),
        (at(KeyType::TREE_BLOCK_REF, minus(9)), vec![]),
        (at(KeyType::EXTENT_DATA_REF, 78), [&q(&[minus(9), minus(10), minus(4096)])[..], &[255; 4]].concat()),
        (at(KeyType::SHARED_BLOCK_REF, 4096), vec![]),
        (at(KeyType::SHARED_DATA_REF, 4096), vec![1, 0, 0, 0]),
        (key(302, KeyType::CSUM_ITEM, 1), vec![1, 2, 3, 4]),
        (key(minus(10), KeyType::EXTENT_CSUM, 4096), vec![7; 40]),
        (key(minus(10), KeyType::EXTENT_CSUM, minus(4096)), vec![7; 42]),
        (key(303, KeyType::RAID_STRIPE, 16384), q(&[1, 4096, 2, 8192])),
        (key(303, KeyType::RAID_STRIPE, 16385), q(&[1, 4096, 7])),
        (key(4096, KeyType::FREE_SPACE_INFO, 1), q(&[3 | 1 << 32])),
        (key(4096, KeyType::FREE_SPACE_INFO, 2), q(&[u64::MAX])),
        (key(4096, KeyType::FREE_SPACE_EXTENT, 1), vec![]),
        (key(4096, KeyType::FREE_SPACE_BITMAP, 1), vec![255; 10]),
        (key(3, KeyType::DEV_EXTENT, 4096), [q(&[3, 256, 5, 4096]), (0..16).collect()].concat()),
        (key(1, KeyType::DEV_ITEM, 1), (0..98).collect()),
        (key(256, KeyType::CHUNK_ITEM, 0), chunk(1, 1)),
        (key(256, KeyType::CHUNK_ITEM, 1 << 20), chunk(0x41, 4)),
        (key(257, KeyType::CHUNK_ITEM, 2 << 20), chunk(0x85, 3)),
    ];
    let flags = (0..12).map(|bit| 1 << bit).flat_map(|profile| [profile, profile | 1, profile | 5]);
    for (i, flags) in flags.chain([0, 7, 5, 0x7f8, u64::MAX, 1 << 48]).enumerate() {
        items.push((key(i as u64 * 4096, KeyType::BLOCK_GROUP_ITEM, 4096), q(&[1, 256, flags])));
    }
    forge.compare_items(&items);
}

#[test]
fn superblocks() {
    if !has_progs() {
        return;
    }
    let forge = Forge::new("super");
    let good = *forge.image.superblock.raw();
    let compare = |edit: &dyn Fn(&mut RawSuperblock), options: &str, fix: bool| {
        let mut raw = good;
        edit(&mut raw);
        if fix {
            seal(raw.as_mut_bytes(), ChecksumType::Crc32c);
        }
        forge.image.file.write_all_at(raw.as_bytes(), SUPER).expect("the image takes a superblock");
        let theirs =
            forge.scratch.run(&format!("btrfs inspect-internal dump-super {options} image 2>/dev/null"));
        let mut ours = String::new();
        dump::superblock(&mut ours, &raw, SUPER, "image", options.contains('f'))
            .expect("strings take everything");
        assert_equal(&ours, &theirs, "crafted superblock");
    };
    for bit in 0..64 {
        compare(&|raw| raw.flags = (1 << bit).into(), "", true);
        compare(&|raw| raw.compat_ro_flags = (1 << bit).into(), "", true);
        compare(&|raw| raw.incompat_flags = (1 << bit).into(), "", true);
    }
    compare(&|raw| (raw.flags, raw.compat_ro_flags) = (u64::MAX.into(), u64::MAX.into()), "-f", true);
    compare(&|raw| raw.compat_flags = 5.into(), "", true);
    compare(&|raw| raw.label[..16].copy_from_slice(b"lab el\n\t\xff\xc3\xa9\0abcd"), "", true);
    compare(&|raw| raw.label = [b'x'; 256], "", true);
    compare(&|raw| raw.csum_type = 1.into(), "", true);
    compare(&|raw| raw.csum_type = 9.into(), "-F", true);
    compare(&|raw| raw.generation = 99.into(), "", false);
    compare(&|raw| raw.magic = *b"ab\0\xff\x01\nzh", "-F", true);
    compare(&|raw| raw.metadata_uuid = [7; 16], "", true);
    compare(&|raw| raw.dev_item.fsid = [7; 16], "", true);
    let metadata_uuid = |raw: &mut RawSuperblock| {
        raw.incompat_flags = (raw.incompat_flags.get() | Incompat::METADATA_UUID.bits()).into();
        raw.metadata_uuid = [7; 16];
    };
    compare(&|raw| metadata_uuid(raw), "", true);
    compare(&|raw| (metadata_uuid(raw), raw.dev_item.fsid = [7; 16]).1, "", true);
    for size in [0, 1, 16, 17, 18, 65, 96, 97, 98, 2049, 3000] {
        compare(&|raw| raw.sys_chunk_array_size = size.into(), "-f", true);
    }
    compare(&|raw| raw.sys_chunk_array[17 + 44] = 0, "-f", true);
    compare(&|raw| raw.sys_chunk_array[17 + 44] = 9, "-f", true);
    compare(&|raw| raw.sys_chunk_array[8] = 1, "-f", true);
    let numbers = |raw: &mut RawSuperblock| {
        let mut seed = 1_u8;
        for byte in &mut raw.as_mut_bytes()[72..811] {
            seed = seed.wrapping_mul(5).wrapping_add(3);
            *byte = seed;
        }
        raw.csum_type = 0.into();
        raw.super_roots = FromBytes::read_from_bytes(&[0x5a; 672]).expect("four backup roots have 672 bytes");
    };
    compare(&numbers, "-f", true);
}
