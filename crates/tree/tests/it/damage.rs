//! Damaged trees: on the device, or in the cache because two pointers lead to one block. Every
//! call returns an error that names the block; nothing panics or hangs. Once the block is repaired, so
//! is the tree.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Logical, Result, TreeId, Uuid, Wait};
use creamery_format::{BlockMut, BlockRef, HEADER_FLAG_WRITTEN, Key, LEVEL_MAX, node_ptr_max};
use creamery_tree::{BufferStore, CowHost, ExtentBuffer, RootPointer, SeenItem, Tree};

use crate::world::{Host, NODE, World, key};

const ITEMS: u64 = 300;
const DATA: [u8; 100] = [1; 100];

/// Item number n is at 10 n, so that keys between items are free.
fn item(number: u64) -> Key {
    key(1000, number * 10)
}

fn filled() -> World {
    let world = World::new(16 << 20);
    for number in 0..ITEMS {
        world.tree.insert(&world.host, &item(number), &DATA).expect("room");
    }
    world.commit();
    world
}

fn verify(world: &World) {
    world.verify((0..ITEMS).map(|number| (item(number), &DATA[..])));
}

/// The child at `slot` of the root: its first key and its buffer.
fn child(world: &World, slot: usize) -> (Key, Arc<ExtentBuffer>) {
    let root = world.tree.root_buffer().read(Wait::Yes).expect("the root");
    let block = root.block();
    assert!(block.level() >= 1 && slot + 1 < block.count());
    (block.key(slot), cached_as_it_is(world, block.child(slot).0))
}

/// The item at `key` before any change.
fn seen(key: &Key) -> SeenItem {
    SeenItem { key: *key, len: DATA.len() }
}

type Operation = fn(&Tree, &Host, &Key) -> Result<()>;

/// Every operation on the item at a key.
const OPERATIONS: [(&str, Operation); 14] = [
    ("get", |tree, _, key| tree.get(key, Wait::Yes, |_| ()).map(drop)),
    ("cursor", |tree, _, key| tree.cursor(key, Wait::Yes).map(drop)),
    ("cursor_at_or_before", |tree, _, key| tree.cursor_at_or_before(key, Wait::Yes).map(drop)),
    ("insert", |tree, host, key| tree.insert(host, &Key { offset: key.offset + 5, ..*key }, &[2; 5])),
    ("insert_batch", |tree, host, key| {
        tree.insert_batch(host, &[(Key { offset: key.offset + 5, ..*key }, &[2; 5])])
    }),
    ("upsert", |tree, host, key| tree.upsert(host, key, &[3; 200])),
    ("update", |tree, host, key| tree.update(host, key, |data| data.fill(4)).map(drop)),
    ("extend", |tree, host, key| tree.extend(host, key, &[5; 9]).map(drop)),
    ("rekey", |tree, host, key| {
        tree.rekey(host, key, &Key { offset: key.offset + 1, ..*key }, |_| ()).map(drop)
    }),
    ("truncate", |tree, host, key| tree.truncate_item(host, &seen(key), 3).map(drop)),
    ("cut", |tree, host, key| {
        let new = Key { offset: key.offset + 1, ..*key };
        tree.cut_item(host, &seen(key), 3, &new, 3).map(drop)
    }),
    ("cut_front", |tree, host, key| {
        let new = Key { offset: key.offset + 1, ..*key };
        tree.cut_item(host, &seen(key), 0, &new, 3).map(drop)
    }),
    ("remove", |tree, host, key| tree.remove(host, key).map(drop)),
    ("remove_range", |tree, host, key| tree.remove_range(host, key, key, &mut |_, _| Ok(())).map(drop)),
];

fn is_damage(name: &str, error: &Error, at: Logical) {
    let kinds = [ErrorKind::Corrupt, ErrorKind::Unreadable];
    assert!(kinds.contains(&error.kind()), "{name}: {error}");
    assert!(error.to_string().contains(&at.to_string()), "{name}: {error} does not name {at}");
}

/// All operations on `key` fail, with parents unlocked early and without.
fn all_fail(world: &World, key: &Key, at: Logical) {
    for early in [true, false] {
        world.tree.set_early_unlock(early);
        for (name, operation) in OPERATIONS {
            let Err(error) = operation(&world.tree, &world.host, key) else { panic!("{name} went well") };
            is_damage(name, &error, at);
        }
    }
}

/// Caches the block at `at` as it is, whatever the tree expects there: another pointer led to it.
fn cached_as_it_is(world: &World, at: Logical) -> Arc<ExtentBuffer> {
    world.store.get(&world.anything_at(at), Wait::Yes).expect("a block that is whole")
}

