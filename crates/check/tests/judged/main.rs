//! The verifier against the host's judges: clean images of many shapes, a table of damage, and random damage.

mod clean;
mod damage;
mod edges;
mod image;
mod mutation;
mod one_hash;
mod shapes;

use std::process::ExitCode;

fn main() -> ExitCode {
    let groups = [clean::cases(), damage::cases(), edges::cases(), mutation::cases(), one_hash::cases()];
    creamery_testkit::harness::main(groups.into_iter().flatten().collect())
}
