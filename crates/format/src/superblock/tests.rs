use super::*;
use crate::items::chunk::{RawChunk, RawStripe};
use creamery_base::ObjectId;
use zerocopy::little_endian::{U16, U64};

const SYSTEM: u64 = 22_020_096;

fn chunk_bytes(flags: BlockGroupFlags) -> Vec<u8> {
    let head = RawChunk {
        length: U64::new(8 << 20),
        owner: U64::new(2),
        stripe_len: U64::new(65536),
        kind: U64::new(flags.bits()),
        num_stripes: U16::new(1),
        sub_stripes: U16::new(1),
        ..RawChunk::default()
    };
    let stripe = RawStripe { devid: U64::new(1), offset: U64::new(SYSTEM), ..RawStripe::default() };
    [head.as_bytes(), stripe.as_bytes()].concat()
}

fn chunk_key(offset: u64) -> Key {
    Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, offset)
}

fn raw() -> RawSuperblock {
    let chunk = [RawKey::from(chunk_key(SYSTEM)).as_bytes(), &chunk_bytes(BlockGroupFlags::SYSTEM)].concat();
    let mut raw = RawSuperblock {
        fsid: [7; 16],
        magic: MAGIC,
        generation: U64::new(9),
        root: U64::new(30 << 20),
        chunk_root: U64::new(SYSTEM),
        chunk_root_generation: U64::new(8),
        total_bytes: U64::new(1 << 30),
        num_devices: U64::new(1),
        sectorsize: U32::new(4096),
        nodesize: U32::new(16384),
        leafsize: U32::new(16384),
        dev_item: RawDevItem { fsid: [7; 16], ..RawDevItem::default() },
        sys_chunk_array_size: U32::new(chunk.len() as u32),
        ..RawSuperblock::default()
    };
    raw.sys_chunk_array[..chunk.len()].copy_from_slice(&chunk);
    raw
}

#[test]
fn what_is_written_reads_back_with_every_checksum_and_unknown_bits() {
    for kind in ChecksumType::ALL {
        let mut raw = raw();
        raw.csum_type = U16::new(kind.to_disk());
        raw.reserved[26] = U64::new(77);
        raw.padding[564] = 5;
        raw.compat_ro_flags = U64::new(1 << 50);
        raw.label[..3].copy_from_slice(b"abc");
        let made = Superblock::from_raw(raw).expect("a good superblock");
        for at in SUPERBLOCK_OFFSETS {
            let bytes = made.to_bytes(at);
            let read = Superblock::from_bytes(&bytes, at).expect("what was written can be read");
            assert_eq!(read.raw().bytenr.get(), at);
            assert_eq!(read.to_bytes(at), bytes);
            assert_eq!(read.label(), b"abc");
            assert_eq!((read.raw().reserved[26].get(), read.raw().padding[564]), (77, 5));
            assert_eq!(read.compat_ro().unsupported().to_string(), "unknown flag: 0x4000000000000");
        }
    }
}

