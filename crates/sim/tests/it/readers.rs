//! Readers beside writers and commits: every read is whole and right, and what is rotten is never read as good.

use creamery_mkfs::Profile;
use creamery_sim::{Image, ReadersReport, readers_run, stored_seeds};
use creamery_testkit::seed_of;

const STEPS: u64 = 1000;

fn readers(seed: u64, data: Profile) -> (ReadersReport, Image) {
    let (report, image) = match readers_run(seed, STEPS, data) {
        Ok(done) => done,
        Err(error) => panic!("replay with seed {seed}: {error:#}"),
    };
    println!("seed {seed}: {report:?}");
    assert!(report.overlapping > 0 && report.rotten > 0, "{report:?}");
    (report, image)
}

#[test]
fn readers_get_what_was_written_and_a_rotten_sector_is_an_error() {
    [1].into_iter().chain(stored_seeds("readers")).for_each(|seed| drop(readers(seed, Profile::Single)));
}

#[test]
fn readers_get_what_was_written_with_the_asked_seed() {
    readers(seed_of("readers"), Profile::Single);
}

#[test]
fn readers_get_the_other_copy_of_a_rotten_sector() {
    readers(2, Profile::Dup);
}
