//! The two programs, run as a person runs them.

mod beside;
mod workloads;

use std::process::ExitCode;

fn main() -> ExitCode {
    creamery_testkit::harness::main([beside::cases(), workloads::cases()].into_iter().flatten().collect())
}
