//! `cargo xtask big-endian`: the tests of what reads and writes bytes, on a machine that has the highest byte first.
//!
//! Btrfs has the lowest byte first, and so has nearly every machine that this is worked on: a conversion that was forgotten shows
//! nowhere else. The tests are built for s390x and run under qemu's interpreter of its instructions, with the host's kernel, which
//! takes seconds where an interpreter of Rust takes an hour, and has zstd's C code run, too.

use std::process::Command;

use anyhow::{Result, bail};

use crate::install::install_packages;
use creamery_workspace::{cargo, run, target};

/// Those that hold every structure of the disk, and the checksums, hashes and codecs.
const ROOMS: [&str; 2] = ["creamery-format", "creamery-codec"];
const TRIPLE: &str = "s390x-unknown-linux-gnu";
const COMPILER: &str = "s390x-linux-gnu-gcc";
const INTERPRETER: &str = "qemu-s390x";
/// What of the distribution brings the two, and the libraries that programs are linked with.
const PACKAGES: [&str; 3] = ["qemu-user", "gcc-s390x-linux-gnu", "libc6-dev-s390x-cross"];
const LIBRARIES: &str = "/usr/s390x-linux-gnu";

/// `cargo xtask big-endian`. Installs the cross compiler, the interpreter and the toolchain's library where they are missing.
pub(crate) fn big_endian() -> Result<()> {
    if lacks(COMPILER) || lacks(INTERPRETER) {
        install_packages(&PACKAGES)?;
    }
    run(Command::new("rustup").args(["target", "add", TRIPLE]))?;
    let variable = |name: &str| format!("CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_{name}");
    let mut tests = cargo(&["test", "--locked", "--no-fail-fast", "--lib", "--tests", "--target", TRIPLE]);
    tests.args(ROOMS.iter().flat_map(|room| ["--package", room]));
    tests.arg("--target-dir").arg(target().join("big-endian"));
    tests.env(variable("LINKER"), COMPILER).env("CC_s390x_unknown_linux_gnu", COMPILER);
    tests.env(variable("RUNNER"), format!("{INTERPRETER} -L {LIBRARIES}"));
    // To look up the lines of a backtrace takes the interpreter a minute, and tests of asserts make many.
    tests.env("CARGO_PROFILE_DEV_DEBUG", "false").env("RUST_BACKTRACE", "0");
    let status = tests.status()?;
    if !status.success() {
        bail!("tests failed on a big-endian machine ({status})");
    }
    Ok(())
}

fn lacks(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_err()
}
