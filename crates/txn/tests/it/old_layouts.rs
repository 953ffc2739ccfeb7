//! Layouts of older tools: block groups at the front of the device, and a superblock that is older than the trees.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use creamery_base::{DevId, Logical, ObjectId, TreeId, Wait};
use creamery_device::{Access, FileDevice};
use creamery_format::{
    BlockGroupFlags, Key, KeyType, RawBlockGroupItem, RawDevExtent, RawDevItem, SUPERBLOCK_OFFSETS,
    Superblock,
};
use creamery_testkit::{Judge, Judges, LoopMount, Scratch, btrfs_check};
use creamery_txn::{Engine, Options, ReserveItems};
use creamery_volume::{Chunk, Mode, Stripe, Volume};
use zerocopy::{FromBytes, IntoBytes};

const MIB: u64 = 1 << 20;
/// The address of the group on the front of the device.
const START: u64 = 1 << 30;
/// mkfs.btrfs makes a group of 8 MiB.
const MORE_THAN_A_GROUP: u64 = 4_000;
const BOOT_AREA: usize = 64 << 10;

fn open(path: &Path) -> Arc<Engine> {
    let device = FileDevice::open(path, Access::ReadWrite).expect("the image opens");
    let volume = Volume::open(vec![Arc::new(device)], Mode::ReadWrite).expect("a filesystem");
    Engine::open(volume, Options::default()).expect("writable")
}

/// An image, or `None` without the tools to make and check it.
fn image(scratch: &Scratch) -> Option<std::path::PathBuf> {
    if !Judges::here().have(&[Judge::Root, Judge::BtrfsProgs, Judge::KernelBtrfs, Judge::LoopDevices]) {
        println!("skipped: root, btrfs-progs, kernel btrfs or loop devices missing");
        return None;
    }
    let image = scratch.file("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 * MIB)).expect("an image");
    let done = Command::new("mkfs.btrfs")
        .args(["-q", "-m", "single", "-O", "^block-group-tree"])
        .arg(&image)
        .output()
        .expect("mkfs.btrfs runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(image)
}

fn device_item(engine: &Engine) -> RawDevItem {
    let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, 1);
    let tree = engine.tree(TreeId::CHUNK).expect("the chunk tree");
    let item = tree.get(&key, Wait::Yes, |data| RawDevItem::read_from_bytes(data).expect("its size"));
    item.expect("readable").expect("an item")
}

/// Adds a group on the front of the device, by its items alone. Not at address 0, where `btrfs check` misses free space that
/// Linux never uses.
fn add_group_at_the_front(engine: &Engine) {
    let mut device = device_item(engine);
    let stripe = Stripe { dev: DevId::new(1), offset: 0, dev_uuid: device.uuid() };
    let chunk = Chunk::new(Logical::new(START), MIB, BlockGroupFlags::METADATA, 4096, vec![stripe]);
    device.bytes_used = (device.bytes_used.get() + MIB).into();
    let dev_tree = engine.tree(TreeId::DEV).expect("the device tree");
    let mut cursor =
        dev_tree.cursor(&Key::new(ObjectId::new(1), KeyType::DEV_EXTENT, 0), Wait::Yes).expect("one");
    let mut extent = loop {
        let (key, data) = cursor.item().expect("device extents");
        if key.kind == KeyType::DEV_EXTENT {
            break RawDevExtent::read_from_bytes(data).expect("its size");
        }
        cursor.advance().expect("the next item");
    };
    drop(cursor);
    extent.chunk_offset = START.into();
    extent.length = MIB.into();
    let group = RawBlockGroupItem {
        used: 0.into(),
        chunk_objectid: ObjectId::FIRST_CHUNK_TREE.get().into(),
        flags: BlockGroupFlags::METADATA.bits().into(),
    };
    let (front, free) = (ObjectId::new(START), TreeId::FREE_SPACE);
    let info = [1_u32.to_le_bytes(), [0; 4]].concat();
    let items: [(TreeId, Key, &[u8]); 5] = [
        (TreeId::CHUNK, Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, START), &chunk.to_item()),
        (TreeId::DEV, Key::new(ObjectId::new(1), KeyType::DEV_EXTENT, 0), extent.as_bytes()),
        (TreeId::EXTENT, Key::new(front, KeyType::BLOCK_GROUP_ITEM, MIB), group.as_bytes()),
        (free, Key::new(front, KeyType::FREE_SPACE_INFO, MIB), &info),
        (free, Key::new(front, KeyType::FREE_SPACE_EXTENT, MIB), &[]),
    ];
    let handle = engine.start(ReserveItems::items(8)).expect("room");
    let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, 1);
    engine.tree(TreeId::CHUNK).expect("a tree").upsert(&handle, &key, device.as_bytes()).expect("room");
    for (tree, key, data) in items {
        engine.tree(tree).expect("a tree").insert(&handle, &key, data).expect("room");
    }
    handle.end();
    engine.commit().expect("a commit");
}

