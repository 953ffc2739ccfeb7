//! `cargo xtask crash`: power cuts on a simulated device, by the program of that name in `sim`.

use std::process::Command;

use anyhow::Result;

use creamery_workspace::with_faults;
use creamery_workspace::{cargo, run, target};

/// Builds the program as the tests are built, so that nothing of the engine is built twice, and runs it.
pub(crate) fn crash(options: &[&str]) -> Result<()> {
    run(&mut cargo(&with_faults(&["build", "--bin", "crash"])))?;
    run(Command::new(target().join("debug/crash")).args(options))
}
