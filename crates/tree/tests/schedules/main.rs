//! Three threads change and walk a small tree under a scheduler that runs one of them at a time and chooses the next at
//! every lock, in an order that follows from a seed. Then the test verifies the tree, and compares it with the items that each
//! thread expects. `cargo test -p creamery-tree --features shuttle --test schedules`
//!
//! A failure prints its seed and its schedule; `CREAMERY_SCHEDULES_SEED` starts from a given seed, and
//! `CREAMERY_SCHEDULES` sets how many schedules each test runs.

#[path = "../it/verify.rs"]
mod verify;
#[allow(dead_code)] // the other tests use the rest
#[path = "../it/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use creamery_base::sync::shuttle::rand::{Rng, thread_rng};
use creamery_base::sync::shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use creamery_base::sync::shuttle::{Config, FailurePersistence, Runner, thread};
use creamery_base::{ErrorKind, Wait};
use creamery_format::Key;
use creamery_testkit::{schedules, schedules_seed};
use creamery_tree::{ReadAhead, Walk};

use crate::world::{World, key};

const SEED: u64 = 20_211_206;
const THREADS: u64 = 3;
/// Keys that no thread changes: every walk must meet them.
const FIXED: u64 = 6;
const STEPS: u64 = 5;

type Items = BTreeMap<Key, Vec<u8>>;

/// Digit of the fixed keys. Those of thread t have the digit t, so that each thread has a key before all fixed ones.
const FIXED_DIGIT: u64 = 9;

fn key_of(number: u64, digit: u64) -> Key {
    key(1000, number * 10 + digit)
}

fn fixed() -> Items {
    (0..FIXED).map(|number| (key_of(number, FIXED_DIGIT), vec![9; 700])).collect()
}

/// The items that a thread has at first.
fn own(thread: u64) -> Items {
    Items::from([(key_of(0, thread), vec![0; 700])])
}

/// Items around the others, a leaf for each, so many that the root is at level 2. The others begin where its first
/// child is full and the second begins: the keys that threads have at first are that child's first. With few items
/// behind, that child is so thin that a deletion merges it or fills it up.
fn surroundings(behind: u64) -> Items {
    let objects = (1..=117).chain(2000..2000 + behind);
    objects.map(|object| (key(object, 0), vec![0; 3000])).collect()
}

/// Does a few of each operation, on keys of this thread's own.
fn work(world: &World, thread: u64) -> Items {
    let mut items = own(thread);
    for _ in 0..STEPS {
        let key = key_of(thread_rng().gen_range(0..FIXED), thread);
        let data = vec![u8::try_from(thread).expect("small"); thread_rng().gen_range(1..1500)];
        let (tree, host) = (&world.tree, &world.host);
        match thread_rng().gen_range(0..8) {
            kind @ 0..4 => {
                let by_finger = kind % 2 == 0;
                let inserted = if by_finger {
                    tree.insert_batch(host, &[(key, &data)])
                } else {
                    tree.insert(host, &key, &data)
                };
                match inserted {
                    Ok(()) => assert!(items.insert(key, data).is_none()),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
                        assert!(items.contains_key(&key));
                    }
                }
            }
            4 | 5 => {
                let removed = tree.remove(host, &key).expect("no damage");
                assert_eq!(removed, items.remove(&key).is_some());
            }
            6 => walk(world),
            _ => {
                let found = tree.get(&key, Wait::Yes, <[u8]>::to_vec).expect("no damage");
                assert_eq!(found.as_ref(), items.get(&key));
            }
        }
    }
    items
}

/// Checks that keys ascend and all fixed ones are there.
fn walk(world: &World) {
    let mut cursor = world.tree.cursor(&key(1000, 0), Wait::Yes).expect("no damage");
    let (mut before, mut seen) = (None, 0);
    while let Some((key, _)) = cursor.item().filter(|(item, _)| *item < key(1001, 0)) {
        assert!(before < Some(key), "{key} after {before:?}");
        before = Some(key);
        seen += u64::from(key.offset % 10 == FIXED_DIGIT);
        cursor.advance().expect("no damage");
    }
    assert_eq!(seen, FIXED, "keys that are always there");
}

