//! When an insertion goes straight to the leaf of the one before, and when it must not.

use creamery_base::{ErrorKind, Wait};
use creamery_format::Key;
use creamery_tree::Tree;

use crate::world::{World, key};

const DATA: [u8; 100] = [1; 100];

/// Ascending keys with gaps, in a tree with two levels of which the running transaction owns every block.
fn world() -> World {
    let world = World::new(1 << 20);
    (0..200).for_each(|number| insert(&world, &key(1000, number * 10)).expect("room"));
    assert_eq!(world.tree.root_buffer().level(), 1);
    world
}

fn insert(world: &World, key: &Key) -> creamery_base::Result<()> {
    world.tree.insert_batch(&world.host, &[(*key, &DATA)])
}

fn by_finger(tree: &Tree) -> u64 {
    tree.counters().leaf_steps.finger
}

/// Inserts `key` and returns whether a finger led to its leaf.
fn goes_straight(world: &World, key: &Key) -> bool {
    let before = by_finger(&world.tree);
    insert(world, key).expect("room");
    assert!(world.tree.get(key, Wait::Yes, |data| data == DATA).expect("no damage").expect("it is there"));
    by_finger(&world.tree) > before
}

/// First keys of the leaves.
fn firsts(world: &World) -> Vec<Key> {
    let root = world.tree.root_buffer().read(Wait::Yes).expect("the root");
    (0..root.block().count()).map(|slot| root.block().key(slot)).collect()
}

/// Removes every second item, so that each leaf has room.
fn thin_out(world: &World) {
    for number in (0..200).filter(|number| number % 2 == 1) {
        assert!(world.tree.remove(&world.host, &key(1000, number * 10)).expect("no damage"));
    }
    world.store.settle_low_keys().expect("no damage");
}

/// Verifies that every item is where its parents look for it.
fn verify(world: &World) {
    let mut items: Vec<(Key, Vec<u8>)> = Vec::new();
    let mut cursor = world.tree.cursor(&Key::MIN, Wait::Yes).expect("no damage");
    while let Some((key, data)) = cursor.item() {
        items.push((key, data.to_vec()));
        cursor.advance().expect("no damage");
    }
    drop(cursor);
    world.verify(items.iter().map(|(key, data)| (*key, &data[..])));
}

#[test]
fn ascending_keys_go_straight_to_their_leaf() {
    let world = world();
    let counters = world.tree.counters();
    assert!(counters.leaf_steps.finger > 150, "{counters:?}");
    assert_eq!(counters.leaf_steps.sum(), counters.insertions);
}

#[test]
fn they_come_from_the_root_when_switched_off() {
    let world = World::new(1 << 20);
    world.tree.set_fingers(false);
    (0..200).for_each(|number| insert(&world, &key(1000, number)).expect("room"));
    assert_eq!(by_finger(&world.tree), 0);
}

#[test]
fn a_key_that_is_there_is_found_there() {
    let world = world();
    let before = by_finger(&world.tree);
    let error = insert(&world, &key(1000, 1990)).expect_err("it is there");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(by_finger(&world.tree), before + 1);
}

#[test]
fn two_places_are_kept_and_a_third_takes_the_older_ones() {
    let world = world();
    thin_out(&world);
    let firsts = firsts(&world);
    let inside = |leaf: usize, more: u64| key(1000, firsts[leaf].offset + more);
    assert!(!goes_straight(&world, &inside(0, 1)));
    assert!(!goes_straight(&world, &inside(2, 1)));
    assert!(goes_straight(&world, &inside(0, 2)));
    assert!(goes_straight(&world, &inside(2, 2)));
    assert!(!goes_straight(&world, &inside(1, 1)));
    assert!(!goes_straight(&world, &inside(0, 3)));
}

#[test]
fn a_key_of_the_next_leaf_or_below_the_first_comes_from_the_root() {
    let world = world();
    thin_out(&world);
    let firsts = firsts(&world);
    assert!(!goes_straight(&world, &key(1000, firsts[1].offset + 1)));
    assert!(!goes_straight(&world, &key(1000, firsts[2].offset + 1)), "the next leaf's");
    assert!(!goes_straight(&world, &key(1000, firsts[1].offset - 1)), "the leaf before");
    verify(&world);
}

#[test]
fn a_written_leaf_is_copied_first() {
    let world = world();
    world.commit();
    let written: Vec<_> = blocks(&world);
    assert!(!goes_straight(&world, &key(1000, 2001)), "the transaction does not own the leaf yet");
    for (at, bytes) in written {
        assert_eq!(world.block_on_device(at), bytes, "a written block was changed");
    }
    assert!(goes_straight(&world, &key(1000, 2002)));
}

/// The leaves and their bytes.
fn blocks(world: &World) -> Vec<(creamery_base::Logical, Vec<u8>)> {
    let root = world.tree.root_buffer().read(Wait::Yes).expect("the root");
    let children = (0..root.block().count()).map(|slot| root.block().child(slot).0);
    children.map(|at| (at, world.block_on_device(at))).collect()
}

#[test]
fn a_smaller_key_of_the_next_leafs_first_item_ends_a_leaf_earlier() {
    let world = world();
    thin_out(&world);
    let second = firsts(&world)[1];
    assert!(!goes_straight(&world, &key(1000, second.offset - 5)), "leaves a finger on the first leaf");
    let smaller = key(1000, second.offset - 3);
    assert!(world.tree.rekey(&world.host, &second, &smaller, |_| ()).expect("no damage"));
    assert!(!goes_straight(&world, &key(1000, second.offset - 1)), "behind the new first key");
    verify(&world);
}

/// Removes item `number` of `world`, and returns whether a finger led to its leaf.
fn goes_straight_away(world: &World, number: u64) -> bool {
    let before = world.tree.counters().removals_by_finger;
    let key = key(1000, number * 10);
    assert!(world.tree.remove_beside(&world.host, &key).expect("no damage"), "{key} was there");
    assert_eq!(world.tree.get(&key, Wait::Yes, |_| ()).expect("no damage"), None);
    world.tree.counters().removals_by_finger > before
}

#[test]
fn removals_side_by_side_go_straight_to_their_leaf() {
    let world = world();
    let straight: Vec<bool> = (0..200).map(|number| goes_straight_away(&world, number)).collect();
    assert!(!straight[0], "the first one comes from the root");
    let by_finger = straight.iter().filter(|straight| **straight).count();
    assert!(by_finger > 150, "{by_finger} of 200");
    verify(&world);
}

#[test]
fn a_removal_in_what_was_committed_comes_from_the_root() {
    let world = world();
    assert!(!goes_straight_away(&world, 20));
    assert!(goes_straight_away(&world, 21));
    world.commit();
    assert!(!goes_straight_away(&world, 22), "the leaf is to be copied first");
    assert!(goes_straight_away(&world, 23));
    verify(&world);
}

#[test]
fn a_removal_of_what_is_not_there_needs_no_way_down() {
    let world = world();
    goes_straight_away(&world, 20);
    let before = world.tree.counters();
    assert!(!world.tree.remove_beside(&world.host, &key(1000, 215)).expect("no damage"));
    let now = world.tree.counters();
    assert_eq!((now.searches, now.removals_by_finger), (before.searches + 1, before.removals_by_finger + 1));
    verify(&world);
}
