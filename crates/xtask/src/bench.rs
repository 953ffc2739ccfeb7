//! `cargo xtask bench NAME [OPTIONS]`: builds the program that measures, in `crates/bench`, and runs it.

use std::process::Command;

use anyhow::Result;
use creamery_workspace::{cargo, run, target, with_faults};

/// The program that runs each workload on all sides.
const PROGRAM: &str = "creamery-bench-beside";

/// Runs the bench that `words` name. A quick run measures nothing, so it is built as tests are, which most likely is done.
pub(crate) fn bench(words: &[&str]) -> Result<()> {
    let (build, folder) = if words.contains(&"--quick") {
        (with_faults(&["build", "--quiet"]), "debug")
    } else {
        (vec!["build", "--quiet", "--locked", "--release", "--package", "creamery-bench"], "release")
    };
    run(cargo(&build).args(["--bin", PROGRAM]))?;
    run(Command::new(target().join(folder).join(PROGRAM)).args(words))
}
