//! A thread that panics with a tree block half edited: all other threads go on reading, none commits any more, and the
//! image stays at the last commit.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use creamery_base::{ErrorKind, ObjectId, TreeId, Wait};
use creamery_device::{Access, FileDevice};
use creamery_format::{Key, KeyType};
use creamery_testkit::{Judge, Judges, Scratch, btrfs_check};
use creamery_txn::{Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

fn open(path: &Path) -> Arc<Engine> {
    let device = FileDevice::open(path, Access::ReadWrite).expect("the image opens");
    let volume = Volume::open(vec![Arc::new(device)], Mode::ReadWrite).expect("a filesystem");
    Engine::open(volume, Options::default()).expect("writable")
}

fn key_of(number: u64) -> Key {
    Key::new(ObjectId::new(1_000_000), KeyType::new(100), number)
}

fn read(engine: &Engine, number: u64) -> Option<Vec<u8>> {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    tree.get(&key_of(number), Wait::Yes, <[u8]>::to_vec).expect("reads")
}

fn insert(engine: &Engine, number: u64) {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let handle = engine.start(ReserveItems::items(1)).expect("room");
    tree.insert(&handle, &key_of(number), &[1; 64]).expect("a new key");
    handle.end();
}

fn remove(engine: &Engine, number: u64) {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let handle = engine.start(ReserveItems::freeing(1)).expect("room");
    assert!(tree.remove(&handle, &key_of(number)).expect("removes"));
    handle.end();
}

/// Panics while it changes item 1; its transaction handle dies with it, or survives and ends in good order.
fn die_half_way(engine: &Engine, handle_survives: bool) {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let handle = engine.start(ReserveItems::items(1)).expect("room");
    let edit = || {
        tree.update(&handle, &key_of(1), |data| {
            data[..32].fill(2);
            panic!("dies with half an item written");
        })
    };
    let Err(death) = catch_unwind(AssertUnwindSafe(edit)) else { panic!("it lives") };
    if !handle_survives {
        resume_unwind(death);
    }
    handle.end();
}

#[test]
fn nothing_half_edited_is_committed() {
    died(true, "a thread panicked with a tree block half edited");
}

#[test]
fn nothing_is_committed_after_a_handle_died() {
    died(false, "a thread panicked: dies with half an item written");
}

fn died(handle_survives: bool, reason: &str) {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    let scratch = Scratch::new(&format!("panics-{handle_survives}")).expect("a scratch folder");
    let image = scratch.file("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).status().expect("mkfs.btrfs");
    assert!(made.success());

    let engine = open(&image);
    insert(&engine, 1);
    engine.commit().expect("a commit");
    insert(&engine, 2);
    let death = std::thread::scope(|scope| scope.spawn(|| die_half_way(&engine, handle_survives)).join());
    assert!(death.is_err() || handle_survives);

    // No lock is left: other threads read, and a commit fails with the reason.
    assert_eq!(read(&engine, 2), Some(vec![1; 64]));
    let error = engine.commit().expect_err("nothing may be committed");
    assert!(error.to_string().contains(reason), "{error}");
    let refused =
        engine.start(ReserveItems::items(1)).map(|handle| handle.end()).expect_err("read-only by now");
    assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
    drop(engine);

    let engine = open(&image);
    assert_eq!((read(&engine, 1), read(&engine, 2)), (Some(vec![1; 64]), None), "the last commit");
    remove(&engine, 1);
    engine.commit().expect("a commit");
    drop(engine);
    btrfs_check(&image).expect("judged");
}
