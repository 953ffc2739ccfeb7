//! Links between frozen nodes: which readers use them, and how they follow changes of the tree.

use creamery_base::Wait;

use crate::world::{World, key};

const ITEMS: u64 = 5000;

/// A committed tree with nodes below its root, whose items are `key(1000, 1)` and so on, with `data` in each.
fn committed(data: &[u8]) -> World {
    let world = World::new(4 << 20);
    (1..=ITEMS).for_each(|number| {
        world.tree.insert(&world.host, &key(1000, number), data).expect("room");
    });
    world.commit();
    assert_eq!(world.tree.root_buffer().level(), 2);
    world
}

/// Looks an item up. Returns its data, and the number of blocks looked up in the index for it.
fn look_up(world: &World, number: u64) -> (Vec<u8>, u64) {
    let before = world.store.counters().hits;
    let data = world.tree.get(&key(1000, number), Wait::Yes, <[u8]>::to_vec).expect("no damage");
    (data.expect("it is there"), world.store.counters().hits - before)
}

#[test]
fn a_reader_looks_up_the_leaf_alone_where_nothing_changes() {
    let world = committed(&[7; 100]);
    assert_eq!(look_up(&world, 1).1, 2, "the node below the root, and the leaf");
    assert_eq!(look_up(&world, 1).1, 1);
    assert_eq!(look_up(&world, ITEMS).1, 2, "another node");
    assert_eq!(look_up(&world, ITEMS).1, 1);
}

#[test]
fn a_change_is_seen_where_nodes_were_linked() {
    let world = committed(&[7; 100]);
    (1..=ITEMS).for_each(|number| drop(look_up(&world, number)));
    world.tree.upsert(&world.host, &key(1000, 1), &[8; 100]).expect("room");
    assert_eq!(look_up(&world, 1).0, [8; 100]);
    assert!(look_up(&world, 1).1 > 1, "a root that may change has no links");
    world.commit();
    assert_eq!((look_up(&world, 1).0, look_up(&world, 2).0), (vec![8; 100], vec![7; 100]));
    assert_eq!(look_up(&world, 1).1, 1);
}

#[test]
fn links_are_in_the_memory_report() {
    let world = committed(&[7; 100]);
    let before = world.store.memory().clean;
    look_up(&world, 1);
    let children = world.tree.root_buffer().read(Wait::Yes).expect("the root").block().count() as u64;
    let links = world.store.memory().clean - before;
    assert!((8 * children..=16 * children).contains(&links), "{links} for {children} children");
}

#[test]
fn links_keep_a_part_of_the_cache_at_most() {
    // The cache has room for at least 64 blocks, even if 0 are asked for: 16 links.
    let world = World::new(0);
    (1..=8_000).for_each(|number| {
        world.tree.insert(&world.host, &key(1000, number), &[7; 1000]).expect("room");
    });
    world.commit();
    let nodes = world.tree.root_buffer().read(Wait::Yes).expect("the root").block().count();
    assert!(nodes > 16, "{nodes} nodes below the root");
    let twice = |number| (look_up(&world, number), look_up(&world, number).1).1;
    let linked = (1..=8_000).step_by(50).filter(|number| twice(*number) == 1).count();
    let all = (1..=8_000).step_by(50).count();
    assert!(linked > 0 && linked < all, "{linked} of {all} items below links");
}

#[test]
fn a_node_that_is_given_up_gives_its_part_back() {
    // Room for 16 links. Each commit gives the root up, and a new one wants all its links.
    let world = World::new(0);
    (1..=2000).for_each(|number| {
        world.tree.insert(&world.host, &key(1000, number), &[7; 1000]).expect("room");
    });
    for round in 0..10 {
        world.tree.upsert(&world.host, &key(1000, 1), &[round; 1000]).expect("room");
        world.commit();
        (1..=2000).step_by(50).for_each(|number| drop(look_up(&world, number)));
        let linked = (1..=2000).step_by(50).filter(|number| look_up(&world, *number).1 == 1).count();
        assert_eq!(linked, 40, "round {round}");
    }
}
