//! Writing to trees that share blocks: the kernel makes snapshots of snapshots, Creamery changes inode items in every
//! subvolume in turn and at random, and `btrfs check` counts the references. Files with hundreds of clones have
//! references that do not fit into their extent items; copying their leaves adds references by parent to those.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use creamery_base::{ObjectId, TreeId, Wait};
use creamery_device::{Access, FileDevice};
use creamery_format::{Key, KeyType};
use creamery_testkit::{Judge, Judges, LoopMount, Scratch, btrfs_check};
use creamery_txn::{Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

fn open(path: &Path) -> Arc<Engine> {
    let device = FileDevice::open(path, Access::ReadWrite).expect("the image opens");
    let volume = Volume::open(vec![Arc::new(device)], Mode::ReadWrite).expect("a filesystem");
    Engine::open(volume, Options::default()).expect("writable")
}

fn shell(script: &str) {
    let done = Command::new("sh").args(["-ec", script]).output().expect("sh runs");
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Numbers of references with items of their own, by type: data by tree, data by parent.
fn keyed_references(engine: &Engine) -> (usize, usize) {
    let tree = engine.tree(TreeId::EXTENT).expect("the extent tree");
    let mut cursor = tree.cursor(&Key::MIN, Wait::Yes).expect("a cursor");
    let (mut by_tree, mut by_parent) = (0, 0);
    while let Some((key, _)) = cursor.item() {
        by_tree += usize::from(key.kind == KeyType::EXTENT_DATA_REF);
        by_parent += usize::from(key.kind == KeyType::SHARED_DATA_REF);
        cursor.advance().expect("the next item");
    }
    (by_tree, by_parent)
}

/// All subvolumes in the root tree.
fn subvolumes(engine: &Engine) -> Vec<TreeId> {
    let root_tree = engine.tree(TreeId::ROOT).expect("the root tree");
    let mut found = Vec::new();
    let mut cursor = root_tree.cursor(&Key::MIN, Wait::Yes).expect("a cursor");
    while let Some((key, _)) = cursor.item() {
        if key.kind == KeyType::ROOT_ITEM && TreeId::from(key.objectid).is_subvolume() {
            found.push(TreeId::from(key.objectid));
        }
        cursor.advance().expect("the next item");
    }
    found
}

/// Changes the time of every `nth` inode.
fn touch(engine: &Engine, id: TreeId, nth: usize) -> usize {
    let tree = engine.tree(id).expect("a subvolume");
    let mut keys = Vec::new();
    let mut cursor = tree.cursor(&Key::MIN, Wait::Yes).expect("a cursor");
    while let Some((key, _)) = cursor.item() {
        if key.kind == KeyType::INODE_ITEM && key.objectid > ObjectId::FIRST_FREE {
            keys.push(key);
        }
        cursor.advance().expect("the next item");
    }
    drop(cursor);
    let chosen: Vec<_> = keys.iter().step_by(nth).collect();
    for key in &chosen {
        let handle = engine.start(ReserveItems::items(1)).expect("room");
        // Byte 112 begins the access time's seconds.
        let done = tree.update(&handle, key, |item| item[112] ^= 1).expect("room");
        assert!(done.is_some());
        handle.end();
    }
    chosen.len()
}

fn run(mkfs_options: &str) {
    if !Judges::here().have(&[Judge::BtrfsProgs, Judge::KernelBtrfs]) {
        println!("skipped: btrfs-progs or kernel btrfs missing");
        return;
    }
    let scratch = Scratch::new("shared-blocks").expect("a scratch folder");
    let image = scratch.file("image");
    shell(&format!("truncate -s 512M {0}; mkfs.btrfs -q {mkfs_options} {0}", image.display()));
    let dir = scratch.dir("mount").expect("a folder");
    let mount = LoopMount::mount(&image, &dir, "").expect("the kernel mounts it");
    let at = dir.display();
    shell(&format!(
        "btrfs -q subvolume create {at}/a; cd {at}/a
         for i in $(seq 1500); do echo $i > f$i; done
         dd if=/dev/zero bs=64k count=40 of=big status=none
         for i in $(seq 300); do cp --reflink=always big clone$i; done
         btrfs -q subvolume snapshot {at}/a {at}/b; btrfs -q subvolume snapshot -r {at}/a {at}/c
         for i in $(seq 1 3 1500); do echo more >> {at}/b/f$i; done
         sync -f .; btrfs -q subvolume snapshot {at}/b {at}/d; echo x > {at}/d/new"
    ));
    mount.unmount().expect("unmounts");
    btrfs_check(&image).expect("what the kernel made is whole");
    let engine = open(&image);
    let all = subvolumes(&engine);
    assert!(all.len() >= 5, "{all:?}");
    let before = keyed_references(&engine);
    assert!(before.0 > 100, "{before:?}");
    let mut touched = 0;
    for (round, nth) in [(0, 7), (1, 3), (2, 1)] {
        for id in all.iter().rev() {
            touched += touch(&engine, *id, nth);
            if round != 1 {
                engine.commit().expect("a commit");
            }
        }
        engine.commit().expect("a commit");
    }
    assert!(touched > 5000, "{touched}");
    let after = keyed_references(&engine);
    assert_ne!(before, after, "copying leaves of subvolumes in turn changes who refers how");
    drop(engine);
    btrfs_check(&image).expect("after our writes");
}

#[test]
fn every_subvolume_changes_in_4_kib_nodes() {
    run("-n 4096 -m single");
}

#[test]
fn every_subvolume_changes_in_16_kib_nodes() {
    run("-n 16384 -O block-group-tree");
}