/// Spoils a leaf on the device, and checks that operations on it fail: for a tree with an empty cache, or with the spoiled
/// leaf in it. Once the leaf is repaired, so is the tree.
fn spoiled(is_cached: bool, spoil: impl Fn(&mut BlockMut<'_>)) {
    let mut world = filled();
    let (first, buffer) = child(&world, 2);
    let at = buffer.logical();
    drop(buffer);
    let good = world.block_on_device(at);
    let mut bad = good.clone();
    spoil(&mut BlockMut::new(&mut bad));
    world.write_block(at, &bad);
    world.reopen();
    let cached = is_cached.then(|| cached_as_it_is(&world, at));
    let (root, blocks) = (world.tree.root_pointer().expect("the root"), world.tree.blocks());
    all_fail(&world, &Key { offset: first.offset + 20, ..first }, at);
    assert!(world.tree.get(&item(0), Wait::Yes, |_| ()).expect("another leaf").is_some());
    world.write_block(at, &good);
    if cached.is_none() {
        return verify(&world);
    }
    // The tree in memory leads to the block in the cache; the device has the committed block.
    world.reopen_at(root, blocks);
    for number in 0..ITEMS {
        let found = world.tree.get(&item(number), Wait::Yes, <[u8]>::to_vec).expect("a readable tree");
        assert_eq!(found.as_deref(), Some(&DATA[..]), "item {number}");
    }
}

fn spoiled_on_device(spoil: impl Fn(&mut BlockMut<'_>)) {
    spoiled(false, spoil);
}

fn spoiled_in_cache(spoil: impl Fn(&mut BlockMut<'_>)) {
    spoiled(true, spoil);
}

#[test]
fn a_leaf_whose_first_key_disagrees_with_its_parent() {
    for by in [-1, 1] {
        let other = |key: Key| Key { offset: key.offset.checked_add_signed(by).expect("small"), ..key };
        spoiled_on_device(|block| {
            let first = block.as_ref().key(0);
            block.set_item_key(0, &other(first));
        });
        spoiled_in_cache(|block| {
            let first = block.as_ref().key(0);
            block.set_item_key(0, &other(first));
        });
    }
}

#[test]
fn an_empty_leaf_that_is_not_the_root() {
    spoiled_on_device(|block| {
        let count = block.as_ref().count();
        block.remove_items(0, count);
    });
}

#[test]
fn a_generation_that_is_not_the_parents() {
    let later = |block: &mut BlockMut<'_>| {
        let generation = block.as_ref().generation();
        block.set_generation(creamery_base::Generation::new(generation.get() + 1));
    };
    spoiled_on_device(later);
    spoiled_in_cache(later);
}

#[test]
fn a_cached_block_of_another_tree() {
    let theirs = |block: &mut BlockMut<'_>| block.set_owner(TreeId::CSUM);
    spoiled_on_device(theirs);
    spoiled_in_cache(theirs);
}

#[test]
fn a_cached_root_that_is_not_what_its_root_item_says() {
    let world = filled();
    let right = world.tree.root_pointer().expect("the root");
    let open = |id, root| Tree::open(Arc::clone(&world.store), id, root, 1, Generation::new(0)).map(drop);
    open(world.tree.id(), right).expect("the root");
    let later = RootPointer { generation: right.generation.next(), ..right };
    let leaf = RootPointer { level: 0, ..right };
    for (id, root) in [(TreeId::CSUM, right), (world.tree.id(), later), (world.tree.id(), leaf)] {
        is_damage("open", &open(id, root).expect_err("another block"), right.logical);
    }
}

#[test]
fn a_block_that_was_never_written() {
    spoiled_on_device(|block| {
        let flags = block.as_ref().flags() & !HEADER_FLAG_WRITTEN;
        block.set_flags(flags);
    });
}

#[test]
fn a_block_that_claims_to_be_of_the_running_transaction() {
    let world = filled();
    let (_, buffer) = child(&world, 2);
    let (at, running) = (buffer.logical(), world.host.generation());
    let root = world.tree.root_pointer().expect("the root");
    let mut leaf = world.block_on_device(at);
    let mut block = BlockMut::new(&mut leaf);
    block.set_generation(running);
    let flags = block.as_ref().flags() & !HEADER_FLAG_WRITTEN;
    block.set_flags(flags);
    world.write_block(at, &leaf);
    let mut node = world.block_on_device(root.logical);
    BlockMut::new(&mut node).set_child(2, at, running);
    world.write_block(root.logical, &node);
    let store = Arc::new(BufferStore::new(Arc::clone(&world.volume), 1 << 20, Uuid::nil()));
    let open = Tree::open(store, world.tree.id(), root, 1, Generation::new(0)).map(drop);
    let error = open.expect_err("a child is newer than its node");
    is_damage("open", &error, root.logical);
    let text = error.to_string();
    assert!(text.contains("slot=2"), "{text}");
    let want = format!("expected at most {}, found generation {running}", root.generation);
    assert!(text.contains(&want), "{text}");
}

#[test]
fn a_level_that_lies_on_the_device() {
    spoiled_on_device(|block| block.set_level(1));
}

/// Changes the root's second pointer to `other`, in the cache.
fn pointed_elsewhere(world: &World, other: &Arc<ExtentBuffer>) -> Vec<u8> {
    let generation = Arc::clone(other).read(Wait::Yes).expect("waits").block().generation();
    let mut root = world.tree.root_buffer().write();
    let good = root.bytes_mut().to_vec();
    root.block_mut().set_child(1, other.logical(), generation);
    good
}

#[test]
fn a_pointer_to_a_cached_block_of_another_level() {
    let world = World::new(16 << 20);
    for number in 0..1200 {
        world.tree.insert(&world.host, &item(number), &[1; 900]).expect("room");
    }
    let (second, node) = child(&world, 1);
    assert_eq!(node.level(), 1, "the root is at level 2");
    let (at, _) = Arc::clone(&node).read(Wait::Yes).expect("waits").block().child(1);
    let leaf = cached_as_it_is(&world, at);
    let good = pointed_elsewhere(&world, &leaf);
    all_fail(&world, &second, at);
    world.tree.root_buffer().write().bytes_mut().copy_from_slice(&good);
    world.verify((0..1200).map(|number| (item(number), &[1_u8; 900][..])));
}

#[test]
fn a_node_that_points_to_one_leaf_twice() {
    let world = filled();
    let (first, leaf) = child(&world, 0);
    // The transaction owns the root and the leaf, so that the pointers stay the same.
    let touched = world.tree.update(&world.host, &first, |data| data.fill(1)).expect("room");
    assert!(touched.is_some());
    drop(leaf);
    let (_, leaf) = child(&world, 0);
    let (second, _) = child(&world, 1);
    let good = pointed_elsewhere(&world, &leaf);
    all_fail(&world, &second, leaf.logical());
    // The first pointer is right, and its leaf works until it needs its neighbour, which is the leaf itself.
    assert!(world.tree.get(&first, Wait::Yes, |_| ()).expect("reads").is_some());
    let mut removed = 0;
    let error = loop {
        match world.tree.remove(&world.host, &item(removed)) {
            Ok(found) => assert!(found),
            Err(error) => break error,
        }
        removed += 1;
    };
    is_damage("remove", &error, leaf.logical());
    let full = (0..100).map(|number| key(1000, removed * 10 + 1 + number % 8 + number / 8 * 10));
    let error = full.map(|key| world.tree.insert(&world.host, &key, &DATA)).find_map(Result::err);
    is_damage("insert", &error.expect("a leaf takes 30 items"), leaf.logical());
    world.tree.root_buffer().write().bytes_mut()[..].copy_from_slice(&good);
}

#[test]
fn a_damaged_neighbour_is_not_merged_with() {
    let world = filled();
    let (first, (second, _)) = (child(&world, 0).0, child(&world, 1));
    // The transaction owns the leaf, so that the test can spoil it in place.
    assert!(world.tree.update(&world.host, &second, |data| data.fill(1)).expect("room").is_some());
    let (_, neighbour) = child(&world, 1);
    let mut guard = Arc::clone(&neighbour).write();
    let good = guard.bytes_mut().to_vec();
    guard.block_mut().set_item_key(0, &Key { offset: second.offset - 1, ..second });
    drop(guard);
    let mut left: Vec<u64> = (0..ITEMS).collect();
    let error = loop {
        let number = left[0];
        assert!(item(number) >= first && item(number) < second, "the leaf is thin before that");
        match world.tree.remove(&world.host, &item(number)) {
            Ok(found) => assert!(found),
            Err(error) => break error,
        }
        left.remove(0);
    };
    is_damage("remove", &error, neighbour.logical());
    Arc::clone(&neighbour).write().bytes_mut().copy_from_slice(&good);
    // The item whose removal failed is there.
    world.verify(left.iter().map(|number| (item(*number), &DATA[..])));
}

/// A block with wrong arithmetic fails the check when it is read; this one was spoiled in memory.
#[test]
fn a_leaf_that_no_split_gives_room() {
    let world = filled();
    let (first, _) = child(&world, 0);
    assert!(world.tree.update(&world.host, &first, |data| data.fill(1)).expect("room").is_some());
    let (_, leaf) = child(&world, 0);
    let mut guard = leaf.write();
    let mut block = guard.block_mut();
    let count = block.as_ref().count();
    block.remove_items(3, count - 3);
    let gap = block.as_ref().free_space() - 10;
    for slot in 0..3 {
        let at = creamery_format::HEADER_LEN + slot * creamery_format::ITEM_LEN + 17;
        let offset = u32::try_from(block.as_ref().item_offset(slot) - gap).expect("within a leaf");
        block.bytes_mut()[at..at + 4].copy_from_slice(&offset.to_le_bytes());
    }
    assert_eq!(block.as_ref().free_space(), 10);
    drop(guard);
    let error = world.tree.extend(&world.host, &first, &[1; 1000]).expect_err("there is no room");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("no split of it makes room"), "{error}");
    assert!(!world.store.is_poisoned());
}

/// Puts a chain of nodes of one pointer each above the tree, up to a root at the highest level that is full.
fn with_full_root_at_highest_level(world: &mut World) -> RootPointer {
    let RootPointer { mut logical, generation, level } = world.tree.root_pointer().expect("the root");
    let old = world.block_on_device(logical);
    let first = BlockRef::new(&old).key(0);
    let spare = Logical::new(1 << 30);
    for above in level + 1..=LEVEL_MAX {
        let at = spare + u64::from(above) * u64::from(NODE);
        let mut bytes = old.clone();
        let count = BlockRef::new(&old).count();
        let mut block = BlockMut::new(&mut bytes);
        block.remove_ptrs(0, count);
        block.set_logical(at);
        block.set_level(above);
        block.insert_ptr(0, &first, logical, generation);
        // No search comes here, so the pointers may be anything.
        let full = if above == LEVEL_MAX { node_ptr_max(NODE as usize) } else { 1 };
        for slot in 1..full as u64 {
            let nowhere = spare + (100 + slot) * u64::from(NODE);
            block.insert_ptr(slot as usize, &key(2000, slot), nowhere, generation);
        }
        world.write_block(at, &bytes);
        world.host.adopt(at);
        logical = at;
    }
    RootPointer { logical, generation, level: LEVEL_MAX }
}

#[test]
fn a_full_root_at_the_highest_level() {
    let mut world = filled();
    let root = with_full_root_at_highest_level(&mut world);
    let open = Tree::open(Arc::clone(&world.store), TreeId::FS, root, 0, Generation::new(0));
    let tree = open.expect("the root is as its item says");
    let found = tree.get(&item(7), Wait::Yes, <[u8]>::len).expect("the way is whole");
    assert_eq!(found, Some(DATA.len()));
    let between = Key { offset: 75, ..item(7) };
    let error = tree.insert(&world.host, &between, &[2; 5]).expect_err("no level is left");
    // The root was copied before the split: the error names the copy's address.
    let now = tree.root_pointer().expect("the root").logical;
    is_damage("insert", &error, now);
    assert!(error.to_string().contains("level 7"), "{error}");
    assert_eq!(tree.get(&between, Wait::Yes, |_| ()).expect("the way is whole"), None);
}

/// A leaf whose last key lies behind all of the next leaf. Each block alone is in order, and so is each first key.
#[test]
fn a_leaf_that_reaches_into_the_next_one_makes_nobody_panic() {
    let mut world = World::new(16 << 20);
    for number in 0..ITEMS {
        world.tree.insert(&world.host, &item(number), &DATA).expect("room");
    }
    let (first, _) = child(&world, 1);
    for number in 5..13 {
        let key = Key { offset: first.offset + number * 10, ..first };
        assert!(world.tree.remove(&world.host, &key).expect("removes"));
    }
    world.commit();
    let (left, buffer) = child(&world, 1);
    let (right, _) = child(&world, 2);
    let at = buffer.logical();
    drop(buffer);
    let mut bad = world.block_on_device(at);
    let mut block = BlockMut::new(&mut bad);
    let last = block.as_ref().count() - 1;
    block.set_item_key(last, &item(10 * ITEMS));
    world.write_block(at, &bad);
    world.reopen();
    // Like running a head of delayed references: items are read, one is inserted beside them, and they are replaced.
    let is_there = |key: &Key| world.tree.get(key, Wait::Yes, |_| ()).expect("reads").is_some();
    assert!(is_there(&left), "only a neighbour that is in memory takes items");
    let keys = (0..30).map(|number| Key { offset: right.offset + number * 10, ..right });
    let known: Vec<Key> = keys.filter(is_there).collect();
    let beside = Key { offset: right.offset + 15, ..right };
    world.tree.insert(&world.host, &beside, &DATA).expect("room");
    let lost: Vec<&Key> = known.iter().filter(|key| !is_there(key)).collect();
    assert!(!lost.is_empty(), "the insertion pushed none behind the large key");
    for key in lost {
        let error = world.tree.replace(&world.host, key, DATA.len(), &DATA).expect_err("it is lost");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}
