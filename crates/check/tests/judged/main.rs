//! The verifier against the host's judges: clean images of many shapes, a table of damage, and random damage.

mod clean;
mod damage;
mod image;
mod mutation;
mod shapes;

use std::process::ExitCode;

fn main() -> ExitCode {
    let groups = [clean::cases(), damage::cases(), mutation::cases()];
    creamery_testkit::harness::main(groups.into_iter().flatten().collect())
}