/// Work that makes tree blocks, five items in each, and leaves no item.
fn work(engine: &Engine, items: u64) {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let key = |number: u64| Key::new(ObjectId::new(1_000_000 + number), KeyType::new(100), 0);
    for round in 0..4 {
        for number in 0..items {
            let handle = engine.start(ReserveItems::items(1)).expect("room");
            match round % 2 {
                0 => tree.insert(&handle, &key(number), &[7; 3000]).expect("room"),
                _ => assert!(tree.remove(&handle, &key(number)).expect("room")),
            }
            handle.end();
        }
        engine.commit().expect("a commit");
    }
}

#[test]
fn nothing_is_written_before_the_first_superblock() {
    let scratch = Scratch::new("old-layouts").expect("a scratch folder");
    let Some(image) = image(&scratch) else { return };
    add_group_at_the_front(&open(&image));
    let boot = vec![0xb0; BOOT_AREA];
    let file = std::fs::File::options().read(true).write(true).open(&image).expect("the image opens");
    file.write_all_at(&boot, 0).expect("a boot loader");
    let engine = open(&image);
    work(&engine, MORE_THAN_A_GROUP);
    drop(engine);
    let mut found = vec![0; BOOT_AREA];
    file.read_exact_at(&mut found, 0).expect("the front");
    assert!(found == boot, "the boot area was written to");
    btrfs_check(&image).expect("after our writes");
    let mut mount = LoopMount::mount(&image, &scratch.file("mounted"), "").expect("the kernel mounts it");
    std::fs::write(mount.dir().join("file"), "by the kernel").expect("it writes");
    let mut complaints = mount.unmount_and_tell().expect("unmounts");
    // `btrfs check` warns of such a layout, and accepts it.
    complaints.retain(|line| !line.contains("inside the reserved space"));
    assert!(complaints.is_empty(), "{complaints:?}");
    work(&open(&image), MORE_THAN_A_GROUP);
    btrfs_check(&image).expect("after the kernel's writes and ours");
}

#[test]
fn a_commit_brings_the_superblocks_device_and_the_root_item_up_to_date() {
    let scratch = Scratch::new("behind").expect("a scratch folder");
    let Some(image) = image(&scratch) else { return };
    let file = std::fs::File::options().read(true).write(true).open(&image).expect("the image opens");
    let at = SUPERBLOCK_OFFSETS[0];
    let mut bytes = vec![0; creamery_format::SUPERBLOCK_LEN];
    file.read_exact_at(&mut bytes, at).expect("the superblock");
    let mut superblock = Superblock::from_bytes(&bytes, at).expect("a superblock");
    superblock.raw_mut().dev_item.bytes_used = 4096.into();
    file.write_all_at(&superblock.to_bytes(at), at).expect("a write");
    let engine = open(&image);
    let before = engine.root_item(TreeId::FS).expect("a root item");
    work(&engine, 600);
    let item = device_item(&engine);
    let found = *engine.volume().superblock().dev_item();
    assert_eq!(found.bytes_used, item.bytes_used);
    assert_eq!((found.total_bytes, found.uuid), (item.total_bytes, item.uuid));
    let after = engine.root_item(TreeId::FS).expect("a root item");
    assert_eq!(after.ctransid, after.generation, "{}", before.ctransid);
    assert!(after.ctransid > before.ctransid && after.ctime.sec >= before.ctime.sec);
    assert_eq!((after.otransid, after.otime.sec), (before.otransid, before.otime.sec));
    drop(engine);
    btrfs_check(&image).expect("after our writes");
}
