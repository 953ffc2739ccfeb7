//! Packages where nothing else is: each is installed in an empty root folder of its own, and the program does its work there by
//! chroot(8). No library, no shell and no other program is in reach; what it made is judged outside, by btrfs-progs.

mod bare;
mod container;
mod debian;
mod mounted;
mod roles;
mod tarball;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::{Judge, Judges, Scratch};

use super::make::{SUMS, make};
use super::parts::Parts;

type Trial = fn(&Parts, &Path) -> Result<()>;

/// By the names that the tables of what works have.
const TRIALS: [(&str, &[Judge], Trial); 6] = [
    ("packages/the-same-bytes-again", &[], the_same_again),
    ("packages/debian", &[Judge::Root, Judge::BtrfsProgs, Judge::Tool("dpkg")], debian::tried),
    ("packages/tarball", &[Judge::Root, Judge::BtrfsProgs], tarball::tried),
    ("packages/container", &[Judge::Root, Judge::BtrfsProgs], container::tried),
    (
        "packages/roles",
        &[Judge::Root, Judge::BtrfsProgs, Judge::Fuse, Judge::Tool("dpkg"), Judge::Tool("fusermount3")],
        roles::tried,
    ),
    ("packages/mounted", &[Judge::Root, Judge::BtrfsProgs, Judge::Fuse], mounted::tried),
];

/// Tries what lies in `out`. A trial whose judge is missing is named; gives the number of these.
pub(super) fn try_out(parts: &Parts, out: &Path) -> Result<u32> {
    let out = out.canonicalize()?;
    let mut skipped = 0;
    for (name, needs, trial) in TRIALS {
        let missing = |judge: &Judge| Some(format!("{judge} missing: {}", Judges::here().missing(*judge)?));
        if let Some(why) = needs.iter().find_map(missing) {
            println!("{name} ... skipped: {why}");
            skipped += 1;
            continue;
        }
        trial(parts, &out).with_context(|| name)?;
        println!("{name} ... ok");
    }
    Ok(skipped)
}

/// Packages are made once more of the same program, and have the same sums.
fn the_same_again(parts: &Parts, out: &Path) -> Result<()> {
    let scratch = Scratch::new("again")?;
    let again = scratch.file("release");
    make(parts, &again)?;
    let sums = |place: &Path| std::fs::read_to_string(place.join(SUMS));
    let (first, second) = (sums(out)?, sums(&again)?);
    ensure!(first == second, "made twice of the same program:\n{first}and\n{second}");
    Ok(())
}
