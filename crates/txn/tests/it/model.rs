//! Random changes of a tree against a map in memory, over many commits, on an image made by mkfs.btrfs; at the
//! end everything is removed again and `btrfs check` checks the result.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use creamery_base::{ErrorKind, ObjectId, TreeId, Wait};
use creamery_device::{Access, FileDevice};
use creamery_format::{Key, KeyType};
use creamery_txn::{Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

use crate::remove::remove_in_steps;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

fn make_image(path: &Path, options: &[&str]) {
    let file = std::fs::File::create(path).expect("an image file");
    file.set_len(256 << 20).expect("room");
    let made =
        Command::new("mkfs.btrfs").arg("-q").args(options).arg(path).output().expect("mkfs.btrfs runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn open(path: &Path) -> Arc<Engine> {
    let device = FileDevice::open(path, Access::ReadWrite).expect("the image opens");
    let volume = Volume::open(vec![Arc::new(device)], Mode::ReadWrite).expect("a filesystem");
    Engine::open(volume, Options { cache_bytes: 1 << 20, ..Options::default() }).expect("writable")
}

fn check(path: &Path) {
    let done =
        Command::new("btrfs").args(["check", "--check-data-csum"]).arg(path).output().expect("btrfs runs");
    let text = [done.stdout, done.stderr].map(|out| String::from_utf8_lossy(&out).into_owned()).concat();
    assert!(done.status.success() && text.contains("no error found"), "{text}");
}

fn key_of(number: u64) -> Key {
    // An unknown key type, so that the content is free.
    Key::new(ObjectId::new(1_000_000 + number / 7), KeyType::new(100), number % 7)
}

fn compare(engine: &Engine, model: &BTreeMap<Key, Vec<u8>>) {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let mut cursor = tree.cursor(&key_of(0), Wait::Yes).expect("a cursor");
    for (key, data) in model {
        let (found, found_data) = cursor.item().unwrap_or_else(|| panic!("{key} is missing"));
        assert_eq!((found, found_data), (*key, &data[..]));
        cursor.advance().expect("the next item");
    }
    assert!(cursor.item().is_none(), "an item too many");
    for key in model.keys().rev().take(500) {
        assert!(cursor.retreat().expect("back"), "items before {key}");
        assert_eq!(cursor.item().expect("an item").0, *key);
    }
}

fn step(engine: &Engine, rng: &mut Rng, model: &mut BTreeMap<Key, Vec<u8>>, keys: u64, sizes: u64) {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let handle = engine.start(ReserveItems::items(4)).expect("room");
    let key = key_of(rng.below(keys));
    let mut data = vec![0; usize::try_from(rng.below(sizes)).expect("small")];
    data.iter_mut().for_each(|byte| *byte = u8::try_from(rng.next() & 255).expect("a byte"));
    match rng.below(10) {
        0..4 => match tree.insert(&handle, &key, &data) {
            Ok(()) => assert!(model.insert(key, data).is_none()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::AlreadyExists);
                assert!(model.contains_key(&key));
            }
        },
        4 => {
            tree.upsert(&handle, &key, &data).expect("room");
            model.insert(key, data);
        }
        5 => {
            let known = model.get_mut(&key);
            if known.as_ref().is_none_or(|known| known.len() + data.len() < tree.max_item_size()) {
                assert_eq!(tree.extend(&handle, &key, &data).expect("room"), known.is_some());
                if let Some(known) = known {
                    known.extend(&data);
                }
            }
        }
        6 | 7 => assert_eq!(tree.remove(&handle, &key).expect("room"), model.remove(&key).is_some()),
        8 => {
            let found = tree.update(&handle, &key, |data| data.fill(7)).expect("room").is_some();
            assert_eq!(found, model.contains_key(&key));
            if let Some(known) = model.get_mut(&key) {
                known.fill(7);
            }
        }
        _ if rng.below(40) == 0 => {
            handle.end();
            let last = key_of(rng.below(keys)).max(key);
            let mut seen = Vec::new();
            remove_in_steps(engine, &key, &last, &mut |key, data| seen.push((*key, data.to_vec())));
            let gone: Vec<_> = model.range(key..=last).map(|(key, data)| (*key, data.clone())).collect();
            assert_eq!(seen, gone);
            gone.iter().for_each(|(key, _)| assert!(model.remove(key).is_some()));
            return;
        }
        _ => {}
    }
    handle.end();
}

/// Adds up leaf splits, leaf merges and early unlocks over reopenings.
fn count(engine: &Engine, seen: &mut [u64; 3]) {
    let counters = engine.tree(TreeId::FS).expect("the top level").counters();
    let now = [counters.leaf_splits, counters.leaf_merges, counters.early_unlocks];
    seen.iter_mut().zip(now).for_each(|(sum, value)| *sum += value);
}

fn run(options: &[&str], seed: u64, steps: u64, keys: u64, sizes: u64) {
    if !has("mkfs.btrfs") {
        println!("skipped: no mkfs.btrfs");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("image");
    make_image(&path, options);
    let mut rng = Rng(seed);
    let mut model = BTreeMap::new();
    let mut engine = open(&path);
    let mut seen = [0; 3];
    for number in 0..steps {
        step(&engine, &mut rng, &mut model, keys, sizes);
        if rng.below(300) == 0 {
            engine.commit().unwrap_or_else(|error| panic!("step {number}: {error}"));
        }
        if rng.below(2000) == 0 {
            engine.commit().expect("a commit");
            count(&engine, &mut seen);
            drop(engine);
            engine = open(&path);
            compare(&engine, &model);
        }
    }
    compare(&engine, &model);
    count(&engine, &mut seen);
    assert!(seen[0] > 20 && seen[1] > 5 && seen[2] > 100, "splits, merges, early unlocks: {seen:?}");
    remove_in_steps(&engine, &key_of(0), &key_of(keys), &mut |_, _| ());
    engine.commit().expect("a commit");
    drop(engine);
    check(&path);
}

#[test]
fn small_items_in_4_kib_nodes() {
    run(&["-n", "4096", "-m", "single"], 1, 30_000, 20_000, 120);
}

#[test]
fn large_items_in_4_kib_nodes() {
    run(&["-n", "4096", "-O", "block-group-tree"], 2, 12_000, 3_000, 3_900);
}

#[test]
fn mixed_items_in_16_kib_nodes() {
    run(&["-n", "16384", "--csum", "xxhash"], 3, 30_000, 30_000, 900);
}

#[test]
fn items_up_to_a_leaf_in_16_kib_nodes() {
    run(&["-n", "16384", "--csum", "blake2"], 4, 10_000, 2_000, 16_200);
}