/// The settings of an execution.
#[derive(Clone, Copy)]
struct Scenario {
    early_unlock: bool,
    /// Three levels instead of two, with so many leaves behind those that are changed.
    deep: Option<u64>,
    uncoupled: bool,
}

const USUAL: Scenario = Scenario { early_unlock: true, deep: None, uncoupled: false };

/// Runs one execution.
fn execute(scenario: Scenario) {
    let Scenario { early_unlock, deep, uncoupled } = scenario;
    let world = World::new(1 << 20);
    world.tree.set_early_unlock(early_unlock);
    let mut all = deep.map(surroundings).unwrap_or_default();
    all.append(&mut fixed());
    (0..THREADS).for_each(|thread| all.append(&mut own(thread)));
    for (key, data) in &all {
        world.tree.insert(&world.host, key, data).expect("room");
    }
    assert_eq!(world.tree.root_buffer().level(), if deep.is_some() { 2 } else { 1 });
    world.commit(); // every first change copies its path
    if uncoupled {
        world.tree.uncouple_readers();
    }
    let world = Arc::new(world);
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let world = Arc::clone(&world);
            thread::spawn(move || work(&world, number))
        })
        .collect();
    all.retain(|key, _| !(0..THREADS).any(|thread| own(thread).contains_key(key)));
    for thread in threads {
        all.append(&mut thread.join().expect("it ends well"));
    }
    world.verify(all.iter().map(|(key, data)| (*key, &data[..])));
    let counters = world.tree.counters();
    assert_eq!((counters.leaf_steps.sum(), counters.compared_at_slot0), (counters.insertions, 0));
    assert!(!early_unlock || counters.searched_under_parent == 0);
}

fn config(persistence: FailurePersistence) -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.failure_persistence = persistence;
    config
}

fn run(name: &str, seed: u64, scheduler: impl Scheduler + 'static, scenario: Scenario) {
    let runner = Runner::new(scheduler, config(FailurePersistence::Print));
    let result = catch_unwind(AssertUnwindSafe(|| runner.run(move || execute(scenario))));
    if let Err(failure) = result {
        println!("{name} failed: CREAMERY_SCHEDULES_SEED={seed}");
        resume_unwind(failure);
    }
}

fn random(name: &str, seed: u64, scenario: Scenario) {
    run(name, seed, RandomScheduler::new_from_seed(seed, schedules(1000)), scenario);
}

#[test]
fn random_schedules_from_a_fixed_seed() {
    random("random schedules", SEED, USUAL);
}

#[test]
fn random_schedules_from_the_asked_seed() {
    let seed = schedules_seed("tree");
    random("random schedules", seed, USUAL);
}

#[test]
fn random_schedules_with_parents_kept() {
    random("random schedules with parents kept", SEED, Scenario { early_unlock: false, ..USUAL });
}

#[test]
fn random_schedules_where_first_keys_change_on_three_levels() {
    let scenario = Scenario { deep: Some(40), ..USUAL };
    random("random schedules where first keys change on three levels", SEED, scenario);
}

#[test]
fn random_schedules_where_inner_nodes_are_filled_up() {
    let scenario = Scenario { deep: Some(5), ..USUAL };
    random("random schedules where inner nodes are filled up", SEED, scenario);
}

#[test]
fn schedules_with_few_changes_of_threads() {
    let scheduler = PctScheduler::new_from_seed(SEED, 3, schedules(1000));
    run("schedules with few changes of threads", SEED, scheduler, USUAL);
}

/// The settings of an execution in which one thread changes a tree and commits while others read it.
#[derive(Clone, Copy)]
struct Commits {
    /// Leaves of the tree: 117 do not fit into the cache.
    objects: u64,
    unmarked: bool,
}

