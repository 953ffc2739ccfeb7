//! Cursors over a commit, while the tree is changed, committed, and its space used again.

use std::collections::BTreeMap;

use creamery_base::{ErrorKind, Generation, Wait};
use creamery_format::{BlockMut, BlockRef, Key};
use creamery_tree::{CommitCursor, CowHost};

use crate::world::{Rng, World, key};

type CursorItems = BTreeMap<Key, Vec<u8>>;

const OBJECT: u64 = 1000;
const NONE: Generation = Generation::new(0);

fn commit(world: &World) {
    world.commit();
    world.tree.switch_commit_root(world.tree.root_pointer().expect("the root"));
}

fn change(world: &World, rng: &mut Rng, items: &mut CursorItems) {
    for _ in 0..rng.below(30) {
        let key = key(OBJECT, rng.below(600));
        if rng.below(3) == 0 {
            assert_eq!(world.tree.remove(&world.host, &key).expect("room"), items.remove(&key).is_some());
        } else {
            let data = rng.bytes(300);
            world.tree.upsert(&world.host, &key, &data).expect("room");
            items.insert(key, data);
        }
    }
}

fn walk(mut cursor: CommitCursor<'_>) -> Vec<u64> {
    let mut found = Vec::new();
    while let Some((key, _)) = cursor.item() {
        found.push(key.offset);
        cursor.advance().expect("readable");
    }
    found
}

#[test]
fn what_is_shown_is_one_commit_until_it_is_renewed() {
    let (mut renewed, mut ended) = (0, 0);
    for seed in 1..30 {
        // The cache is so small that most blocks are read again, and their space is wanted.
        let (mut rng, world, mut items) = (Rng(seed), World::new(32 << 10), CursorItems::new());
        for _ in 0..20 {
            change(&world, &mut rng, &mut items);
        }
        commit(&world);
        let mut committed = items.clone();
        let start = key(OBJECT, rng.below(200));
        let mut cursor = world.tree.commit_cursor(&start, NONE, Wait::Yes).expect("readable");
        let mut shown: Vec<(Key, Vec<u8>)> = committed.clone().range(start..).map(owned).collect();
        shown.reverse();
        loop {
            let here = cursor.item().map(|(key, data)| (key, data.to_vec()));
            assert_eq!(here.as_ref(), shown.last(), "seed {seed}");
            let Some((at, _)) = here else { break };
            if rng.below(10) == 0 {
                change(&world, &mut rng, &mut items);
            }
            if rng.below(20) == 0 {
                commit(&world);
                committed.clone_from(&items);
            }
            if rng.below(30) == 0 {
                let before = cursor.generation();
                renewed += u32::from(cursor.renew().expect("readable"));
                assert!(cursor.generation() >= before);
                shown = committed.range(at..).map(owned).collect();
                shown.reverse();
                continue;
            }
            cursor.advance().expect("readable");
            shown.pop();
        }
        assert!(!cursor.renew().expect("readable") || cursor.item().is_none(), "past the end it stays there");
        ended += 1;
    }
    assert!(renewed > 50 && ended == 29, "{renewed} went over to another commit");
}

fn owned((key, data): (&Key, &Vec<u8>)) -> (Key, Vec<u8>) {
    (*key, data.clone())
}

#[test]
fn a_tree_that_no_commit_has_is_empty() {
    let world = World::new(1 << 20);
    world.tree.insert(&world.host, &key(OBJECT, 1), &[1; 10]).expect("room");
    let mut cursor = world.tree.commit_cursor(&Key::MIN, NONE, Wait::Yes).expect("readable");
    assert!(cursor.item().is_none());
    cursor.advance().expect("nowhere to go");
    commit(&world);
    assert_eq!(walk(world.tree.commit_cursor(&Key::MIN, NONE, Wait::Yes).expect("readable")), [1]);
}

fn filled() -> World {
    let world = World::new(1 << 20);
    for number in 0..9000 {
        world.tree.insert(&world.host, &key(OBJECT, number * 10), &[1; 100]).expect("room");
    }
    commit(&world);
    world
}

#[test]
fn blocks_that_are_old_are_not_read() {
    let mut world = filled();
    for number in [700, 2100] {
        let updated = world.tree.update(&world.host, &key(OBJECT, number * 10), |data| data.fill(2));
        assert!(updated.expect("room").is_some());
    }
    let since = world.host.generation();
    commit(&world);
    world.reopen();
    let levels = u64::from(world.tree.root_pointer().expect("the root").level) + 1;
    let before = world.store.counters().misses;
    let found = walk(world.tree.commit_cursor(&Key::MIN, since, Wait::Yes).expect("readable"));
    let read = world.store.counters().misses - before;
    assert!(levels >= 3 && read <= 2 * (levels - 1), "{read} blocks of {levels} levels were read");
    assert!(found.len() < 100 && [7000, 21_000].iter().all(|new| found.contains(new)), "{found:?}");
    let all = walk(world.tree.commit_cursor(&Key::MIN, NONE, Wait::Yes).expect("readable"));
    assert_eq!(all, (0..9000).map(|number| number * 10).collect::<Vec<_>>());
    let none = world.tree.commit_cursor(&Key::MIN, since.next(), Wait::Yes).expect("readable");
    assert!(walk(none).is_empty());
}

#[test]
fn a_node_that_leads_back_is_damage() {
    let mut world = filled();
    // A leaf whose last key lies behind the first key of the next leaf.
    let root = world.block_on_device(world.tree.root_pointer().expect("the root").logical);
    let node = world.block_on_device(BlockRef::new(&root).child(0).0);
    let ((at, _), next) = (BlockRef::new(&node).child(1), BlockRef::new(&node).key(2));
    let mut leaf = world.block_on_device(at);
    let last = BlockRef::new(&leaf).count() - 1;
    BlockMut::new(&mut leaf).set_item_key(last, &Key { offset: next.offset + 1, ..next });
    world.write_block(at, &leaf);
    world.reopen();
    let mut cursor = world.tree.commit_cursor(&Key::MIN, NONE, Wait::Yes).expect("readable");
    let error = loop {
        match cursor.advance() {
            Ok(()) => assert!(cursor.item().is_some(), "it came to the end"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("comes behind"), "{error}");
    assert!(cursor.item().is_none());
}
