//! Several threads change one tree at once, each its own keys, while another thread commits; then every key is
//! there, and `btrfs check` agrees once they are gone again.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::{ErrorKind, ObjectId, TreeId, Wait};
use creamery_device::{Access, FileDevice};
use creamery_format::{Key, KeyType};
use creamery_testkit::{Judge, Judges, Scratch, btrfs_check};
use creamery_txn::{Conversion, Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

use crate::remove::remove_in_steps;

const THREADS: u64 = 4;
const KEYS: u64 = 8_000;

/// Keys of all threads mix in every leaf.
fn key_of(thread: u64, number: u64) -> Key {
    let spread = number.wrapping_mul(0x9e37_79b1) % (1 << 20);
    Key::new(ObjectId::new(1_000_000 + spread), KeyType::new(100), number * THREADS + thread)
}

fn work(engine: &Engine, thread: u64) {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    for number in 0..KEYS {
        let handle = engine.start(ReserveItems::items(1)).expect("room");
        tree.insert(&handle, &key_of(thread, number), &number.to_le_bytes()).expect("a new key");
        handle.end();
        if number % 3 == 2 {
            let handle = engine.start(ReserveItems::freeing(1)).expect("room");
            assert!(tree.remove(&handle, &key_of(thread, number - 1)).expect("removes"));
            handle.end();
        }
        let read = tree.get(&key_of(thread, number), Wait::Yes, |data| data.to_vec()).expect("reads");
        assert_eq!(read.as_deref(), Some(&number.to_le_bytes()[..]));
    }
}

/// Least number of conversions of each converting thread: even on a busy machine the other threads wait for them.
const CONVERSIONS: u32 = 6;

/// Moves the block groups to the extent tree and back until the others are `done` and it has done so often enough.
fn convert_until(engine: &Engine, done: &AtomicBool) {
    let mut converted = 0;
    while !done.load(Ordering::Relaxed) || converted < CONVERSIONS {
        for conversion in [Conversion::FromBlockGroupTree, Conversion::ToBlockGroupTree] {
            match engine.convert(conversion) {
                Ok(is_converted) => converted += u32::from(is_converted),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
            }
        }
    }
}

fn commits_were_timed(engine: &Engine) {
    let counters = engine.counters();
    let (whole, closed) = (counters.commit_micros, counters.gate_closed_micros);
    assert_eq!((whole.count(), closed.count()), (counters.commits, counters.commits));
    assert!(0 < whole.sum() && closed.sum() <= whole.sum(), "{closed:?} of {whole:?}");
}

#[test]
fn threads_and_commits_do_not_disturb_each_other() {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    let scratch = Scratch::new("threads").expect("a scratch folder");
    let image = scratch.file("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    let made = Command::new("mkfs.btrfs")
        .args(["-q", "-n", "4096", "-O", "block-group-tree"])
        .arg(&image)
        .status()
        .expect("mkfs.btrfs");
    assert!(made.success());
    let device = FileDevice::open(&image, Access::ReadWrite).expect("the image opens");
    let volume = Volume::open(vec![Arc::new(device)], Mode::ReadWrite).expect("a filesystem");
    let engine =
        Engine::open(volume, Options { cache_bytes: 1 << 20, ..Options::default() }).expect("writable");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| {
            let mut commits = 0;
            while !done.load(Ordering::Relaxed) || commits <= 10 {
                engine.commit().expect("a commit");
                commits += 1;
            }
            commits
        });
        let converters = [(); 2].map(|()| scope.spawn(|| convert_until(&engine, &done)));
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let engine = &engine;
                scope.spawn(move || work(engine, thread))
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("a worker ends well"));
        done.store(true, Ordering::Relaxed);
        committer.join().expect("the committer ends well");
        converters.into_iter().for_each(|each| each.join().expect("a converter ends well"));
    });
    commits_were_timed(&engine);
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let kept = |number: u64| number % 3 != 1 || number + 1 >= KEYS;
    for thread in 0..THREADS {
        for number in 0..KEYS {
            let there = tree.get(&key_of(thread, number), Wait::Yes, |_| ()).expect("reads").is_some();
            assert_eq!(there, kept(number), "thread {thread} key {number}");
        }
    }
    let (first, last) = (ObjectId::new(1_000_000), ObjectId::new(1 << 24));
    let [first, last] = [first, last].map(|objectid| Key::new(objectid, KeyType::new(0), 0));
    remove_in_steps(&engine, &first, &last, &mut |_, _| ());
    engine.commit().expect("a commit");
    drop(tree);
    drop(engine);
    btrfs_check(&image).expect("judged");
}
