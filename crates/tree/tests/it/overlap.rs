//! Two threads insert into different leaves of one parent. With parents unlocked early both can be inside their leaf
//! searches at once; without, the parent's lock keeps the second one out.

use std::sync::{Arc, Mutex};

use creamery_base::{ErrorKind, Wait};
use creamery_format::Key;
use creamery_testkit::{ThreadWatch, wait_until};
use creamery_tree::ExtentBuffer;

use crate::world::{World, key};

/// The meeting point of two writers.
#[derive(Default)]
struct Meeting {
    inside: Mutex<Inside>,
    writers: [ThreadWatch; 2],
}

#[derive(Default)]
struct Inside {
    now: usize,
    most: usize,
    /// Writers that have left.
    were: usize,
    parent_seen_locked: usize,
}

impl Meeting {
    /// Called inside a leaf search. Stays until the other writer is there too or, if the two may be kept apart, until the other waits for a
    /// lock or has been here.
    fn enter(&self, parent: &Arc<ExtentBuffer>, kept_apart: bool) {
        let parent_locked = match Arc::clone(parent).read(Wait::No) {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        let mut inside = self.inside.lock().unwrap();
        inside.parent_seen_locked += usize::from(parent_locked);
        inside.now += 1;
        inside.most = inside.most.max(inside.now);
        drop(inside);
        let other_is_kept_out =
            |inside: &Inside| inside.were > 0 || self.writers.iter().any(ThreadWatch::waits);
        wait_until("the other writer", || {
            let inside = self.inside.lock().unwrap();
            inside.most == 2 || kept_apart && other_is_kept_out(&inside)
        });
        let mut inside = self.inside.lock().unwrap();
        inside.now -= 1;
        inside.were += 1;
    }
}

/// A root with leaves below it that have room, all of them owned by the running transaction, and for each leaf a
/// key that belongs into its middle.
fn leaves_with_room() -> (World, Vec<Key>) {
    let world = World::new(1 << 20);
    for number in 0..200 {
        world.tree.insert(&world.host, &key(1000, number * 10), &[1; 100]).expect("room");
    }
    let root = world.tree.root_buffer().read(Wait::Yes).expect("the root");
    let block = root.block();
    assert!(
        block.level() == 1 && block.count() > 3,
        "level {} with {} children",
        block.level(),
        block.count()
    );
    let firsts: Vec<Key> = (0..block.count() - 1).map(|slot| block.key(slot)).collect();
    drop(root);
    let removed = |first: &Key| key(1000, first.offset + 50);
    for first in &firsts {
        assert!(world.tree.remove(&world.host, &removed(first)).expect("removes"));
    }
    (world, firsts.iter().map(|first| key(1000, first.offset + 51)).collect())
}

fn two_writers(early_unlock: bool) -> Inside {
    let (world, keys) = leaves_with_room();
    world.tree.set_early_unlock(early_unlock);
    let before = world.tree.counters();
    let (meeting, parent) = (Arc::new(Meeting::default()), world.tree.root_buffer());
    let observer = Arc::clone(&meeting);
    world.tree.observe_leaf_searches(move |_, _| observer.enter(&parent, !early_unlock));
    std::thread::scope(|scope| {
        for (key, writer) in keys[..2].iter().zip(&meeting.writers) {
            let world = &world;
            scope.spawn(move || {
                writer.this_thread();
                world.tree.insert(&world.host, key, &[2; 20]).expect("room");
            });
        }
    });
    for key in &keys[..2] {
        assert!(world.tree.get(key, Wait::Yes, |_| ()).expect("reads").is_some());
    }
    let after = world.tree.counters();
    assert_eq!(after.restarts, before.restarts, "both went straight to their leaves");
    assert_eq!(after.leaf_splits + after.leaf_pushes, before.leaf_splits + before.leaf_pushes);
    std::mem::take(&mut *meeting.inside.lock().unwrap())
}

#[test]
fn writers_of_two_leaves_meet_inside_their_leaf_searches() {
    let seen = two_writers(true);
    assert_eq!(seen.most, 2, "insertions into two leaves of one parent are serialised");
    assert_eq!(seen.parent_seen_locked, 0, "the parent is free while leaves are searched");
}

#[test]
fn writers_of_two_leaves_are_kept_apart_when_parents_are_kept() {
    let seen = two_writers(false);
    assert_eq!(seen.parent_seen_locked, 2, "each holds the parent's write lock while it searches");
    assert_eq!(seen.most, 1, "two writers held the write lock of one parent");
}

#[test]
fn a_reader_passes_an_insertion_that_searches_its_leaf() {
    let (world, keys) = leaves_with_room();
    let world = Arc::new(world);
    // The tree owns its observer; with a strong reference to the tree the two would live for ever.
    let (inner, other) = (Arc::downgrade(&world), keys[1]);
    world.tree.observe_leaf_searches(move |_, parent_locked| {
        assert!(!parent_locked);
        let inner = inner.upgrade().expect("it is observed");
        // Another leaf under the same parent can be read without waiting.
        assert!(inner.tree.get(&other, Wait::No, |_| ()).expect("nothing to wait for").is_none());
    });
    world.tree.insert(&world.host, &keys[0], &[2; 20]).expect("room");
}

#[test]
fn lock_times_are_taken_only_when_asked_for() {
    let (world, keys) = leaves_with_room();
    world.tree.insert(&world.host, &keys[0], &[2; 20]).expect("room");
    assert!(world.store.lock_times().iter().all(|times| times.held.count() == 0));
    world.store.set_lock_timing(true);
    world.tree.insert(&world.host, &keys[1], &[2; 20]).expect("room");
    world.store.set_lock_timing(false);
    world.tree.insert(&world.host, &keys[2], &[2; 20]).expect("room");
    let [leaves, parents, ..] = world.store.lock_times();
    assert_eq!(
        (leaves.held.count(), parents.held.count()),
        (1, 0),
        "one insertion locks its leaf for writing, and its parent for reading"
    );
    assert!(leaves.held.max() > 0 && leaves.held.percentile(99) == leaves.held.max());
    assert_eq!(leaves.waited.count(), 0, "nobody waited");
}

#[test]
fn a_wait_for_a_lock_has_its_time() {
    let (world, keys) = leaves_with_room();
    world.store.set_lock_timing(true);
    let leaf = world.tree.cursor(&keys[0], Wait::Yes).expect("reads");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            world.tree.insert(&world.host, &keys[0], &[2; 20]).expect("room");
            creamery_base::gate::waits_of_this_thread()
        });
        // A waiting writer keeps new readers out: once a reader is refused, the writer waits.
        while world.tree.cursor(&keys[0], Wait::No).is_ok() {
            std::thread::yield_now();
        }
        drop(leaf);
        assert_eq!(waits.join().expect("it ends well"), 1);
    });
    let times = world.store.lock_times();
    assert_eq!((times[0].waited.count(), times[1].waited.count()), (1, 0));
}