#[test]
fn damage_is_named() {
    let good = Superblock::from_raw(raw()).expect("a good superblock").to_bytes(65536);
    assert_eq!(Superblock::from_bytes(&[0; 100], 65536), Err(SuperblockError::Length { found: 100 }));
    assert_eq!(
        Superblock::from_bytes(&good, 64 << 20),
        Err(SuperblockError::Address { found: 65536, want: 64 << 20 })
    );
    for at in [31 + 1, 72, 300, 4095] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let error = Superblock::from_bytes(&bad, 65536).expect_err("one flipped bit");
        assert!(error.to_string().contains("checksum mismatch"), "{error}");
    }
    type Spoil = fn(&mut RawSuperblock);
    let cases: [(&str, Spoil); 12] = [
        ("unknown checksum type 9", |raw| raw.csum_type = U16::new(9)),
        ("sector size is not a possible size, found 5000", |raw| raw.sectorsize = U32::new(5000)),
        ("node size is not a possible size, found 131072", |raw| raw.nodesize = U32::new(131_072)),
        ("leaf size differs", |raw| raw.leafsize = U32::new(4096)),
        ("mixed groups", |raw| raw.incompat_flags = U64::new(4)),
        ("root level too high, expected [0, 7], found 8", |raw| raw.root_level = 8),
        ("chunk root is not a possible address", |raw| raw.chunk_root = U64::new(1)),
        ("device belongs to another filesystem", |raw| raw.dev_item.fsid = [8; 16]),
        ("newer than the superblock", |raw| raw.chunk_root_generation = U64::new(10)),
        ("a generation that none can follow", |raw| raw.generation = U64::new(u64::MAX)),
        ("system chunk array is not a possible size, found 2049", |raw| {
            raw.sys_chunk_array_size = U32::new(2049)
        }),
        ("system chunk array, stripes of a chunk is cut short", |raw| raw.sys_chunk_array[17 + 44] = 2),
    ];
    for (want, spoil) in cases {
        let mut raw = raw();
        spoil(&mut raw);
        let error = Superblock::from_raw(raw).expect_err(want).to_string();
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn metadata_uuid_counts_only_with_its_feature() {
    let mut raw = raw();
    raw.metadata_uuid = [9; 16];
    assert_eq!(
        Superblock::from_raw(raw).expect("a good superblock").metadata_uuid(),
        Uuid::from_bytes([7; 16])
    );
    raw.incompat_flags = U64::new(Incompat::METADATA_UUID.bits());
    raw.dev_item.fsid = [9; 16];
    assert_eq!(
        Superblock::from_raw(raw).expect("a good superblock").metadata_uuid(),
        Uuid::from_bytes([9; 16])
    );
}

#[test]
fn system_chunks_are_added_and_removed_until_the_array_is_full() {
    let mut superblock = Superblock::from_raw(raw()).expect("a good superblock");
    let chunk = chunk_bytes(BlockGroupFlags::SYSTEM);
    let mut added = 0;
    while superblock.push_sys_chunk(&chunk_key((100 + added) << 20), &chunk) {
        added += 1;
    }
    assert_eq!(added as usize, SYS_CHUNK_ARRAY_SIZE / 97 - 1);
    assert!(superblock.remove_sys_chunk(Logical::new(SYSTEM)));
    assert!(!superblock.remove_sys_chunk(Logical::new(SYSTEM)));
    let left: Vec<u64> = superblock.sys_chunks().map(|entry| entry.expect("a good chunk").0.offset).collect();
    assert_eq!(left, (0..added).map(|n| (100 + n) << 20).collect::<Vec<_>>());
    assert!(superblock.push_sys_chunk(&chunk_key(SYSTEM), &chunk));
}

#[test]
fn backups_are_earlier_superblocks_newest_first() {
    let mut raw = raw();
    (raw.root, raw.chunk_root_generation, raw.log_root) = ((40 << 20).into(), 5.into(), (7 << 20).into());
    let backup = |root: u64, generation: u64, level: u8| RawRootBackup {
        tree_root: root.into(),
        tree_root_gen: generation.into(),
        tree_root_level: level,
        chunk_root: raw.chunk_root,
        chunk_root_gen: raw.chunk_root_generation,
        chunk_root_level: raw.chunk_root_level,
        total_bytes: raw.total_bytes,
        bytes_used: (generation * 4096).into(),
        ..RawRootBackup::default()
    };
    // The current commit; two earlier ones; a root that lies between sectors; a newer one; nothing.
    let table: [(&[RawRootBackup; 4], &[u64]); 2] = [
        (
            &[backup(40 << 20, 9, 0), backup(20 << 20, 7, 1), backup(30 << 20, 8, 0), backup(77, 6, 0)],
            &[8, 7],
        ),
        (
            &[
                backup(50 << 20, 10, 0),
                backup(20 << 20, 7, 9),
                RawRootBackup::default(),
                backup(30 << 20, 9, 0),
            ],
            &[9],
        ),
    ];
    for (backups, wanted) in table {
        raw.super_roots = *backups;
        let superblock = Superblock::from_raw(raw).unwrap();
        let earlier = superblock.backups();
        let generations: Vec<u64> = earlier.iter().map(|earlier| earlier.generation().get()).collect();
        assert_eq!(generations, wanted);
        for earlier in earlier {
            assert_eq!(earlier.log_root(), None);
            assert_ne!(earlier.root(), superblock.root());
            assert_eq!(earlier.bytes_used(), earlier.generation().get() * 4096);
        }
    }
}
