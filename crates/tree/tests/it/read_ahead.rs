//! Walks through a tree with an empty cache, with readahead and without: they find the same items, and use nearly all
//! blocks that were read ahead.

use creamery_base::{ErrorKind, ObjectId, Wait};
use creamery_format::Key;
use creamery_tree::{ReadAhead, StoreCounters, Walk};

use crate::world::{World, key};

const OBJECT: u64 = 1000;
const ITEMS: u64 = 2000;
const DATA: [u8; 100] = [1; 100];

/// A tree of more than fifty leaves, none of them cached.
fn cold() -> World {
    let mut world = World::new(16 << 20);
    for number in 0..ITEMS {
        world.tree.insert(&world.host, &key(OBJECT, number), &DATA).expect("room");
    }
    world.commit();
    world.reopen();
    world
}

/// The keys that a walk visits. Takes readahead steps after each item.
fn walk(world: &World, walk: Walk) -> Vec<Key> {
    let mut found = Vec::new();
    let is_back = format!("{walk:?}").contains("Back");
    let mut cursor = if is_back {
        world.tree.cursor_at_or_before(&key(OBJECT, ITEMS), walk)
    } else {
        world.tree.cursor(&key(OBJECT, 0), walk)
    }
    .expect("a readable tree");
    while let Some((key, _)) = cursor.item() {
        found.push(key);
        world.store.read_ahead_step();
        if is_back && !cursor.retreat().expect("a readable tree") {
            break;
        } else if !is_back {
            cursor.advance().expect("a readable tree");
        }
    }
    found
}

fn counted(world: &World, mode: ReadAhead) -> StoreCounters {
    let mut wanted: Vec<Key> = (0..ITEMS).map(|number| key(OBJECT, number)).collect();
    if mode == ReadAhead::Back {
        wanted.reverse();
    }
    assert_eq!(walk(world, Walk::new(Wait::Yes, mode)), wanted, "{mode:?}");
    world.store.counters()
}

#[test]
fn what_is_read_ahead_is_come_to() {
    let without = cold();
    let plain = counted(&without, ReadAhead::Forward);
    assert_eq!(plain.ahead.issued, 0, "nobody takes steps");
    assert!(plain.misses > 50, "{plain:?}");
    for mode in [ReadAhead::Forward, ReadAhead::Back, ReadAhead::ForwardAlways] {
        let world = cold();
        world.store.begin_read_ahead(|| {});
        let counters = counted(&world, mode);
        assert!(10 * counters.ahead.hit >= 8 * counters.ahead.issued, "{mode:?}: {counters:?}");
        assert!(2 * counters.misses < plain.misses, "{mode:?}: {counters:?} instead of {plain:?}");
        assert_eq!(
            counters.misses + counters.ahead.issued,
            plain.misses,
            "{mode:?}: each block is read once"
        );
    }
}

#[test]
fn a_walk_that_waits_for_no_device_has_nothing_read() {
    let world = cold();
    world.store.begin_read_ahead(|| {});
    let walk = Walk::new(Wait::No, ReadAhead::Forward);
    let error = world.tree.cursor(&key(OBJECT, 0), walk).map(drop).expect_err("nothing is cached");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_walk_within_an_object_reads_nothing_of_the_next_one() {
    let mut world = World::new(16 << 20);
    for number in 0..ITEMS {
        world.tree.insert(&world.host, &key(OBJECT + number / 20, number % 20), &DATA).expect("room");
    }
    world.commit();
    world.reopen();
    world.store.begin_read_ahead(|| {});
    let walk = Walk::new(Wait::Yes, ReadAhead::Forward).within(ObjectId::new(OBJECT));
    let mut cursor = world.tree.cursor(&key(OBJECT, 0), walk).expect("a readable tree");
    for _ in 0..20 {
        world.store.read_ahead_step();
        cursor.advance().expect("a readable tree");
    }
    let ahead = world.store.counters().ahead;
    assert!(ahead.issued <= 1, "an object has less than a leaf: {ahead:?}");
}

#[test]
fn a_damaged_leaf_is_told_when_somebody_comes_to_it() {
    let mut world = World::new(16 << 20);
    for number in 0..ITEMS {
        world.tree.insert(&world.host, &key(OBJECT, number), &DATA).expect("room");
    }
    world.commit();
    let root = world.tree.root_buffer().read(Wait::Yes).expect("the root");
    let (bad, first_lost) = (root.block().child(2).0, root.block().key(2));
    drop(root);
    let mut bytes = world.block_on_device(bad);
    creamery_format::BlockMut::new(&mut bytes).set_level(1);
    world.write_block(bad, &bytes);
    world.reopen();
    world.store.begin_read_ahead(|| {});
    let walk = Walk::new(Wait::Yes, ReadAhead::ForwardAlways);
    let mut cursor = world.tree.cursor(&key(OBJECT, 0), walk).expect("the first leaf");
    let mut found = 0;
    let error = loop {
        world.store.read_ahead_step();
        assert!(cursor.item().is_some_and(|(key, _)| key < first_lost));
        found += 1;
        match cursor.advance() {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains(&bad.to_string()), "{error}");
    assert_eq!(found, first_lost.offset, "all before it");
    assert!(world.store.counters().ahead.wasted > 0);
}

#[test]
fn pointers_to_the_end_of_all_addresses_are_no_good() {
    let mut world = World::new(16 << 20);
    for number in 0..ITEMS {
        world.tree.insert(&world.host, &key(OBJECT, number), &DATA).expect("room");
    }
    world.commit();
    let at = world.tree.root_buffer().logical();
    let mut bytes = world.block_on_device(at);
    let generation = creamery_base::Generation::new(7);
    let mut block = creamery_format::BlockMut::new(&mut bytes);
    for slot in [3_u64, 4] {
        let to = creamery_base::Logical::new(u64::MAX - 4095);
        block.set_child(usize::try_from(slot).unwrap(), to, generation);
    }
    world.write_block(at, &bytes);
    world.reopen();
    world.store.begin_read_ahead(|| {});
    let walk = Walk::new(Wait::Yes, ReadAhead::ForwardAlways);
    let _cursor = world.tree.cursor(&key(OBJECT, 0), walk).expect("the first leaf");
    while world.store.has_read_ahead() {
        world.store.read_ahead_step();
    }
}
