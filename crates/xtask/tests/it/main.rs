//! The project's own commands, run as a person runs them.

mod suites;

use std::process::ExitCode;

fn main() -> ExitCode {
    creamery_testkit::harness::main(suites::cases())
}
