//! Canaries: failpoints that the harnesses must notice. `cargo test -p creamery-sim --features faults --test faults canaries`

use creamery_base::panics;
use creamery_fs::Fault;
use creamery_mkfs::Profile;
use creamery_sim::{
    Kind, MadeBy, Taste, crash, faulty_run_beside_with, fresh_image, in_place_run_with, log_run_with,
    random_run_with, readers_run_with, record_beside,
};
use creamery_txn::Engine;

use crate::refill::{DUP, SINGLE, refill};
use crate::steps::{PIECES, overwrite_in_steps};

/// The number of runs of which one must meet the fault: it is visible for a moment only, to a thread that looks just then.
const RUNS: u64 = 20;
const STEPS: u64 = 300;

#[test]
fn readers_notice_checksums_that_are_removed_in_two_steps() {
    let run = |seed| readers_run_with(seed, STEPS, Profile::Single, Engine::remove_csums_in_two_steps).err();
    let Some(noticed) = (0..RUNS).find_map(run) else { panic!("{RUNS} runs went well") };
    let told = format!("{noticed:#}");
    assert!(told.contains("has no checksum for it"), "{told}");
}

#[test]
fn a_power_cut_notices_handles_that_do_not_hold_off_the_commit() {
    let base = fresh_image(&MadeBy::default()).expect("an image");
    let run = |seed| {
        let planted = record_beside(&base, seed, |fs| fs.engine().forget_the_gate());
        planted.and_then(|history| crash(&history, seed, 100, &mut |_| Ok(()))).err()
    };
    // A handle may end when its transaction is gone: then an assert fires before the power cut.
    let noticed = |seed| match panics::catch(|| run(seed)) {
        Ok(noticed) => noticed.map(|error| format!("{error:#}")),
        Err(panic) => {
            assert!(panic.message.contains("TXN-GATE-2"), "{panic}");
            Some(panic.message)
        }
    };
    let Some(noticed) = (0..RUNS).find_map(noticed) else { panic!("{RUNS} runs went well") };
    println!("{noticed}");
}

#[test]
fn a_power_cut_notices_data_that_was_not_synced() {
    let base = fresh_image(&MadeBy::default()).expect("an image");
    let run = |seed| {
        let planted = record_beside(&base, seed, |fs| fs.plant(Fault::SyncedWithoutData));
        planted.and_then(|history| crash(&history, seed, 100, &mut |_| Ok(()))).err()
    };
    let Some(noticed) = (0..RUNS).find_map(run) else { panic!("{RUNS} runs went well") };
    let told = format!("{noticed:#}");
    assert!(told.contains("no legal commit") || told.contains("no such file"), "{told}");
}

/// The background loses data, and the next opener of the file asks for an fsync.
#[test]
fn failing_writes_notice_openers_that_start_behind_errors_nobody_has_seen() {
    let base = fresh_image(&MadeBy::default()).expect("an image");
    let run = |nth| {
        let failing = creamery_sim::Fault { kind: Kind::Write, nth, lasting: false };
        faulty_run_beside_with(&base, 7, failing, |fs| fs.plant(Fault::OpenedBehindErrors)).err()
    };
    let Some(noticed) = (0..10 * RUNS).find_map(run) else { panic!("{RUNS} runs went well") };
    let told = format!("{noticed:#}");
    assert!(told.contains("learns nothing of a loss"), "{told}");
}

/// Syncing a file that was only overwritten finds nothing in its item, and flushes nothing.
#[test]
fn a_power_cut_notices_times_that_fsync_leaves_behind() {
    let base = fresh_image(&MadeBy::default()).expect("an image");
    let run = |seed| in_place_run_with(&base, seed, 100, None, |fs| fs.plant(Fault::TimesLeftBehind)).err();
    let Some(noticed) = (0..RUNS).find_map(run) else { panic!("{RUNS} runs went well") };
    println!("{noticed:#}");
}

#[test]
fn a_power_cut_notices_changes_that_no_log_was_told() {
    let base = fresh_image(&MadeBy::default()).expect("an image");
    let run = |seed| log_run_with(&base, seed, 100, None, |fs| fs.plant(Fault::ChangesUnnoted)).err();
    let Some(noticed) = (0..RUNS).find_map(run) else { panic!("{RUNS} runs went well") };
    println!("{noticed:#}");
}

#[test]
fn a_count_of_everything_notices_references_that_are_forgotten_when_they_cancel_out() {
    let made_by = MadeBy { node_size: 4096, ..MadeBy::default() };
    let run = |seed| {
        random_run_with(seed, 1500, &made_by, Taste::default(), |fs| fs.engine().forget_cancelled_refs())
            .err()
    };
    // One run in three counts references.
    let Some(noticed) = (1..3 * RUNS).step_by(3).find_map(run) else { panic!("{RUNS} runs went well") };
    let told = format!("{noticed:#}");
    assert!(told.contains("all over again"), "{told}");
}

#[test]
fn a_full_device_notices_that_nobody_is_asked_to_make_room() {
    for (made_by, size, piece) in [(DUP, 2_000_000, 2_000_000), (SINGLE, 400_000, 4096)] {
        let Err(noticed) = refill(made_by, size, piece, Engine::forget_reclaimers) else {
            panic!("{made_by:?}: there was room")
        };
        let told = format!("{noticed:#}");
        assert!(told.contains("files' room") && told.contains("no space"), "{told}");
    }
}

#[test]
fn a_small_device_notices_room_that_is_kept_for_what_was_copied_already() {
    let took = overwrite_in_steps(PIECES, Engine::reckon_copies_twice);
    assert!(took.new_metadata > 0, "{took:?}");
}
