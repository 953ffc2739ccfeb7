//! Power cuts in every kind of image: a few of each on every change, hundreds in a proof, and thousands by `cargo xtask crash`.

use creamery_format::CompatRo;
use creamery_sim::{Canary, MadeBy, crash, fresh_image, record, record_beside, record_due};
use creamery_testkit::share_or_whole;

fn survive(made_by: &MadeBy, seed: u64, states: usize) {
    let history = record(&fresh_image(made_by).expect("an image"), seed, None).expect("the workload runs");
    let features = history.features;
    assert!(features.commits >= 50, "{features:?}");
    assert!(
        features.levels >= 2 && features.bitmaps > 0 && features.orphans > 0 && features.deleting > 1,
        "{features:?}"
    );
    assert!(features.chunks.1 > features.chunks.0, "{features:?}");
    assert!(features.snapshots > 1 && features.dropping > 1, "{features:?}");
    assert!(features.grown == 10 << 20 && features.superblock_changes == 2, "{features:?}");
    assert_eq!(features.converted, CompatRo::BLOCK_GROUP_TREE, "{features:?}");
    match crash(&history, seed, states, &mut |_| Ok(())) {
        Ok(report) => {
            println!("{features:?}\n{report}");
            assert_eq!(report.states(), states);
            assert!(report.last > 0 && report.in_flight > 0, "{report}");
        }
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn what_was_committed_survives_every_power_cut() {
    survive(&MadeBy::default(), 34, share_or_whole(150, 400));
}

#[test]
fn what_was_committed_survives_every_power_cut_in_deep_trees() {
    survive(&MadeBy { node_size: 4096, ..MadeBy::default() }, 5, share_or_whole(100, 300));
}

#[test]
fn commits_that_fell_due_survive_every_power_cut() {
    let history =
        record_due(&fresh_image(&MadeBy::default()).expect("an image"), 4).expect("the workload runs");
    let features = history.features;
    assert!(features.commits >= 30 && features.shared > 2 * features.commits, "{features:?}");
    let states = share_or_whole(100, 300);
    match crash(&history, 4, states, &mut |_| Ok(())) {
        Ok(report) => {
            println!("{features:?}\n{report}");
            assert!(report.states() == states && report.last > 0 && report.in_flight > 0, "{report}");
        }
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn commits_in_the_midst_of_operations_survive_every_power_cut() {
    let history = record_beside(&fresh_image(&MadeBy::default()).expect("an image"), 5, |_| ())
        .expect("the workload runs");
    let features = history.features;
    assert!(features.commits >= 50 && features.steps.0 > 50 && features.steps.1 > 300, "{features:?}");
    assert!(features.fsyncs >= 5, "{features:?}");
    let states = share_or_whole(100, 300);
    match crash(&history, 5, states, &mut |_| Ok(())) {
        Ok(report) => {
            println!("{features:?}\n{report}");
            assert!(report.states() == states && report.last > 0 && report.in_flight > 0, "{report}");
            assert!(report.classes.len() > 4, "{report}");
        }
        Err(error) => panic!("{error:#}"),
    }
}

#[test]
fn a_device_that_ignores_a_flush_is_noticed() {
    for canary in [Canary::NoFlushBeforeSuperblock, Canary::NoFlushAfterSuperblock] {
        let base = fresh_image(&MadeBy::default()).expect("an image");
        let history = record(&base, 3, Some(canary)).expect("the workload notices nothing");
        let error = crash(&history, 3, 1000, &mut |_| Ok(())).expect_err("a broken promise");
        println!("{canary:?}: {error:#}");
    }
}