/// Changes of the thread that commits, and how many of them are one transaction.
const CHANGES: u64 = 12;
const CHANGES_OF_A_COMMIT: u64 = 2;

/// Changes a few of the surroundings, and commits. Most addresses hold several blocks in turn.
fn change_and_commit(world: &World, objects: u64) {
    for number in 0..CHANGES {
        let key = key(1 + thread_rng().gen_range(0..objects), 0);
        let found = world.tree.update(&world.host, &key, |data| data.fill(1)).expect("room");
        assert!(found.is_some());
        if number % CHANGES_OF_A_COMMIT == 0 {
            world.commit();
        }
    }
}

/// Reads items that no thread adds or removes, with readahead.
fn look_around(world: &World, objects: u64) {
    let walk = Walk::new(Wait::Yes, ReadAhead::ForwardAlways);
    let mut cursor = world.tree.cursor(&key(1, 0), walk).expect("no damage");
    for object in 1..=objects.min(CHANGES) {
        assert_eq!(cursor.item().map(|(found, data)| (found, data.len())), Some((key(object, 0), 3000)));
        world.store.read_ahead_step();
        cursor.advance().expect("no damage");
    }
    drop(cursor);
    for _ in 0..CHANGES {
        let key = key(1 + thread_rng().gen_range(0..objects), 0);
        let found = world.tree.get(&key, Wait::Yes, <[u8]>::len).expect("no damage");
        assert_eq!(found, Some(3000), "{key}");
    }
}

/// Two threads read without locks while a third one changes and commits; the cache has room for a part of the tree.
fn execute_commits(Commits { objects: count, unmarked }: Commits) {
    let world = World::new(0);
    world.store.begin_read_ahead(|| {});
    let objects: Items = (1..=count).map(|object| (key(object, 0), vec![1; 3000])).collect();
    for (key, data) in &objects {
        world.tree.insert(&world.host, key, data).expect("room");
    }
    world.commit();
    if unmarked {
        world.tree.leave_unmarked();
    }
    let world = Arc::new(world);
    let (changing, first, second) = (Arc::clone(&world), Arc::clone(&world), Arc::clone(&world));
    let threads = [
        thread::spawn(move || change_and_commit(&changing, count)),
        thread::spawn(move || look_around(&first, count)),
        thread::spawn(move || look_around(&second, count)),
    ];
    threads.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    world.verify(objects.iter().map(|(key, data)| (*key, &data[..])));
}

/// Objects of a tree whose root is at level 2, so that its nodes are linked.
const LINKED: u64 = 130;

#[test]
fn random_schedules_of_readers_beside_commits() {
    let seed = schedules_seed("readers beside commits");
    for (seed, objects) in [(SEED, 117), (seed, 117), (SEED, LINKED), (seed, LINKED)] {
        let scheduler = RandomScheduler::new_from_seed(seed, schedules(300));
        let runner = Runner::new(scheduler, config(FailurePersistence::Print));
        let executed = || runner.run(move || execute_commits(Commits { objects, unmarked: false }));
        if let Err(failure) = catch_unwind(AssertUnwindSafe(executed)) {
            println!("readers beside commits failed: CREAMERY_SCHEDULES_SEED={seed}");
            resume_unwind(failure);
        }
    }
}

/// Threads that empty one tree together.
const REMOVERS: u64 = 4;
/// Items of each: some five leaves have items of all of them.
const ITEMS_OF_EACH: u64 = 7;

/// Removes all items of this thread, in an order of its own, and once puts some of them back.
fn empty(world: &World, thread: u64) {
    let mut left: Vec<u64> = (0..ITEMS_OF_EACH).collect();
    let mut put_back = false;
    while !left.is_empty() {
        let number = left.swap_remove(thread_rng().gen_range(0..left.len()));
        let key = key_of(number, thread);
        assert!(world.tree.remove(&world.host, &key).expect("no damage"), "{key} is this thread's");
        if !put_back && thread_rng().gen_range(0..4) == 0 {
            put_back = true;
            world.tree.insert(&world.host, &key, &[1; 700]).expect("room");
            left.push(number);
        }
    }
}

