//! The tests of fstests' group `log`, by their numbers: their steps, with a power cut at each request behind their last fsync.
//!
//! Only facts come from them: the order of steps, and the expectations. Each case runs on three kinds of filesystems. Every state that a
//! power cut leaves is opened (which replays its log), compared, and verified. The kernel, too, replays the state right behind the last
//! fsync. Cases that no test of the group has are in `back`.

mod attributes;
mod back;
mod extents;
mod names;
mod run;
mod script;
mod wants;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use creamery_sim::Canary;
use creamery_testkit::Judge;
use creamery_testkit::harness::{self, Bench};

use self::run::{LogCase, SETUPS, run, run_on};

/// The group: the numbers under `generic` and under `btrfs`.
const GENERIC: [u32; 79] = [
    34, 39, 40, 41, 43, 44, 45, 46, 51, 52, 54, 55, 56, 57, 59, 65, 66, 73, 90, 101, 104, 106, 107, 177, 311,
    321, 322, 325, 335, 336, 341, 342, 343, 376, 388, 417, 455, 457, 475, 479, 480, 481, 483, 489, 498, 501,
    502, 509, 510, 512, 520, 526, 527, 534, 535, 546, 547, 552, 557, 588, 640, 648, 677, 690, 695, 703, 745,
    748, 753, 757, 764, 771, 779, 782, 784, 785, 789, 790, 792,
];
const BTRFS: [u32; 19] =
    [56, 95, 98, 118, 119, 120, 159, 172, 196, 201, 206, 209, 211, 231, 236, 239, 240, 243, 341];

/// Tests without a case here: the reason, and the tests of ours that cover them.
const NOT_HERE: [(&str, &str, &str); 12] = [
    ("generic/051", "random work, cut off by an ioctl of XFS", "tests/it/log.rs, tests/it/crash.rs"),
    (
        "generic/055",
        "random work with metadata, for the versions of XFS' log",
        "tests/it/log.rs, tests/it/crash.rs",
    ),
    ("generic/311", "random writes and calls of fsync, frozen or not, direct or not", "tests/it/log.rs"),
    ("generic/388", "random work and the order in which XFS replays", "tests/it/log.rs, tests/it/replay.rs"),
    ("generic/455", "random work on one file, with writes noted", "tests/it/log.rs, tests/it/in_place.rs"),
    ("generic/457", "the same on clones", "tests/it/log.rs"),
    (
        "generic/475",
        "random work on a device that fails all requests",
        "tests/it/faults.rs, tests/it/crash.rs",
    ),
    ("generic/547", "random work, all of which is synced then", "tests/it/log.rs"),
    (
        "generic/648",
        "as 475, with a filesystem in a file of the filesystem",
        "tests/it/faults.rs, tests/it/crash.rs",
    ),
    ("generic/703", "direct writes by io_uring", "tests/it/in_place.rs"),
    ("generic/753", "as 475, with attributes", "tests/it/faults.rs, tests/it/crash.rs"),
    ("generic/757", "direct writes, many at a time, with fdatasync", "tests/it/log.rs, tests/it/in_place.rs"),
];

fn all() -> Vec<LogCase> {
    [names::cases(), extents::cases(), attributes::cases()].concat()
}

fn every_test_of_the_group_has_a_case_or_a_reason() -> Result<()> {
    let group = GENERIC.iter().map(|number| format!("generic/{number:03}"));
    let group: BTreeSet<String> =
        group.chain(BTRFS.iter().map(|number| format!("btrfs/{number:03}"))).collect();
    let cases: BTreeSet<String> = all().iter().map(|case| case.test.to_owned()).collect();
    let others: BTreeSet<String> = NOT_HERE.iter().map(|(test, ..)| (*test).to_owned()).collect();
    ensure!(group.len() == 98, "{} tests", group.len());
    ensure!(cases.is_disjoint(&others), "both: {:?}", &cases & &others);
    ensure!(&cases | &others == group, "differs: {:?}", &(&cases | &others) ^ &group);
    println!("{} tests have cases, {} have a reason", cases.len(), others.len());
    Ok(())
}

/// Checks that each expectation holds after a power cut at any time behind the last fsync.
fn survive(cases: &[LogCase]) -> Result<()> {
    let (mut logged, mut states, mut wrong) = (0, 0, Vec::new());
    for (case, setup) in cases.iter().flat_map(|case| SETUPS.iter().map(move |setup| (case, setup))) {
        let tried = run(case, setup).and_then(|done| {
            logged += usize::from(done.is_logged);
            done.expect_after_power_cuts(case)
        });
        match tried {
            Ok(tried) => states += tried,
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    ensure!(wrong.is_empty(), "{} went wrong:\n{}", wrong.len(), wrong.join("\n"));
    let runs = cases.len() * SETUPS.len();
    println!("{runs} runs, of which {logged} left a log; {states} states");
    ensure!(logged > 0 && states > 10 * runs, "{logged} of {runs} left a log, {states} states");
    Ok(())
}

/// Each case with data notices a device that breaks a promise.
fn a_device_that_ignores_flushes_is_noticed() -> Result<()> {
    for canary in [Canary::NoFlushBeforeSuperblock, Canary::NoFlushAfterSuperblock] {
        for case in extents::cases().iter().take(8) {
            let survived = run_on(case, &SETUPS[0], Some(canary))?.expect_after_power_cuts(case);
            ensure!(survived.is_err(), "{canary:?} is not noticed by {} ({})", case.test, case.what);
        }
    }
    Ok(())
}

/// Checks that the kernel replays the logs with an equal result, each case in one of the setups.
fn survive_in_the_kernel(bench: &Bench) -> Result<()> {
    let mut replayed = 0;
    for (number, case) in all().iter().chain(&back::cases()).enumerate() {
        let done = run(case, &SETUPS[number % SETUPS.len()])?;
        if done.is_logged {
            done.expect_of_the_kernel(case, &bench.scratch)?;
            replayed += 1;
        }
    }
    println!("{replayed} logs were replayed by the kernel");
    ensure!(replayed > 40, "{replayed} logs");
    Ok(())
}

pub(crate) fn harness_cases() -> Vec<harness::Case> {
    let kernel = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    vec![
        harness::Case::new("fstests_log/group", &[], |_| every_test_of_the_group_has_a_case_or_a_reason()),
        harness::Case::new("fstests_log/names", &[], |_| survive(&names::cases())),
        harness::Case::new("fstests_log/back", &[], |_| survive(&back::cases())),
        harness::Case::new("fstests_log/extents", &[], |_| survive(&extents::cases())),
        harness::Case::new("fstests_log/attributes", &[], |_| survive(&attributes::cases())),
        harness::Case::new("fstests_log/canaries", &[], |_| a_device_that_ignores_flushes_is_noticed()),
        harness::Case::new("fstests_log/kernel", &kernel, survive_in_the_kernel).long(),
    ]
}
