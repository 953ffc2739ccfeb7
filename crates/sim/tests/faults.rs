//! Every request of a workload fails once, and every one is the last that works.

use std::collections::BTreeMap;
use std::sync::Arc;

use creamery_sim::{
    Driver, Fault, FaultOutcome, Image, Kind, MadeBy, Model, Operation, ROOT, SimDevice, faulty_run,
    fresh_image, requests_of_a_run,
};

/// Runs per kind of failure.
const RUNS_MAX: u64 = 60;

/// Some files, in trees of several levels, durable.
fn prepared() -> (Image, Model) {
    let made_by = MadeBy { node_size: 4096, ..MadeBy::default() };
    let device = Arc::new(SimDevice::new(fresh_image(&made_by).expect("an image")));
    let mut driver = Driver::open_fresh(&device).expect("it opens");
    for number in 0..60_u64 {
        let name = format!("name{number}").into_bytes();
        let kind = creamery_fs::FileType::File;
        driver.apply(&Operation::Create { dir: ROOT, name, kind, mode: 0o644 }).expect("a file");
        let write = Operation::Write {
            inode: number + 1,
            offset: 0,
            len: 3000 * (number as usize % 7),
            seed: number,
        };
        driver.apply(&write).expect("its data");
    }
    let driver = driver.restart(&device).expect("it opens again");
    let model = driver.model().clone();
    drop(driver);
    let mut image = device.image();
    image.freeze();
    (image, model)
}

fn every_request(kind: Kind) -> BTreeMap<FaultOutcome, usize> {
    let (image, model) = prepared();
    let mut outcomes = BTreeMap::new();
    let seed = std::env::var("CREAMERY_FAULT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let requests = requests_of_a_run(&image, &model, seed, kind).expect("it works without failures");
    assert!(requests > 4, "{requests} requests");
    for lasting in [false, true] {
        for nth in (0..requests).step_by(requests.div_ceil(RUNS_MAX) as usize) {
            let fault = Fault { kind, nth, lasting };
            match faulty_run(&image, &model, seed, fault) {
                Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                Err(error) => panic!("seed {seed}, {fault:?}: {error:#}"),
            }
        }
    }
    println!("{requests} requests, {kind:?}: {outcomes:?}");
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
fn a_device_that_disappears_loses_nothing() {
    let outcomes = every_request(Kind::Any);
    assert!(outcomes.contains_key(&FaultOutcome::ReadOnly), "{outcomes:?}");
}
