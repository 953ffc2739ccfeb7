//! Every request of a workload fails once, and every one is the last that works.

use std::collections::BTreeMap;

use creamery_sim::{
    Fault, FaultOutcome, Image, Kind, MadeBy, Model, Watch, faulty_run, faulty_run_beside, fresh_image,
    image_with_files, requests_of_a_run, requests_of_a_run_beside, stored_seeds, watched,
};
use creamery_testkit::share_or_whole;

/// Runs for each kind of failure: of every change, and of a proof.
const RUNS_MAX: (u64, u64) = (30, 120);

/// Some files, in trees of several levels, durable.
fn prepared() -> (Image, Model) {
    let made_by = MadeBy { node_size: 4096, ..MadeBy::default() };
    image_with_files(&made_by, 60, |number| 3000 * (number as usize % 7)).expect("an image")
}

fn seeds() -> Vec<u64> {
    let chosen = std::env::var("CREAMERY_FAULT_SEED").ok().and_then(|seed| seed.parse().ok());
    std::iter::once(chosen.unwrap_or(7)).chain(stored_seeds("faults")).collect()
}

fn every_request(kind: Kind) -> BTreeMap<FaultOutcome, usize> {
    let (image, model) = prepared();
    let mut outcomes = BTreeMap::new();
    for seed in seeds() {
        let requests = requests_of_a_run(&image, &model, seed, kind).expect("it works without failures");
        assert!(requests > 4, "{requests} requests");
        let step =
            usize::try_from(requests.div_ceil(share_or_whole(RUNS_MAX.0, RUNS_MAX.1))).expect("few requests");
        let nths = || (0..requests).step_by(step);
        for (lasting, nth) in nths().map(|nth| (false, nth)).chain(nths().map(|nth| (true, nth))) {
            let fault = Fault { kind, nth, lasting };
            let (image, model) = (image.clone(), model.clone());
            let outcome = watched(move |watch| {
                watch.doing(&format!("seed {seed}, {fault:?}"));
                faulty_run(&image, &model, seed, fault, watch)
            });
            match outcome {
                Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                Err(error) => panic!("seed {seed}, {fault:?}: {error:#}"),
            }
        }
        println!("{requests} requests, {kind:?}: {outcomes:?}");
    }
    outcomes
}

#[test]
fn a_read_that_fails_is_answered_or_told() {
    let outcomes = every_request(Kind::Read);
    assert!(outcomes.contains_key(&FaultOutcome::NotOpened), "{outcomes:?}");
}

#[test]
fn a_write_that_fails_loses_nothing() {
    let outcomes = every_request(Kind::Write);
    assert!(outcomes.contains_key(&FaultOutcome::ReadOnly), "{outcomes:?}");
}

#[test]
fn a_flush_that_fails_makes_it_read_only() {
    let outcomes = every_request(Kind::Flush);
    assert!(outcomes.contains_key(&FaultOutcome::ReadOnly), "{outcomes:?}");
}

#[test]
fn a_request_that_fails_in_the_midst_of_the_background_loses_nothing() {
    let image = fresh_image(&MadeBy::default()).expect("an image");
    let (mut met, mut passing) = (0, 0);
    for seed in seeds() {
        let requests = requests_of_a_run_beside(&image, seed, Kind::Any).expect("it works without failures");
        let nths = (0..requests).step_by(share_or_whole(4, 1));
        for (nth, lasting) in nths.flat_map(|nth| [(nth, false), (nth, true)]) {
            let fault = Fault { kind: Kind::Any, nth, lasting };
            let image = image.clone();
            let run = move |watch: &Watch| {
                watch.doing(&format!("seed {seed}, {fault:?}"));
                faulty_run_beside(&image, seed, fault)
            };
            match watched(run) {
                Ok(failed) if lasting => assert!(failed, "seed {seed}, nobody met {fault:?}"),
                Ok(failed) => {
                    passing += 1;
                    met += usize::from(failed);
                }
                Err(error) => panic!("seed {seed}, {fault:?}: {error:#}"),
            }
        }
        println!("{requests} requests, {met} of {passing} single failures met");
    }
    // Another copy takes the place of one that fails once, and data that cannot be written is lost without harm to anything else.
    // How many requests there are is the schedule's affair, which every lock on the way changes.
    assert!(passing > share_or_whole(25, 100) && met * 4 > passing, "{met} of {passing}");
}

#[test]
fn a_device_that_disappears_loses_nothing() {
    let outcomes = every_request(Kind::Any);
    assert!(outcomes.contains_key(&FaultOutcome::ReadOnly), "{outcomes:?}");
}
