//! Reads while commits remove the checksums of neighbours: good data is read, rotten data is not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use creamery_base::{ErrorKind, TreeId, Wait};
use creamery_format::Key;
use creamery_txn::{DataCsums, Options, ReserveItems};

use crate::neighbours::{SECTOR, World, empty_image};

const SECTORS: usize = 900;
const ROUNDS: usize = 40;
const READERS: usize = 2;

#[test]
fn extents_keep_their_checksums_while_their_neighbours_lose_theirs() {
    let Some(image) = empty_image() else { return };
    let world = World::new(&image);
    let reads = AtomicU64::new(0);
    for round in 0..ROUNDS {
        let all = world.fill(SECTORS);
        let kept = |at: usize| at % 2 == round % 2;
        let rotten = (SECTORS / 2..).find(|at| kept(*at)).expect("every other one");
        world.rot(all[rotten]);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..READERS {
                let (world, all, done, reads) = (&world, &all, &done, &reads);
                scope.spawn(move || {
                    let mut number = reader;
                    while !done.load(Ordering::Relaxed) {
                        number = (number + 7) % SECTORS;
                        match number {
                            _ if !kept(number) => world.read_rotten(all[rotten]),
                            _ if number == rotten => {}
                            _ => world.read_good(all[number]),
                        }
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            all.iter().enumerate().filter(|(at, _)| !kept(*at)).for_each(|(_, at)| world.free(*at));
            world.engine.commit().expect("a commit");
            done.store(true, Ordering::Relaxed);
        });
        all.iter().enumerate().filter(|(at, _)| kept(*at)).for_each(|(_, at)| world.free(*at));
        world.engine.commit().expect("a commit");
    }
    println!("{} reads", reads.into_inner());
}

#[test]
fn data_without_a_checksum_is_read_for_nodatasum_files_only() {
    let Some(image) = empty_image() else { return };
    let world = World::new(&image);
    let at = world.without_csum();
    let mut bytes = [0; SECTOR];
    world.engine.data().read(at, &mut bytes, DataCsums::Absent, Wait::Yes).expect("nobody can tell");
    let error =
        world.engine.data().read(at, &mut bytes, DataCsums::Present, Wait::Yes).expect_err("nobody can tell");
    assert_eq!(error.kind(), ErrorKind::Unreadable, "{error}");
    assert!(error.to_string().contains(&at.to_string()), "{error}");
}

/// A handle drops references, has not changed their leaf yet, and another thread runs heads meanwhile.
#[test]
fn an_extent_is_freed_when_who_gives_it_up_is_done() {
    const EXTENTS: usize = 8;
    let Some(image) = empty_image() else { return };
    let world = World::with(&image, Options { delayed_refs_max: EXTENTS, ..Options::default() });
    let all = world.fill(EXTENTS);
    let handle = world.engine.start(ReserveItems::freeing(EXTENTS as u32)).expect("room");
    all.iter().for_each(|at| world.give_up(&handle, *at));
    // As long as a quarter of `delayed_refs_max` waits, each new handle runs some.
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            (0..EXTENTS).for_each(|_| world.engine.start(ReserveItems::items(1)).expect("room").end())
        });
        others.join().expect("it runs what there is");
    });
    all.iter().for_each(|at| world.read_good(*at));
    handle.end();
    world.engine.commit().expect("a commit");
    let mut out = [0; SECTOR];
    let read = world.engine.data().read(all[0], &mut out, DataCsums::Present, Wait::Yes);
    assert_eq!(read.expect_err("its checksum went with it").kind(), ErrorKind::Unreadable);
}

#[test]
fn durable_trees_stay_as_they_are_beside_commits() {
    let Some(image) = empty_image() else { return };
    let world = World::new(&image);
    let first = world.fill(100);
    world.engine.commit().expect("a commit");
    let durable = world.engine.durable_trees().expect("readable trees");
    let seen = || {
        let tree = durable.tree(TreeId::EXTENT).expect("a readable tree");
        let mut cursor = durable.cursor(&tree, &Key::MIN, Wait::Yes).expect("a readable tree");
        let mut seen = Vec::new();
        while let Some((key, data)) = cursor.item() {
            seen.push((key, data.to_vec()));
            cursor.advance().expect("a readable tree");
        }
        seen
    };
    let (generation, before) = (durable.generation(), seen());
    assert_eq!(generation, world.engine.volume().generation());
    for at in first {
        world.free(at);
        world.engine.commit().expect("a commit");
    }
    assert!(world.engine.volume().generation() > generation);
    assert_eq!((durable.generation(), seen()), (generation, before));
    let now = world.engine.durable_trees().expect("readable trees");
    assert_eq!(now.generation(), world.engine.volume().generation());
    assert!(!now.is_in_the_way(), "nobody waits for room");
}

/// A guard of one commit does not fit a tree of another commit.
#[test]
#[should_panic(expected = "SCRUB-1")]
fn a_tree_of_an_earlier_commit_is_not_walked_under_a_later_guard() {
    let Some(image) = empty_image() else { panic!("SCRUB-1: nothing makes an image here") };
    let world = World::new(&image);
    let before = world.engine.durable_trees().expect("readable trees");
    let tree = before.tree(TreeId::EXTENT).expect("a readable tree");
    drop(world.fill(1));
    world.engine.commit().expect("a commit");
    let now = world.engine.durable_trees().expect("readable trees");
    let _ = now.cursor(&tree, &Key::MIN, Wait::Yes);
}

/// A commit waits for handles, so a thread with a handle must not walk over a durable commit.
#[test]
#[should_panic(expected = "SCRUB-5")]
fn nobody_who_holds_a_handle_walks_over_a_durable_commit() {
    let Some(image) = empty_image() else { panic!("SCRUB-5: nothing makes an image here") };
    let world = World::new(&image);
    let _handle = world.engine.start(ReserveItems::items(1)).expect("room");
    let _ = world.engine.durable_trees();
}
