//! Random changes of a tree against a map in memory. After every batch each block is verified and each item is
//! compared. `CREAMERY_TREE_OPERATIONS` sets how many operations a run has.
//!
//! Item number n has the key (n / 8, n % 8 * 16 + low), where `low` is below 16 and changes when the item's key is
//! changed. So an item keeps its place among the others, and threads can own numbers whose items share leaves.

use std::collections::BTreeMap;

use creamery_base::ErrorKind;
use creamery_format::{ITEM_LEN, Key};
use creamery_tree::SeenItem;

use crate::world::{Rng, World, key};

const BATCH: u64 = 1000;
/// Data bytes of the largest item.
const LARGEST: usize = 4096 - creamery_format::HEADER_LEN - ITEM_LEN;

/// The items by number: the key's low part and the data.
type ModelItems = BTreeMap<u64, (u64, Vec<u8>)>;

fn key_of(number: u64, low: u64) -> Key {
    key(1000 + number / 8, number % 8 * 16 + low)
}

fn operations(usual: u64) -> u64 {
    std::env::var("CREAMERY_TREE_OPERATIONS").map_or(usual, |set| set.parse().expect("a number"))
}

/// The sort of items in a run.
#[derive(Clone, Copy)]
struct Shape {
    numbers: u64,
    sizes: usize,
    /// Only items whose number has this remainder by this divisor.
    part: (u64, u64),
}

/// One thread's changes and the items that it expects.
struct Changes {
    rng: Rng,
    shape: Shape,
    items: ModelItems,
    /// Where the last batch began.
    last_batch: u64,
}

impl Changes {
    fn new(seed: u64, shape: Shape) -> Self {
        Self { rng: Rng(seed), shape, items: ModelItems::new(), last_batch: shape.part.0 }
    }

    fn number(&mut self) -> u64 {
        let (remainder, divisor) = self.shape.part;
        self.rng.below(self.shape.numbers / divisor) * divisor + remainder
    }

    /// Mostly a few bytes, sometimes a leaf's fill.
    fn data(&mut self) -> Vec<u8> {
        match self.rng.below(400) {
            0 => vec![9; LARGEST],
            1 => vec![8; LARGEST - 1],
            2 => vec![7; LARGEST / 2],
            _ => self.rng.bytes(self.shape.sizes),
        }
    }

    /// The key that an item has, or would get.
    fn key(&mut self, number: u64) -> Key {
        let low = self.rng.below(16);
        key_of(number, self.items.get(&number).map_or(low, |item| item.0))
    }

    fn low(key: &Key) -> u64 {
        key.offset % 16
    }

    fn step(&mut self, world: &World) {
        let number = self.number();
        let key = self.key(number);
        match self.rng.below(20) {
            0..6 => self.insert(world, number, &key),
            6..8 => self.insert_below_all(world),
            8 => (0..self.rng.below(8)).for_each(|_| self.insert_batch(world, number)),
            9 | 10 => self.upsert(world, number, &key),
            11 | 12 => self.extend(world, number, &key),
            13 => self.rekey(world, number, &key),
            14 if self.rng.below(2) == 0 => self.truncate(world, number, &key),
            14 => self.cut(world, number, &key),
            15 => self.update(world, number, &key),
            16 if self.rng.below(2) == 0 => self.remove_first(world),
            17 if self.shape.part.1 == 1 && self.rng.below(60) == 0 => self.remove_range(world, number),
            _ => self.remove(world, number, &key),
        }
    }

    fn insert(&mut self, world: &World, number: u64, key: &Key) {
        let data = self.data();
        match world.tree.insert(&world.host, key, &data) {
            Ok(()) => assert!(self.items.insert(number, (Self::low(key), data)).is_none()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
                assert!(self.items.contains_key(&number));
            }
        }
    }

    /// Inserts an item with a smaller number than all others, if there is one: the tree's new first key.
    fn insert_below_all(&mut self, world: &World) {
        let first = self.items.first_key_value().map(|(number, _)| *number);
        if let Some(number) = first.and_then(|first| first.checked_sub(self.shape.part.1)) {
            let key = self.key(number);
            self.insert(world, number, &key);
        }
    }

    /// Removes a few items from the front, so that there is room below the first one again.
    fn remove_first(&mut self, world: &World) {
        for _ in 0..self.rng.below(12) {
            let Some((&number, &(low, _))) = self.items.first_key_value() else { return };
            self.remove(world, number, &key_of(number, low));
        }
    }

