//! Calls that are cut short. A call without space changes nothing, and a thread that panics leaves neither a lock nor
//! a block that can be committed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use creamery_base::{ErrorKind, Wait};
use creamery_format::Key;

use crate::world::{Fault, Rng, World, key};

type FaultItems = BTreeMap<Key, Vec<u8>>;

fn verify(world: &World, items: &FaultItems) {
    world.verify(items.iter().map(|(key, data)| (*key, &data[..])));
}

/// Makes one change; the model changes only on success.
fn change(world: &World, rng: &mut Rng, items: &mut FaultItems) -> Result<(), ErrorKind> {
    let key = key(1000 + rng.below(150), rng.below(20));
    let data = if rng.below(20) == 0 { vec![3; 3000] } else { rng.bytes(300) };
    let (tree, host) = (&world.tree, &world.host);
    let result = match rng.below(8) {
        0..3 => tree.insert(host, &key, &data).map(|()| {
            items.insert(key, data);
        }),
        3 => tree.upsert(host, &key, &data).map(|()| {
            items.insert(key, data);
        }),
        4 => tree.extend(host, &key, &data).map(|found| {
            assert_eq!(found, items.contains_key(&key));
            items.entry(key).and_modify(|known| known.extend(&data));
        }),
        _ => tree.remove(host, &key).map(|found| assert_eq!(found, items.remove(&key).is_some())),
    };
    result.map_err(|error| error.kind())
}

#[test]
fn a_call_without_space_changes_nothing() {
    let world = World::new(1 << 20);
    let (mut rng, mut items, mut failed) = (Rng(21), FaultItems::new(), 0);
    for round in 0..9000 {
        let fault = rng.below(3) == 0;
        if fault {
            world.host.set_fault(rng.below(4), Fault::NoSpace);
        }
        let result = change(&world, &mut rng, &mut items);
        let came = fault && world.host.fault_came();
        match result {
            Ok(()) => assert!(!came, "an error was swallowed"),
            Err(ErrorKind::NoSpace) => assert!(came),
            Err(kind) => {
                assert!(matches!(kind, ErrorKind::AlreadyExists | ErrorKind::Range) && !came, "{kind:?}")
            }
        }
        failed += u64::from(came);
        if came || round % 100 == 0 {
            verify(&world, &items);
        }
        if round % 10 == 0 {
            world.commit(); // so that every change copies its path
        }
    }
    assert!(failed > 200, "{failed}");
    let counters = world.tree.counters();
    assert!(counters.leaf_splits.min(counters.leaf_merges) > 20, "{counters:?}");
}

/// Every block of the tree can be locked at once, for reading and for writing.
fn nothing_is_locked(world: &World, items: &FaultItems) {
    for key in items.keys() {
        world.tree.get(key, Wait::No, |_| ()).expect("no lock is held and all is cached");
    }
    // Updates in place lock leaves for writing, and every block above them that has to be copied.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in items.keys() {
                world.tree.update(&world.host, key, |_| ()).expect("room");
            }
            assert_eq!(creamery_base::gate::waits_of_this_thread(), 0);
        });
    });
}

/// A tree of two levels and its items. Its next change copies its path.
fn filled() -> (World, FaultItems) {
    let world = World::new(16 << 20);
    let mut items = FaultItems::new();
    for number in 0..400 {
        let (key, data) = (key(1000, number * 2), vec![1; 100]);
        world.tree.insert(&world.host, &key, &data).expect("room");
        items.insert(key, data);
    }
    world.commit();
    (world, items)
}

#[test]
fn a_thread_that_dies_while_it_changes_the_tree_leaves_no_lock_and_poisons() {
    type Operation = fn(&World);
    let operations: [(&str, Operation); 3] = [
        ("insert", |world| {
            for number in 0..40 {
                world.tree.insert(&world.host, &key(1000, 201 + number * 2), &[2; 100]).expect("room");
            }
        }),
        ("extend", |world| {
            world.tree.extend(&world.host, &key(1000, 200), &[2; 3000]).expect("room");
        }),
        ("remove", |world| {
            for number in 100..200 {
                world.tree.remove(&world.host, &key(1000, number * 2)).expect("room");
            }
        }),
    ];
    for (name, operation) in operations {
        let mut died = 0;
        for after in 0.. {
            let (world, items) = filled();
            world.host.set_fault(after, Fault::Panic);
            let end = std::thread::scope(|scope| scope.spawn(|| operation(&world)).join());
            if !world.host.fault_came() {
                end.expect("no fault came");
                assert!(!world.store.is_poisoned());
                break;
            }
            assert!(end.is_err() && world.store.is_poisoned(), "{name} {after}");
            nothing_is_locked(&world, &items);
            died += 1;
        }
        assert!(died >= 3, "{name}: a root, a leaf and more are allocated: {died}");
    }
}

#[test]
fn a_half_edited_block_poisons_the_store_and_a_reader_does_not() {
    let (world, items) = filled();
    let key = key(1000, 200);
    let reader = catch_unwind(AssertUnwindSafe(|| {
        world.tree.get(&key, Wait::Yes, |_| panic!("a reader dies")).map(drop)
    }));
    assert!(reader.is_err() && !world.store.is_poisoned());
    nothing_is_locked(&world, &items);
    verify(&world, &items);
    let editor = catch_unwind(AssertUnwindSafe(|| {
        world.tree.update(&world.host, &key, |data| {
            data[..50].fill(9);
            panic!("an editor dies half way");
        })
    }));
    assert!(editor.is_err() && world.store.is_poisoned());
    nothing_is_locked(&world, &items);
}

#[test]
#[should_panic(expected = "READ-1")]
fn waiting_for_a_device_with_a_block_locked_for_writing_is_a_bug() {
    let mut world = World::new(1 << 20);
    for number in 0..200 {
        world.tree.insert(&world.host, &key(1000, number), &[1; 100]).expect("room");
    }
    world.commit();
    world.reopen();
    let root = world.tree.root_buffer().write();
    let want = world.anything_at(root.block().child(1).0);
    let _ = world.store.get(&want, Wait::Yes);
}
