//! Threads read data while another one frees their neighbours and commits, under a scheduler that runs one of them at a time
//! and chooses the next at every lock, in an order that follows from a seed: a reader gets the data that was written, and an error
//! for rotten data. And threads ask for the last room. `cargo test -p creamery-txn --features shuttle --test schedules`
//!
//! A failure prints its seed and its schedule; `CREAMERY_SCHEDULES_SEED` begins with a seed again, and
//! `CREAMERY_SCHEDULES` sets how many schedules each test runs.

#[path = "support/moving_refs.rs"]
mod moving_refs;
#[path = "support/neighbours.rs"]
mod neighbours;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::sync::shuttle::rand::{Rng, thread_rng};
use creamery_base::sync::shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use creamery_base::sync::shuttle::{Config, FailurePersistence, Runner, thread};
use creamery_base::{Logical, TreeId};
use creamery_device::MemoryDevice;
use creamery_testkit::{schedules, schedules_seed};
use creamery_txn::{BlockReserve, Handle, ReserveItems};

use crate::neighbours::{World, empty_image};

const SEED: u64 = 20_211_206;
const READERS: usize = 2;
/// A reader ends with the commits, or after so many reads: some schedules let no other thread run.
const READS_MAX: usize = 300;
/// Extents of one checksum item at first: those with an even number are freed.
const SECTORS: usize = 6;
const ROTTEN: usize = 5;

/// Parameters of an execution.
#[derive(Clone, Copy)]
struct Scenario {
    in_two_steps: bool,
}

const USUAL: Scenario = Scenario { in_two_steps: false };

/// An execution's filesystem, its extents, and whether the commits are over.
struct Shared {
    world: World,
    all: Vec<Logical>,
    done: AtomicBool,
}

fn read(shared: &Shared) {
    let Shared { world, all, done } = shared;
    for _ in 0..READS_MAX {
        if done.load(Ordering::Relaxed) {
            break;
        }
        match thread_rng().gen_range(0..SECTORS / 2) * 2 + 1 {
            ROTTEN => world.read_rotten(all[ROTTEN]),
            number => world.read_good(all[number]),
        }
    }
}

/// One execution.
fn execute(image: &Arc<MemoryDevice>, scenario: Scenario) {
    let world = World::new(image);
    let all = world.fill(SECTORS);
    assert!(all.windows(2).all(|pair| pair[0] + neighbours::SECTOR as u64 == pair[1]), "{all:?}");
    world.rot(all[ROTTEN]);
    if scenario.in_two_steps {
        world.engine.remove_csums_in_two_steps();
    }
    let shared = Arc::new(Shared { world, all, done: AtomicBool::new(false) });
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || read(&shared))
        })
        .collect();
    let Shared { world, all, done } = &*shared;
    for even in all.iter().step_by(2) {
        world.free(*even);
        // The same commit inserts a new extent's checksum beside them, now and then in the place of a freed one's.
        world.fill(1);
    }
    done.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().expect("it ends well"));
}

fn config(persistence: FailurePersistence) -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.failure_persistence = persistence;
    config
}

fn run(name: &str, seed: u64, scheduler: impl Scheduler + 'static) {
    let Some(image) = empty_image() else { return };
    let runner = Runner::new(scheduler, config(FailurePersistence::Print));
    let result = catch_unwind(AssertUnwindSafe(|| runner.run(move || execute(&image, USUAL))));
    if let Err(failure) = result {
        println!("{name} failed: CREAMERY_SCHEDULES_SEED={seed}");
        resume_unwind(failure);
    }
}

#[test]
fn reads_beside_commits_in_schedules_from_a_fixed_seed() {
    run("random schedules", SEED, RandomScheduler::new_from_seed(SEED, schedules(150)));
}

#[test]
fn reads_beside_commits_in_schedules_from_the_asked_seed() {
    let seed = schedules_seed("txn");
    run("random schedules", seed, RandomScheduler::new_from_seed(seed, schedules(150)));
}

#[test]
fn reads_beside_commits_in_schedules_with_few_changes_of_threads() {
    let scheduler = PctScheduler::new_from_seed(SEED, 3, schedules(150));
    run("schedules with few changes of threads", SEED, scheduler);
}

/// Keeps room for metadata until only that of one item is left.
fn leave_room_for_one(world: &World) -> Vec<BlockReserve> {
    let mut kept = Vec::new();
    for items in [64, 16, 4, 1] {
        while let Ok(handle) = world.engine.start(ReserveItems::items(items)) {
            kept.push(handle.keep(items));
            handle.end();
        }
    }
    kept.pop();
    kept
}

/// One execution: a request for more than there is does not take the last room from a request that fits.
fn ask_for_the_last_room(image: &Arc<MemoryDevice>) {
    const MORE_THAN_THERE_IS: u32 = 1000;
    const GREEDY: usize = 2;
    const ASKED: usize = 10;
    let world = Arc::new(World::new(image));
    let data: Vec<_> =
        std::iter::from_fn(|| world.engine.allocate_data(TreeId::FS, 64 << 20, 4096, None).ok()).collect();
    let kept = leave_room_for_one(&world);
    let greedy: Vec<_> = (0..GREEDY)
        .map(|_| {
            let world = Arc::clone(&world);
            let ask = move || world.engine.start(ReserveItems::items(MORE_THAN_THERE_IS)).map(Handle::end);
            thread::spawn(move || assert!((0..ASKED).all(|_| ask().is_err())))
        })
        .collect();
    let asked = world.engine.start(ReserveItems::items(1)).map(Handle::end);
    greedy.into_iter().for_each(|asker| asker.join().expect("it ends well"));
    drop((kept, data));
    assert!(asked.is_ok(), "{asked:?}");
}

#[test]
fn who_asks_for_too_much_takes_no_room_from_others() {
    let Some(image) = empty_image() else { return };
    let runner =
        Runner::new(RandomScheduler::new_from_seed(SEED, schedules(150)), config(FailurePersistence::Print));
    runner.run(move || ask_for_the_last_room(&image));
}

/// The canary: the harness finds the planted fault that readers see a half-cut item.
#[test]
fn items_cut_in_two_steps_are_caught() {
    let Some(image) = empty_image() else { return };
    let runner = Runner::new(RandomScheduler::new_from_seed(SEED, 100), config(FailurePersistence::None));
    let planted = Scenario { in_two_steps: true };
    let found = catch_unwind(AssertUnwindSafe(|| runner.run(move || execute(&image, planted))));
    assert!(found.is_err(), "100 schedules went well with items that are cut in two steps");
}

#[test]
fn references_are_seen_in_the_tree_or_in_the_queue() {
    let Some(image) = empty_image() else { return };
    let scheduler = RandomScheduler::new_from_seed(SEED, schedules(150));
    let runner = Runner::new(scheduler, config(FailurePersistence::Print));
    runner.run(move || moving_refs::execute(&image, false));
}

/// The canary: the harness finds the planted fault that a thread looks while a reference is in neither place.
#[test]
fn references_that_move_unseen_are_caught() {
    let Some(image) = empty_image() else { return };
    let runner = Runner::new(RandomScheduler::new_from_seed(SEED, 100), config(FailurePersistence::None));
    let found = catch_unwind(AssertUnwindSafe(|| runner.run(move || moving_refs::execute(&image, true))));
    assert!(found.is_err(), "100 schedules went well with heads that run unlocked");
}
