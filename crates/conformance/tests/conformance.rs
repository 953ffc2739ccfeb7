//! Runs the cases of this crate on the program of `CREAMERY_BIN`, or on the one that this workspace built.

use std::process::ExitCode;

fn main() -> ExitCode {
    creamery_testkit::harness::main(creamery_conformance::cases())
}
