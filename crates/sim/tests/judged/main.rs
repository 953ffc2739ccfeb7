//! States that power cuts leave, and the outcome of random work, before the kernel and btrfs-progs.

mod fstests_log;
mod power_cut;

use std::process::ExitCode;

fn main() -> ExitCode {
    // The modes that are asked for are the modes that are meant.
    rustix::process::umask(rustix::fs::Mode::empty());
    creamery_testkit::harness::main(
        [power_cut::cases(), fstests_log::harness_cases()].into_iter().flatten().collect(),
    )
}
