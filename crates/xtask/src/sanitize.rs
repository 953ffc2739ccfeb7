//! `cargo xtask sanitize`: the tests of the rooms with `unsafe` code, and of those that use its memory most, under AddressSanitizer
//! and LeakSanitizer.
//!
//! Both come with the pinned toolchain; the flag is one of nightly's, which `RUSTC_BOOTSTRAP` makes the stable compiler take.

use std::process::Command;

use anyhow::{Result, bail};

use crate::watched::{SILENCE, watched};
use creamery_workspace::{cargo, run, target};

/// The rooms that have unsafe code and need no engine.
pub(crate) const WITH_UNSAFE: [&str; 3] = ["creamery-base", "creamery-device", "creamery-fuse"];
/// `mount` has a few calls of ioctl(2); `tree` and `fs` hold the guards and buffers of the others while threads race.
pub(crate) const ALL: [&str; 6] =
    ["creamery-base", "creamery-device", "creamery-fuse", "creamery-mount", "creamery-tree", "creamery-fs"];
/// Named, so that what runs while building (macros, build scripts) is built without the sanitizer.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// All that is allocated and lost is a failure; a report names where, and ends the test.
const OPTIONS: &str = "detect_leaks=1:detect_stack_use_after_return=1:strict_init_order=1";

/// Builds and runs the tests of `rooms` in a target folder of their own: nothing else is built with this flag.
pub(crate) fn sanitize(rooms: &[&str]) -> Result<()> {
    run(tests_of(rooms).arg("--no-run"))?;
    let status = watched(&mut tests_of(rooms), SILENCE, |line| {
        println!("{}", String::from_utf8_lossy(line));
        Ok(())
    })?;
    if !status.success() {
        bail!("tests failed under the sanitizer ({status})");
    }
    Ok(())
}

fn tests_of(rooms: &[&str]) -> Command {
    let mut tests =
        cargo(&["test", "--locked", "--no-fail-fast", "--lib", "--tests", "--examples", "--target", TRIPLE]);
    tests.args(rooms.iter().flat_map(|room| ["--package", room]));
    tests.arg("--target-dir").arg(target().join("sanitize"));
    tests.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address").env("ASAN_OPTIONS", OPTIONS);
    tests.env("CARGO_PROFILE_DEV_DEBUG", "false");
    tests
}
