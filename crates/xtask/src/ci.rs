//! `cargo xtask ci`, which `.ci/run` calls on every change: the first of two tiers.
//!
//! Every rule, every test with every judge, a share of each matrix from a fixed seed. It is to end within 25 minutes on two quiet
//! cores, so nothing of the engine is built twice in one form. What takes longer runs before a release: `cargo xtask proof`.

use anyhow::{Context, Result};

use crate::crash::crash;
use crate::install::install_missing;
use crate::steps::{Step, run_step, run_steps, sum_up};
use crate::test::run_tests;
use crate::{fuzz, sanitize};
use creamery_workspace::with_faults;
use creamery_workspace::{build_tested, cargo, run};

const WITHOUT_THE_PROGRAM: [Step; 6] = [
    ("formatting", || run(&mut cargo(&["fmt", "--all", "--check"]))),
    ("tidy", creamery_tidy::tidy),
    ("clippy", clippy),
    ("documentation", documentation),
    ("fuzz's lock file", fuzz::check_lock),
    ("sanitizer", || sanitize::sanitize(&sanitize::WITH_UNSAFE)),
];

const WITH_THE_PROGRAM: [Step; 2] = [
    ("tests", || run_tests(&[], &[("CREAMERY_REQUIRE_JUDGES", "1")])),
    ("crash", || crash(&["--states", "600", "--judged", "60"])),
];

/// Runs all steps, also after one failed, and names those that did. The program that the tests look at is built beside the steps that
/// need none.
pub(crate) fn ci() -> Result<()> {
    // Of all that follows nothing is to be left out for want of a judge.
    install_missing().context("installing what the tests need")?;
    let mut done = std::thread::scope(|scope| {
        let building = scope.spawn(|| run_step("the program", || build_tested().map(drop)));
        let mut done = run_steps(&WITHOUT_THE_PROGRAM);
        done.extend(building.join());
        done
    });
    done.extend(run_steps(&WITH_THE_PROGRAM));
    sum_up(&done)
}

fn clippy() -> Result<()> {
    run(cargo(&with_faults(&["clippy", "--all-targets"])).args(["--", "-D", "warnings"]))?;
    // The locks of a scheduler are in no other build.
    let scheduled = ["clippy", "-p", "creamery-tree", "-p", "creamery-txn", "-p", "creamery-sim"];
    run(cargo(&scheduled)
        .args("--features shuttle --lib --test schedules --locked -- -D warnings".split(' ')))
}

fn documentation() -> Result<()> {
    run(cargo(&with_faults(&["doc", "--no-deps"])).env("RUSTDOCFLAGS", "-D warnings"))
}
