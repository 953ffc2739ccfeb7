//! What `.ci/run` calls: every rule, every test with every judge, thousands of power cuts, other people's suites, and packages where nothing else is.

use std::time::Instant;

use anyhow::{Result, bail};

use crate::crash::crash;
use crate::test::run_tests;
use crate::workspace::{cargo, run};
use crate::{fuzz, licences, release, sanitize, suites, tidy};

type Step = fn() -> Result<()>;

/// Runs all steps, also after one failed, and names those that did.
pub(crate) fn ci() -> Result<()> {
    let steps: [(&str, Step); 13] = [
        ("formatting", || run(&mut cargo(&["fmt", "--all", "--check"]))),
        ("tidy", tidy::tidy),
        ("licences", licences::check),
        ("clippy", clippy),
        ("documentation", documentation),
        ("fuzz's lock file", fuzz::check_lock),
        ("publishing", release::try_publishing),
        ("tests", || run_tests(&[], &[("CREAMERY_REQUIRE_JUDGES", "1")])),
        ("sanitizer", sanitize::sanitize),
        ("crash", || crash(&[])),
        ("pjdfstest", suites::pjdfstest),
        ("fsx", || suites::fsx(&[])),
        ("packages", release::release_in_ci),
    ];
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
            failed.push((name, error));
        }
    }
    println!("\n=== summary\n{}", told.join("\n"));
    if failed.is_empty() {
        return Ok(());
    }
    // Once more at the end: of a long log often only the end is kept.
    failed.iter().for_each(|(name, error)| println!("\n{name}: {error:#}"));
    bail!("failed: {}", failed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "))
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
