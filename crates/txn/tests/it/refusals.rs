//! States that cannot be continued: writing is refused, by name, and reading is not.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use creamery_base::{ErrorKind, ObjectId, Result, TreeId, Wait};
use creamery_codec::{ChecksumType, checksum};
use creamery_device::{Access, FileDevice};
use creamery_format::{Key, KeyType};
use creamery_testkit::{Judge, Judges, Scratch};
use creamery_tree::Tree;
use creamery_txn::{Conversion, Engine, Options};
use creamery_volume::{Mode, Volume};

/// Address of the first superblock.
const FIRST_SUPERBLOCK: u64 = 65_536;

fn open(path: &Path, read_only: bool) -> Result<Arc<Engine>> {
    let (access, mode) = match read_only {
        true => (Access::ReadOnly, Mode::ReadOnly),
        false => (Access::ReadWrite, Mode::ReadWrite),
    };
    let volume = Volume::open(vec![Arc::new(FileDevice::open(path, access)?)], mode)?;
    Engine::open(volume, Options { read_only, ..Options::default() })
}

/// Damages the copy of the chunk tree's root that is read first; the other copy replaces it.
fn damage_a_copy(image: &Path) {
    let device = FileDevice::open(image, Access::ReadOnly).expect("the image opens");
    let volume = Volume::open(vec![Arc::new(device)], Mode::ReadOnly).expect("a filesystem");
    let (logical, ..) = volume.superblock().chunk_root();
    let copies = volume.map(logical, volume.node_size().into()).expect("a place");
    assert_eq!(copies.copies(), 2);
    let file = std::fs::File::options().write(true).open(image).expect("the image opens");
    file.write_all_at(&[0xa5; 64], copies.mirrors()[0][0].at.offset + 300).expect("a write");
}

/// Checks that an image made with these options, and perhaps tuned, is refused with `words`.
fn refused(mkfs: &[&str], tune: &[&str], words: &str) {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    let scratch = Scratch::new("refusals").expect("a scratch folder");
    let image = scratch.file("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    let run = |program: &str, options: &[&str]| {
        let done = Command::new(program).args(options).arg(&image).output().expect("the program runs");
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    };
    run("mkfs.btrfs", &[&["-q"], mkfs].concat());
    if !tune.is_empty() {
        run("btrfstune", tune);
    }
    damage_a_copy(&image);
    let before = std::fs::read(&image).expect("the image");
    let Err(error) = open(&image, false) else { panic!("{words}: opened for writing") };
    assert!(error.to_string().contains(words), "{error}");
    let engine = open(&image, true).expect("reading is possible");
    assert!(engine.read_only().is_some());
    drop(engine);
    assert!(before == std::fs::read(&image).expect("the image"), "{words}: the image changed");
}

#[test]
fn a_seed_device() {
    refused(&[], &["-f", "-S", "1"], "SEEDING");
}

/// An image that mkfs.btrfs made.
fn made(options: &[&str]) -> (Scratch, PathBuf) {
    let scratch = Scratch::new("refusals").expect("a scratch folder");
    let image = scratch.file("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    let done = Command::new("mkfs.btrfs").arg("-q").args(options).arg(&image).status();
    assert!(done.expect("the program runs").success());
    (scratch, image)
}

/// Changes the first superblock of an image, and updates its checksum.
fn change_superblock(image: &Path, change: impl FnOnce(&mut [u8])) {
    let mut superblock = vec![0; 4096];
    let file = std::fs::File::options().read(true).write(true).open(image).expect("the image opens");
    file.read_exact_at(&mut superblock, FIRST_SUPERBLOCK).expect("a superblock");
    change(&mut superblock);
    let sum = checksum(ChecksumType::Crc32c, &superblock[32..]);
    superblock[..32].copy_from_slice(sum.field());
    file.write_all_at(&superblock, FIRST_SUPERBLOCK).expect("a superblock");
}

/// Offset of the superblock's compat_ro bits, and the bits of the free space tree.
const COMPAT_RO: usize = 180;
const FREE_SPACE_TREE: u8 = 3;
const FREE_SPACE_TREE_VALID: u8 = 2;
/// Offset of its incompat bits, and the bit of skinny metadata in the second byte.
const INCOMPAT: usize = 188;
const SKINNY_METADATA: u8 = 1;

#[test]
fn a_block_group_tree_without_a_free_space_tree() {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    let (_scratch, image) = made(&["-O", "block-group-tree"]);
    change_superblock(&image, |superblock| superblock[COMPAT_RO] &= !FREE_SPACE_TREE);
    let Err(error) = open(&image, false) else { panic!("opened for writing") };
    assert!(error.to_string().contains("block group tree"), "{error}");
    open(&image, true).expect("reading is possible");
}

#[test]
fn a_free_space_tree_that_is_not_valid() {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    let (_scratch, image) = made(&[]);
    change_superblock(&image, |superblock| superblock[COMPAT_RO] &= !FREE_SPACE_TREE_VALID);
    let Err(error) = open(&image, false) else { panic!("opened for writing") };
    assert!(error.to_string().contains("free space tree is not valid"), "{error}");
    open(&image, true).expect("reading is possible");
}

#[test]
fn skinny_metadata_that_the_superblock_denies() {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    let (_scratch, image) = made(&[]);
    change_superblock(&image, |superblock| superblock[INCOMPAT + 1] &= !SKINNY_METADATA);
    let Err(error) = open(&image, false) else { panic!("opened for writing") };
    assert!(error.to_string().contains("skinny"), "{error}");
    open(&image, true).expect("reading is possible");
}

/// A tree that the superblock does not name any more is stale: a conversion makes no other in its place, and changes nothing.
#[test]
fn a_free_space_tree_that_the_superblock_denies_is_in_the_way_of_another() {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    let (_scratch, image) = made(&["-O", "^block-group-tree"]);
    change_superblock(&image, |superblock| superblock[COMPAT_RO] &= !FREE_SPACE_TREE);
    let engine = open(&image, false).expect("what is free stands in the extent tree");
    for _ in 0..2 {
        let error = engine.convert(Conversion::ToFreeSpaceTree).expect_err("there is one");
        assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("tree 10"), "{error}");
    }
    assert!(engine.aborted().is_none());
    engine.commit().expect("nothing is in its way");
}