/// Runs one execution of many removers, beside a thread that walks.
fn execute_removers(deep: bool) {
    let world = World::new(1 << 20);
    let mut kept = fixed();
    if deep {
        kept.append(&mut surroundings(5));
    }
    for (key, data) in &kept {
        world.tree.insert(&world.host, key, data).expect("room");
    }
    for (number, thread) in
        (0..ITEMS_OF_EACH).flat_map(|number| (0..REMOVERS).map(move |thread| (number, thread)))
    {
        world.tree.insert(&world.host, &key_of(number, thread), &[0; 700]).expect("room");
    }
    world.commit();
    let world = Arc::new(world);
    let (walked, threads) = (Arc::clone(&world), (0..REMOVERS).map(|number| (number, Arc::clone(&world))));
    let mut threads: Vec<_> =
        threads.map(|(number, world)| thread::spawn(move || empty(&world, number))).collect();
    threads.push(thread::spawn(move || walk(&walked)));
    threads.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    world.verify(kept.iter().map(|(key, data)| (*key, &data[..])));
}

#[test]
fn random_schedules_of_many_removers() {
    let seed = schedules_seed("many removers");
    for (seed, deep) in [(SEED, false), (SEED, true), (seed, false), (seed, true)] {
        let scheduler = RandomScheduler::new_from_seed(seed, schedules(300));
        let runner = Runner::new(scheduler, config(FailurePersistence::Print));
        let executed = || runner.run(move || execute_removers(deep));
        if let Err(failure) = catch_unwind(AssertUnwindSafe(executed)) {
            println!("many removers failed: CREAMERY_SCHEDULES_SEED={seed}");
            resume_unwind(failure);
        }
    }
}

/// Threads that miss the same blocks at the same time read each of them once (READ-2).
#[test]
fn a_block_that_several_miss_is_read_once() {
    let scheduler = RandomScheduler::new_from_seed(SEED, schedules(300));
    Runner::new(scheduler, config(FailurePersistence::Print)).run(|| {
        let mut world = World::new(1 << 20);
        for (key, data) in &surroundings(0) {
            world.tree.insert(&world.host, key, data).expect("room");
        }
        world.commit();
        world.reopen();
        let world = Arc::new(world);
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    for object in [1, 60, 117] {
                        let found = world.tree.get(&key(object, 0), Wait::Yes, <[u8]>::len);
                        assert_eq!(found.expect("no damage"), Some(3000));
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it ends well"));
        assert_eq!(world.tree.root_buffer().level(), 1);
        assert_eq!(world.store.counters().misses, 1 + 3, "the root and three leaves");
    });
}

/// The canary: readers that do not see the mark of a given-up block take another block in its space for damage.
#[test]
fn blocks_that_are_given_up_without_a_mark_are_caught() {
    // A whole transaction has to overtake the reader, and then the one that uses the space again.
    let scheduler = PctScheduler::new_from_seed(SEED, 2, 5000);
    let runner = Runner::new(scheduler, config(FailurePersistence::None));
    let executed = || runner.run(|| execute_commits(Commits { objects: 8, unmarked: true }));
    let found = catch_unwind(AssertUnwindSafe(executed));
    assert!(found.is_err(), "5000 schedules went well with blocks that are given up without a mark");
}

/// The canary: the harness finds a planted fault of locking. If it did not, readers that miss items
/// could go unnoticed here.
#[test]
fn readers_that_let_go_too_early_are_caught() {
    let scheduler = RandomScheduler::new_from_seed(SEED, 5000);
    let runner = Runner::new(scheduler, config(FailurePersistence::None));
    let found =
        catch_unwind(AssertUnwindSafe(|| runner.run(|| execute(Scenario { uncoupled: true, ..USUAL }))));
    assert!(found.is_err(), "5000 schedules went well with readers that do not couple their locks");
}
