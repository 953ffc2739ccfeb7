//! `bench sets`: a large file of each profile, read once from front to back by the library and on the kernel's mount of the same members, with
//! and without members missing.
//!
//! Back of the envelope: 3 GiB out of memory files are copied once at some 8 GB/s and summed at more than 20, so 0.5 s on one core. The kernel
//! copies through loop devices into its page cache and out again. Where a member is missing, both read all that is left of each row and compute
//! the rest, at memory speed.

use std::path::Path;

use anyhow::{Result, bail};
use creamery_testkit::{Judge, Judges, LoopDevice, LoopMount, Run, Scratch};

use super::kernel_set::KernelSet;
use super::library::{Said, bench, build};
use super::measure::median;
use super::options::{BesideOptions, options};
use super::report::publish;

/// The profile, its members, and how many of them are missing.
const ROWS: [(&str, usize, usize); 8] = [
    ("raid1", 2, 0),
    ("raid0", 2, 0),
    ("raid10", 4, 0),
    ("raid5", 3, 0),
    ("raid5", 3, 1),
    ("raid6", 4, 0),
    ("raid6", 4, 1),
    ("raid6", 4, 2),
];
const MEMBER_BYTES: u64 = 8 << 30;

/// What both sides said of one row.
struct SetsTaken {
    row: (&'static str, usize, usize),
    ours: Vec<(f64, f64)>,
    theirs: Vec<(f64, f64)>,
}

/// `cargo xtask bench sets`.
pub(crate) fn sets(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 1, bytes: 3 << 30, runs: 3, dry: false }, words)?;
    let needed = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    if let Some(missing) = needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
        bail!("bench sets compares with the kernel's mounts of sets that it filled: {missing} is missing");
    }
    build()?;
    let scratch = Scratch::new("bench-sets")?;
    let mut table = Vec::new();
    let mut filled = None;
    for row in ROWS {
        if filled != Some((row.0, row.1)) {
            fill(&scratch, row.0, row.1, options.bytes)?;
            filled = Some((row.0, row.1));
        }
        let mut taken = SetsTaken { row, ours: Vec::new(), theirs: Vec::new() };
        for round in 1..=options.runs {
            let (ours, theirs) =
                (by_library(&scratch, row, options.bytes)?, by_kernel(&scratch, row, options.bytes)?);
            println!("  run {round}: {} without {}: {:.3} s, {:.3} s", row.0, row.2, ours.0, theirs.0);
            taken.ours.push(ours);
            taken.theirs.push(theirs);
        }
        table.push(taken);
    }
    let text = format!(
        "{}\n`cargo xtask bench sets --bytes {} --runs {}`: one file of {} bytes, read once in pieces of 128 KiB; image files on tmpfs, the kernel's \
         members loop devices over the same files; sides alternating, medians of {}.",
        told(&table),
        options.bytes,
        options.runs,
        options.bytes,
        options.runs
    );
    publish("bench sets", &text, options.dry)
}

fn member(scratch: &Scratch, number: usize) -> std::path::PathBuf {
    scratch.file(&format!("member-{number}.img"))
}

/// Has the kernel make the set and fill it.
fn fill(scratch: &Scratch, profile: &str, count: usize, bytes: u64) -> Result<()> {
    let words = ["-m", profile, "-d", profile];
    let write = |dir: &Path| bench("write", "--dir", dir, &[("--bytes", bytes.to_string())]).map(drop);
    KernelSet::make(scratch, (count, MEMBER_BYTES), &words, write).map(drop)
}

/// Wall and processor seconds.
fn seconds(said: &Said) -> Result<(f64, f64)> {
    Ok((said.number("work_seconds")?, said.number("cpu_seconds")?))
}

fn by_library(
    scratch: &Scratch,
    (_, count, missing): (&str, usize, usize),
    bytes: u64,
) -> Result<(f64, f64)> {
    let left = left(scratch, count, missing)?;
    let switches = [("--read-only", "on".to_owned()), ("--degraded", "on".to_owned())];
    let options = [&switches[..], &[("--bytes", bytes.to_string())]].concat();
    seconds(&bench("read", "--image", &left.join(format!("member-{missing}.img")), &options)?)
}

/// A folder with links to the members that are not missing.
fn left(scratch: &Scratch, count: usize, missing: usize) -> Result<std::path::PathBuf> {
    let left = scratch.file("left");
    let _ = std::fs::remove_dir_all(&left);
    std::fs::create_dir(&left)?;
    for number in missing..count {
        std::fs::hard_link(member(scratch, number), left.join(format!("member-{number}.img")))?;
    }
    Ok(left)
}

fn by_kernel(scratch: &Scratch, (_, count, missing): (&str, usize, usize), bytes: u64) -> Result<(f64, f64)> {
    let loops = (missing + 1..count).map(|number| LoopDevice::attach(&member(scratch, number), true));
    let loops = loops.collect::<Result<Vec<_>>>()?;
    let paths = || loops.iter().map(LoopDevice::path);
    let first: &Path = &member(scratch, missing);
    if !loops.is_empty() {
        Run::new("btrfs").args(["device", "scan"]).args(paths()).ok()?;
    }
    let mut mount = LoopMount::mount(first, &scratch.file("mounted"), "ro,degraded")?;
    let said = bench("read", "--dir", mount.dir(), &[("--bytes", bytes.to_string())]);
    // The kernel says that members are missing.
    mount.unmount_and_tell()?;
    if !loops.is_empty() {
        Run::new("btrfs").args(["device", "scan", "--forget"]).args(paths()).ok()?;
    }
    loops.into_iter().try_for_each(LoopDevice::detach)?;
    seconds(&said?)
}

fn told(table: &[SetsTaken]) -> String {
    let mut text = String::from(
        "| profile | members | missing | library | kernel | as fast | processor time, library | kernel |\n|---|---|---|---|---|---|---|---|\n",
    );
    for SetsTaken { row: (profile, count, missing), ours, theirs } in table {
        let middle = |taken: &[(f64, f64)]| {
            let both = [0, 1].map(|which| {
                median(&taken.iter().map(|one| if which == 0 { one.0 } else { one.1 }).collect::<Vec<_>>())
            });
            (both[0], both[1])
        };
        let (ours, theirs) = (middle(ours), middle(theirs));
        text += &format!(
            "| {profile} | {count} | {missing} | {:.3} s | {:.3} s | {:.2} | {:.2} s | {:.2} s |\n",
            ours.0,
            theirs.0,
            theirs.0 / ours.0,
            ours.1,
            theirs.1
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{SetsTaken, told};

    #[test]
    fn a_row_has_medians_and_the_ratio() {
        let taken = SetsTaken {
            row: ("raid6", 4, 2),
            ours: vec![(2.0, 1.0), (1.0, 3.0), (3.0, 2.0)],
            theirs: vec![(9.0, 4.0), (8.0, 5.0), (4.0, 6.0)],
        };
        assert!(told(&[taken]).ends_with("| raid6 | 4 | 2 | 2.000 s | 8.000 s | 4.00 | 2.00 s | 5.00 s |\n"));
    }
}
