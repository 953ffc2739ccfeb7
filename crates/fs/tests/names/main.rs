//! Names, attributes and what becomes of them, on images made by mkfs.btrfs, judged by `btrfs check` and the kernel.

mod access_times;
mod acls;
mod attributes;
mod cached;
mod checksums;
mod clones;
mod device_errors;
mod entries;
mod links;
mod orphans;
mod renames;
mod subvolumes;
mod support;
mod verity;
mod waiting;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cases = [
        access_times::cases(),
        entries::cases(),
        links::cases(),
        renames::cases(),
        attributes::cases(),
        acls::cases(),
        orphans::cases(),
        subvolumes::cases(),
        waiting::cases(),
        cached::cases(),
        checksums::cases(),
        clones::cases(),
        verity::cases(),
        device_errors::cases(),
    ];
    creamery_testkit::harness::main(cases.into_iter().flatten().collect())
}
