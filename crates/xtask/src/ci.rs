//! What `.ci/run` calls: every rule, every test with every judge, thousands of power cuts, other people's suites, and packages where nothing else is.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use crate::crash::crash;
use crate::install::install_missing;
use crate::test::run_tests;
use crate::workspace::{cargo, run};
use crate::{fuzz, licences, release, sanitize, suites, tidy};

type Step = (&'static str, fn() -> Result<()>);

const WITHOUT_THE_PROGRAM: [Step; 8] = [
    ("formatting", || run(&mut cargo(&["fmt", "--all", "--check"]))),
    ("tidy", tidy::tidy),
    ("licences", licences::check),
    ("clippy", clippy),
    ("documentation", documentation),
    ("fuzz's lock file", fuzz::check_lock),
    ("publishing", release::try_publishing),
    ("sanitizer", sanitize::sanitize),
];

const WITH_THE_PROGRAM: [Step; 5] = [
    ("tests", || run_tests(&[], &[("CREAMERY_REQUIRE_JUDGES", "1")])),
    ("crash", || crash(&[])),
    ("pjdfstest", suites::pjdfstest),
    ("fsx", || suites::fsx(&[])),
    ("packages", release::release_in_ci),
];

/// Runs all steps, also after one failed, and names those that did. The program that the tests look at is the one that is handed out;
/// it is built beside what needs none.
pub(crate) fn ci() -> Result<()> {
    // Of all that follows nothing is to be left out for want of a judge.
    install_missing().context("installing what the tests need")?;
    let (program, before) = std::thread::scope(|scope| {
        let building = scope.spawn(release::program);
        let before = all(&WITHOUT_THE_PROGRAM);
        (building.join(), before)
    });
    let program = program.map_err(|_| anyhow!("building the program panicked")).flatten();
    let mut judged = Command::new(std::env::current_exe().context("where xtask is")?);
    judged.args(["ci", "judged"]);
    if let Ok(program) = &program {
        judged.env("CREAMERY_BIN", program);
    }
    let judged = run(&mut judged);
    // Once more at the end: of a long log often only the end is kept.
    let results =
        [("the program", program.map(drop)), ("what needs no program", before), ("the rest", judged)];
    let failed: Vec<String> = results
        .into_iter()
        .filter_map(|(name, result)| result.err().map(|error| format!("{name}: {error:#}")))
        .collect();
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}

/// The steps that need the program: that of `CREAMERY_BIN`, or they build one.
pub(crate) fn judged() -> Result<()> {
    all(&WITH_THE_PROGRAM)
}

fn all(steps: &[Step]) -> Result<()> {
    let mut failed = Vec::new();
    let mut told = Vec::new();
    for (name, step) in steps {
        println!("\n=== {name}");
        let start = Instant::now();
        let result = step();
        let seconds = start.elapsed().as_secs_f64();
        told.push(format!("  {name}: {} ({seconds:.0} s)", if result.is_ok() { "ok" } else { "FAILED" }));
        if let Err(error) = result {
            println!("xtask: {name}: {error:#}");
            failed.push(format!("{name}: {error:#}"));
        }
    }
    println!("\n=== summary\n{}", told.join("\n"));
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}

fn clippy() -> Result<()> {
    run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--features",
        "creamery-sim/faults",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    ["creamery-tree", "creamery-txn", "creamery-sim"].into_iter().try_for_each(|package| {
        let scheduled =
            ["clippy", "--package", package, "--features", "shuttle", "--all-targets", "--locked"];
        run(cargo(&scheduled).args(["--", "-D", "warnings"]))
    })
}

fn documentation() -> Result<()> {
    run(cargo(&["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"))
}