#[test]
fn an_insertion_passes_a_parent_that_another_thread_reads() {
    let (world, keys) = leaves_with_room();
    let before = world.tree.counters();
    let root = world.tree.root_buffer().read(Wait::Yes).expect("the root");
    let waits = std::thread::scope(|scope| {
        let insertion = scope.spawn(|| {
            world.tree.insert(&world.host, &keys[0], &[2; 20]).expect("room");
            creamery_base::gate::waits_of_this_thread()
        });
        insertion.join().expect("it ends well")
    });
    drop(root);
    assert_eq!((waits, world.tree.counters().restarts), (0, before.restarts));
}

#[test]
fn an_insertion_locks_its_parent_for_writing_where_the_leaf_says_so() {
    let (world, keys) = leaves_with_room();
    let leaf_first = world.tree.root_buffer().read(Wait::Yes).expect("the root").block().key(1);
    let restarts_of = |key: &Key, size: usize| {
        let before = world.tree.counters();
        world.tree.insert(&world.host, key, &vec![3; size]).expect("inserts");
        let after = world.tree.counters();
        (after.restarts - before.restarts, after.leaf_splits - before.leaf_splits)
    };
    assert_eq!(restarts_of(&keys[0], 20), (0, 0), "there is room behind the first key");
    assert_eq!(
        restarts_of(&Key { offset: keys[0].offset + 1, ..keys[0] }, 2000).0,
        1,
        "the leaf lacks the room"
    );
    let first_of_all = Key { offset: 0, ..key(999, 0) };
    assert_eq!(restarts_of(&first_of_all, 20), (1, 0), "the root has the tree's first key, too");
    let last_of_the_first_leaf = Key { offset: leaf_first.offset - 1, ..leaf_first };
    assert_eq!(
        restarts_of(&last_of_the_first_leaf, 20).1,
        0,
        "a key in front of a leaf's first goes behind the leaf before"
    );
}

#[test]
fn a_deletion_does_not_wait_for_a_sibling_to_merge_with() {
    let (world, keys) = leaves_with_room();
    let root = world.tree.root_buffer().read(Wait::Yes).expect("the root");
    let (first, behind) = (root.block().key(0), root.block().key(1));
    drop(root);
    // Only the sibling stays locked: a cursor locks a leaf and nothing above.
    let sibling = world.tree.cursor(&behind, Wait::Yes).expect("reads");
    let numbers = first.offset / 10..behind.offset / 10;
    std::thread::scope(|scope| {
        let deletion = scope.spawn(|| {
            for number in numbers.skip(1) {
                world.tree.remove(&world.host, &key(1000, number * 10)).expect("removes");
            }
            creamery_base::gate::waits_of_this_thread()
        });
        // A waiting writer keeps new readers out.
        let waits = || {
            world.tree.cursor(&keys[1], Wait::No).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        while !deletion.is_finished() && !waits() {
            std::thread::yield_now();
        }
        drop(sibling);
        assert_eq!(deletion.join().expect("it ends well"), 0, "room is not worth a wait");
    });
    let left = world.tree.get(&first, Wait::Yes, |_| ()).expect("reads");
    assert!(left.is_some(), "a thin leaf stays");
}
