//! Random operations of the library against a model in memory: results, kinds of error, and everything there is.

use creamery_sim::{MadeBy, Taste, random_run, random_run_beside, stored_seeds};
use creamery_testkit::{rounds, seed_of};

fn run(seed: u64, count: u64, node_size: u32) {
    let made_by = MadeBy { node_size, ..MadeBy::default() };
    for times in [false, true] {
        if let Err(error) = random_run(seed, count, &made_by, Taste { times, ..Taste::default() }) {
            panic!(
                "replay with seed {seed}, {count} operations, node size {node_size}, times {times}: {error:#}"
            );
        }
    }
}

#[test]
fn stored_seeds_agree_with_the_model() {
    for seed in [1, 2, 3].into_iter().chain(stored_seeds("model")) {
        run(seed, 4000, 16384);
    }
}

#[test]
fn marks_and_read_only_subvolumes_agree_with_the_model() {
    let seeds = 1..=rounds(3, 300);
    for seed in seeds.chain(stored_seeds("rights")) {
        let taste = Taste { rights: true, times: seed % 2 == 0, ..Taste::default() };
        if let Err(error) = random_run(seed, 4000, &MadeBy::default(), taste) {
            panic!("replay with seed {seed} and {taste:?}: {error:#}");
        }
    }
}

#[test]
fn more_directories_than_may_put_changes_off_agree_with_the_model() {
    let taste = Taste { directories: 100, times: true, ..Taste::default() };
    for seed in [6, 7] {
        if let Err(error) = random_run(seed, 4000, &MadeBy::default(), taste) {
            panic!("replay with seed {seed} and {taste:?}: {error:#}");
        }
    }
}

#[test]
fn steps_of_the_background_in_the_midst_of_operations_agree_with_the_model() {
    for seed in [8, 9, 10].into_iter().chain(stored_seeds("beside")) {
        let made_by = MadeBy { node_size: if seed % 2 == 0 { 4096 } else { 16384 }, ..MadeBy::default() };
        match random_run_beside(seed, 2000, &made_by, Taste::default()) {
            Ok((steps, interrupted)) => assert!(steps > 100 && interrupted > 100, "{steps} {interrupted}"),
            Err(error) => panic!("replay with seed {seed}: {error:#}"),
        }
    }
}

#[test]
fn stored_seeds_agree_with_the_model_in_deep_trees() {
    for seed in [4, 5].into_iter().chain(stored_seeds("deep")) {
        run(seed, 4000, 4096);
    }
}

#[test]
fn seeds_that_are_asked_for_agree_with_the_model() {
    for number in 0..rounds(1, 60) {
        let seed = seed_of("model") ^ number;
        run(seed, 4000, if seed.is_multiple_of(2) { 4096 } else { 16384 });
    }
}