    /// Anywhere, or behind the last batch.
    fn insert_batch(&mut self, world: &World, number: u64) {
        let divisor = self.shape.part.1;
        let number = if self.rng.below(3) > 0 { self.last_batch + divisor } else { number };
        self.last_batch = number;
        // With several threads, another one's items lie between ours.
        let most = if divisor > 1 { 1 } else { 5 };
        let free = (number..number + most).take_while(|number| !self.items.contains_key(number));
        let numbers: Vec<u64> = free.take_while(|number| *number < self.shape.numbers).collect();
        let new: Vec<(u64, Key, Vec<u8>)> =
            numbers.into_iter().map(|number| (number, self.key(number), self.data())).collect();
        let batch: Vec<(Key, &[u8])> = new.iter().map(|(_, key, data)| (*key, &data[..])).collect();
        world.tree.insert_batch(&world.host, &batch).expect("nothing is there");
        for (number, key, data) in new {
            self.items.insert(number, (Self::low(&key), data));
        }
    }

    fn upsert(&mut self, world: &World, number: u64, key: &Key) {
        let data = self.data();
        world.tree.upsert(&world.host, key, &data).expect("room");
        self.items.insert(number, (Self::low(key), data));
    }

    /// Extends an item, as a second name with the same hash does.
    fn extend(&mut self, world: &World, number: u64, key: &Key) {
        let more = self.data();
        let result = world.tree.extend(&world.host, key, &more);
        let Some((_, known)) = self.items.get_mut(&number) else {
            assert!(!result.expect("nothing to grow"));
            return;
        };
        if known.len() + more.len() > LARGEST {
            assert_eq!(result.expect_err("too large").kind(), ErrorKind::Range);
            return;
        }
        assert!(result.expect("room"));
        known.extend(&more);
    }

    fn rekey(&mut self, world: &World, number: u64, key: &Key) {
        let low = self.rng.below(16);
        let new = key_of(number, low);
        let found = world.tree.rekey(&world.host, key, &new, |data| data.fill(5)).expect("its place");
        assert_eq!(found, self.items.contains_key(&number));
        if let Some(item) = self.items.get_mut(&number) {
            item.0 = low;
            item.1.fill(5);
        }
    }

    fn truncate(&mut self, world: &World, number: u64, key: &Key) {
        let Some((_, known)) = self.items.get_mut(&number) else { return };
        let len = known.len() / 2;
        let seen = |len| SeenItem { key: *key, len };
        let longer = seen(known.len() + 1);
        assert!(!world.tree.truncate_item(&world.host, &longer, len).expect("room"), "it was never so long");
        assert!(world.tree.truncate_item(&world.host, &seen(known.len()), len).expect("room"));
        known.truncate(len);
    }

    /// Cuts an item: its back goes to the next number, or replaces the item.
    fn cut(&mut self, world: &World, number: u64, key: &Key) {
        let (low, next, alone) = (self.rng.below(16), number + 1, self.shape.part.1 == 1);
        let behind = alone && next < self.shape.numbers && !self.items.contains_key(&next);
        let Some((_, known)) = self.items.get_mut(&number).filter(|(_, known)| !known.is_empty()) else {
            return;
        };
        let back = known.len() - self.rng.below(known.len() as u64) as usize;
        let front = if behind { self.rng.below((known.len() - back + 1) as u64) as usize } else { 0 };
        let new = key_of(if front == 0 { number } else { next }, low);
        let seen = SeenItem { key: *key, len: known.len() };
        let done = world.tree.cut_item(&world.host, &seen, front, &new, back);
        if front > 0 && front + back + ITEM_LEN > LARGEST {
            assert_eq!(done.expect_err("too large for one leaf").kind(), ErrorKind::Range);
            return;
        }
        assert!(done.expect("room"));
        let tail = known.split_off(known.len() - back);
        if front == 0 {
            self.items.insert(number, (low, tail));
        } else {
            known.truncate(front);
            self.items.insert(next, (low, tail));
        }
    }

    fn update(&mut self, world: &World, number: u64, key: &Key) {
        let seen = world.tree.update(&world.host, key, |data| {
            let old = data.to_vec();
            data.fill(6);
            old
        });
        let known = self.items.get_mut(&number).map(|(_, data)| {
            let old = data.clone();
            data.fill(6);
            old
        });
        assert_eq!(seen.expect("room"), known);
    }

    fn remove(&mut self, world: &World, number: u64, key: &Key) {
        let removed = world.tree.remove(&world.host, key).expect("room");
        assert_eq!(removed, self.items.remove(&number).is_some());
    }

