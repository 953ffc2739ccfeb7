//! The project's own commands, run as a person runs them.

mod benches;
mod suites;

use std::process::ExitCode;

fn main() -> ExitCode {
    creamery_testkit::harness::main([benches::cases(), suites::cases()].into_iter().flatten().collect())
}
