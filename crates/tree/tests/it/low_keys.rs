//! The keys by which nodes find their children: removals leave them, later changes adjust them, and a sealed block has its children's first keys.

use creamery_base::Wait;
use creamery_format::Key;

use crate::world::{World, key};

const DATA: [u8; 100] = [7; 100];

/// A root with leaves below it, with keys `key(1000, 10)`, `key(1000, 20)` and so on. The running transaction owns all blocks.
fn filled() -> World {
    let world = World::new(1 << 20);
    (1..=200).for_each(|number| insert(&world, number * 10));
    world
}

fn insert(world: &World, offset: u64) {
    world.tree.insert(&world.host, &key(1000, offset), &DATA).expect("room");
}

fn remove(world: &World, offset: u64) {
    assert!(world.tree.remove(&world.host, &key(1000, offset)).expect("no damage"), "{offset} was there");
}

/// The offsets by which the root finds its leaves.
fn low_keys(world: &World) -> Vec<u64> {
    let root = world.tree.root_buffer().read(Wait::Yes).expect("the root");
    assert_eq!(root.block().level(), 1);
    (0..root.block().count()).map(|slot| root.block().key(slot).offset).collect()
}

/// All offsets in order.
fn items(world: &World) -> Vec<u64> {
    let mut cursor = world.tree.cursor(&Key::MIN, Wait::Yes).expect("no damage");
    let mut offsets = Vec::new();
    while let Some((key, _)) = cursor.item() {
        offsets.push(key.offset);
        cursor.advance().expect("no damage");
    }
    drop(cursor);
    world.verify(offsets.iter().map(|offset| (key(1000, *offset), &DATA[..])));
    offsets
}

fn at_or_before(world: &World, offset: u64) -> u64 {
    let cursor = world.tree.cursor_at_or_before(&key(1000, offset), Wait::Yes).expect("no damage");
    cursor.item().expect("an item").0.offset
}

/// A world whose second leaf has lost its first item. Returns the second leaf's low key.
fn with_a_gap() -> (World, u64) {
    let world = filled();
    let second = low_keys(&world)[1];
    remove(&world, second);
    assert_eq!(low_keys(&world)[1], second, "a removal leaves the parent as it is");
    (world, second)
}

#[test]
fn a_sealed_block_has_the_first_keys_of_its_children() {
    let (world, second) = with_a_gap();
    world.commit();
    assert_eq!(low_keys(&world)[1], second + 10);
    items(&world);
}

#[test]
fn a_node_that_lost_its_first_children_is_found_by_its_first_key_when_it_is_sealed() {
    let world = World::new(4 << 20);
    (1..=5000).for_each(|number| insert(&world, number * 10));
    assert!(world.tree.root_buffer().level() >= 2);
    (1..=3000).for_each(|number| remove(&world, number * 10));
    assert_eq!(items(&world).len(), 2000);
    world.commit();
    assert_eq!(items(&world).first(), Some(&30_010));
}

#[test]
fn an_item_below_a_leafs_first_one_goes_there_without_a_change_of_the_parent() {
    let (world, second) = with_a_gap();
    let restarts = world.tree.counters().restarts;
    insert(&world, second + 5);
    assert_eq!((low_keys(&world)[1], world.tree.counters().restarts), (second, restarts));
    assert!(items(&world).contains(&(second + 5)));
}

#[test]
fn the_item_before_a_gap_is_in_the_leaf_before() {
    let (world, second) = with_a_gap();
    assert_eq!(at_or_before(&world, second + 5), second - 10);
    let mut cursor = world.tree.cursor(&key(1000, second), Wait::Yes).expect("no damage");
    assert_eq!(cursor.item().expect("an item").0.offset, second + 10);
    assert!(cursor.retreat().expect("no damage"));
    assert_eq!(cursor.item().expect("an item").0.offset, second - 10);
    drop(cursor);
    remove(&world, 10);
    let mut first = world.tree.cursor_at_or_before(&key(1000, 15), Wait::Yes).expect("no damage");
    assert_eq!(first.item().expect("an item").0.offset, 20, "there is none before");
    assert!(!first.retreat().expect("no damage"));
}

#[test]
fn an_item_may_get_a_key_that_belonged_to_the_next_leaf() {
    let (world, second) = with_a_gap();
    let (last, new) = (key(1000, second - 10), key(1000, second + 5));
    assert!(world.tree.rekey(&world.host, &last, &new, |_| ()).expect("no damage"));
    assert_eq!(low_keys(&world)[1], second + 10, "the next leaf begins where its first item is");
    assert!(items(&world).contains(&(second + 5)));
}

#[test]
fn an_item_does_not_pass_the_first_one_of_the_next_leaf() {
    let (world, second) = with_a_gap();
    let (last, new) = (key(1000, second - 10), key(1000, second + 15));
    let error = world.tree.rekey(&world.host, &last, &new, |_| ()).expect_err("it passes one");
    assert!(error.kind().is_damage(), "{error}");
    assert!(items(&world).contains(&(second - 10)), "and nothing is changed");
}

#[test]
fn a_batch_goes_into_both_leaves_of_a_gap() {
    let (world, second) = with_a_gap();
    remove(&world, second - 10);
    let batch: Vec<(Key, &[u8])> =
        [second - 5, second - 3, second + 2, second + 4].map(|offset| (key(1000, offset), &DATA[..])).into();
    world.tree.insert_batch(&world.host, &batch).expect("room");
    let there = items(&world);
    assert!(batch.iter().all(|(key, _)| there.contains(&key.offset)), "{there:?}");
}

/// If leaves overlap on disk, changes may leave a leaf that begins before the key by which its parent finds it, or behind the next one.
#[test]
fn leaves_that_overlap_are_no_commit() {
    for first in [-1, 2000] {
        let (world, second) = with_a_gap();
        spoil(&world, second.checked_add_signed(first).expect("a key"));
        let error = world.store.take_dirty().err().expect("LOW-KEY-1");
        assert!(error.kind().is_damage() && error.to_string().contains("LOW-KEY-1"), "{error}");
    }
}

/// Gives the first item of the second leaf another key.
fn spoil(world: &World, first: u64) {
    let child = {
        let root = world.tree.root_buffer().read(Wait::Yes).expect("the root");
        root.block().child(1).0
    };
    let buffer = world.store.get(&world.anything_at(child), Wait::Yes).expect("it is cached");
    buffer.write().block_mut().set_item_key(0, &key(1000, first));
}