    fn remove_range(&mut self, world: &World, number: u64) {
        let last = number + self.rng.below(self.shape.numbers / 8);
        let mut seen = Vec::new();
        let (first_key, last_key) = (key_of(number, 0), key_of(last, 15));
        let mut each = |key: &Key, data: &[u8]| {
            seen.push((*key, data.to_vec()));
            Ok(())
        };
        let removed = world.tree.remove_range(&world.host, &first_key, &last_key, &mut each);
        assert_eq!(removed.expect("room"), seen.len() as u64);
        let mut gone = self.items.split_off(&number);
        self.items.append(&mut gone.split_off(&(last + 1)));
        let gone: Vec<_> =
            gone.into_iter().map(|(number, (low, data))| (key_of(number, low), data)).collect();
        assert_eq!(seen, gone);
    }
}

/// Verifies the tree against the items that the threads expect together.
fn verify<'a>(world: &World, all: impl IntoIterator<Item = &'a Changes>) {
    let items: BTreeMap<Key, &[u8]> = all
        .into_iter()
        .flat_map(|changes| &changes.items)
        .map(|(number, (low, data))| (key_of(*number, *low), &data[..]))
        .collect();
    world.verify(items);
}

/// Runs `operations` changes by as many threads as there are seeds.
fn run(seeds: &[u64], numbers: u64, sizes: usize, operations: u64, early_unlock: bool) -> World {
    let world = World::new(256 << 10);
    world.tree.set_early_unlock(early_unlock);
    let threads = seeds.len() as u64;
    let part = |thread: u64| Shape { numbers, sizes, part: (thread, threads) };
    let mut all: Vec<Changes> =
        (0..).zip(seeds).map(|(thread, seed)| Changes::new(*seed, part(thread))).collect();
    for batch in 0..operations.div_ceil(BATCH) {
        std::thread::scope(|scope| {
            for changes in &mut all {
                let world = &world;
                scope.spawn(move || (0..BATCH / threads).for_each(|_| changes.step(world)));
            }
        });
        verify(&world, &all);
        if batch % 3 == 0 {
            world.commit();
        }
    }
    let counters = world.tree.counters();
    assert_eq!(counters.leaf_steps.sum(), counters.insertions, "{counters:?}");
    assert_eq!((counters.compared_at_slot0, counters.keep_violations), (0, 0));
    assert!(counters.leaf_splits.min(counters.leaf_merges).min(counters.leaf_pushes) > 20, "{counters:?}");
    for changes in &mut all {
        while let Some((&number, &(low, _))) = changes.items.first_key_value() {
            changes.remove(&world, number, &key_of(number, low));
        }
    }
    verify(&world, &all);
    assert_eq!(world.tree.blocks(), 1, "an empty tree is one leaf");
    world
}

#[test]
fn small_items() {
    let world = run(&[1], 6_000, 120, operations(200_000), true);
    let counters = world.tree.counters();
    assert_eq!((counters.searched_under_parent, counters.leaf_steps.keep), (0, 0));
    let steps = counters.leaf_steps;
    assert!(steps.slot0.min(steps.exact).min(steps.no_space).min(steps.finger) > 20, "{steps:?}");
}

#[test]
fn small_items_in_a_deep_tree() {
    let world = run(&[12], 60_000, 200, operations(200_000), true);
    assert!(world.tree.counters().node_splits > 20, "{:?}", world.tree.counters());
}

#[test]
fn large_items() {
    let world = run(&[2], 2_000, LARGEST, operations(60_000), true);
    assert_eq!(world.tree.counters().searched_under_parent, 0);
}

#[test]
fn parents_kept_while_leaves_are_searched() {
    let world = run(&[3], 6_000, 120, operations(100_000), false);
    let counters = world.tree.counters();
    assert_eq!((counters.early_unlocks, counters.leaf_steps.slot0), (0, 0));
    assert!(counters.searched_under_parent > 1000, "{counters:?}");
}

#[test]
fn four_threads_in_one_tree() {
    let world = run(&[4, 5, 6, 7], 6_000, 120, operations(200_000), true);
    let counters = world.tree.counters();
    assert_eq!(counters.searched_under_parent, 0);
    assert!(counters.leaf_steps.finger > 1000, "{counters:?}");
}

#[test]
fn four_threads_with_parents_kept() {
    let world = run(&[8, 9, 10, 11], 3_000, 400, operations(60_000), false);
    assert_eq!(world.tree.counters().early_unlocks, 0);
}