/// An item of an extent of data with one reference.
fn data_item() -> Vec<u8> {
    let head = [1_u64, 1, 1].map(u64::to_le_bytes).concat();
    let names = [5_u64, 257, 0].map(u64::to_le_bytes).concat();
    [head, vec![178], names, 1_u32.to_le_bytes().to_vec()].concat()
}

/// The start of the last extent.
fn last_extent(tree: &Tree) -> u64 {
    let mut last = 0;
    let mut cursor = tree.cursor(&Key::MIN, Wait::Yes).expect("no damage");
    while let Some((key, _)) = cursor.item() {
        if matches!(key.kind, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM) {
            last = key.objectid.get();
        }
        cursor.advance().expect("no damage");
    }
    last
}

#[test]
fn an_extent_that_overlaps_the_next_one_is_not_written() {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    let (_scratch, image) = made(&[]);
    let engine = open(&image, false).expect("it opens");
    let tree = engine.tree(TreeId::EXTENT).expect("it is there");
    let block = engine.root_item(TreeId::DATA_RELOC).expect("it is there").root().get();
    let handle = engine.start(creamery_txn::ReserveItems::items(1)).expect("room");
    let lies = Key::new(ObjectId::new(block + 4096), KeyType::EXTENT_ITEM, 8192);
    tree.insert(&handle, &lies, &data_item()).expect("room");
    handle.end();
    let error = engine.commit().expect_err("Linux refuses such a leaf");
    assert!(error.to_string().contains("extent begins before"), "{error}");
    drop((tree, engine));
    open(&image, false).expect("the last commit is there");
}

/// Without a free space tree the gaps between extents are free: a misplaced extent, or a missing one, is an error before anything is handed out.
#[test]
fn extents_that_lie_wrong_where_there_is_no_free_space_tree() {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    for (words, len) in [("leaves block group", Some(1 << 40)), ("expected extents of", None)] {
        let (_scratch, image) = made(&["-O", "^free-space-tree,^block-group-tree"]);
        let engine = open(&image, false).expect("it opens");
        let tree = engine.tree(TreeId::EXTENT).expect("it is there");
        // The extent of a tree that this does not change.
        let block = engine.root_item(TreeId::DATA_RELOC).expect("it is there").root().get();
        let handle = engine.start(creamery_txn::ReserveItems::items(1)).expect("room");
        match len {
            Some(len) => {
                // After all other extents: one that overlaps the next one is not written.
                let lies = Key::new(ObjectId::new(last_extent(&tree) + 65536), KeyType::EXTENT_ITEM, len);
                tree.insert(&handle, &lies, &data_item()).expect("room");
            }
            None => {
                let item = Key::new(ObjectId::new(block), KeyType::METADATA_ITEM, 0);
                assert!(tree.remove(&handle, &item).expect("no damage"), "it has an item");
            }
        }
        handle.end();
        engine.shut_down().expect("nobody looks there");
        drop((tree, engine));
        let Err(error) = open(&image, false) else { panic!("{words}: opened for writing") };
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}

#[test]
fn a_free_space_tree_that_is_not_there_keeps_nobody_from_reading() {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    let (_scratch, image) = made(&["-O", "^free-space-tree,^block-group-tree"]);
    change_superblock(&image, |superblock| superblock[COMPAT_RO] |= FREE_SPACE_TREE);
    let Err(error) = open(&image, false) else { panic!("opened for writing") };
    assert!(error.to_string().contains("tree 10"), "{error}");
    open(&image, true).expect("reading is possible");
}

#[test]
fn nothing_commits_before_a_log_is_replayed() {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    let (_scratch, image) = made(&[]);
    // The superblock names the root tree's root as a log, which it cannot be.
    change_superblock(&image, |superblock| superblock.copy_within(80..88, 96));
    let before = std::fs::read(&image).expect("the image");
    let engine = open(&image, false).expect("it is opened for being replayed");
    let handle = engine.start(creamery_txn::ReserveItems::items(1)).expect("there is room");
    handle.end();
    let refused = engine.commit().expect_err("REPLAY-2");
    assert!(refused.to_string().contains("log"), "{refused}");
    let refused = engine.begin_replay().err().expect("LOG-1");
    assert!(refused.to_string().contains("already in use"), "{refused}");
    assert!(engine.commit().is_err(), "REPLAY-2");
    drop(engine);
    assert!(before == std::fs::read(&image).expect("the image"), "the image changed");
}
