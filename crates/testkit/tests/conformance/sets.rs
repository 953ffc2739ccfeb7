//! Filesystems of several devices that the kernel has made, and wrote to while some were away.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{LoopMount, Run};

use crate::support::{JUDGED, expect_refusal, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("sets/members-of-two-histories", &JUDGED, two_histories)]
}

/// Two mirrors in files.
fn mirrors(bench: &Bench, name: &str) -> Result<[PathBuf; 2]> {
    let files = [1, 2].map(|number| bench.scratch.file(&format!("{name}-{number}.img")));
    for file in &files {
        sparse_file(file, 256 << 20)?;
    }
    Run::new("mkfs.btrfs").args(["-q", "-d", "raid1", "-m", "raid1"]).args(&files).ok()?;
    Ok(files)
}

/// Has the kernel write to a set of which this member alone is there: so many commits of so many files.
fn write_to(bench: &Bench, member: &Path, commits: usize, files: usize) -> Result<()> {
    let mut mount = LoopMount::mount(member, &bench.scratch.file("kernel"), "degraded")?;
    for number in 0..commits {
        for file in 0..files {
            std::fs::write(mount.dir().join(format!("{number}-{file}")), vec![b'm'; 10_000])?;
        }
        Run::new("btrfs").args(["filesystem", "sync"]).arg(mount.dir()).ok()?;
    }
    let told = mount.unmount_and_tell()?;
    let others: Vec<&String> = told.iter().filter(|line| !line.contains("missing")).collect();
    ensure!(others.is_empty(), "the kernel complains: {others:?}");
    Ok(())
}

/// A member that was away has missed writes; two that were away from each other are of two histories, which nobody puts together again.
fn two_histories(bench: &Bench) -> Result<()> {
    let check = |files: &[&PathBuf]| bench.creamery().run(["check"]).args(files);
    let files = mirrors(bench, "set")?;
    let [first, second] = &files;
    check(&[first, second]).ok()?;
    write_to(bench, first, 1, 1)?;
    let refused = |[one, other]: [&PathBuf; 2], wanted: &[&str]| -> Result<()> {
        for order in [[one, other], [other, one]] {
            expect_refusal(check(&order), wanted)?;
        }
        Ok(())
    };
    refused([first, second], &["set-2.img missed writes", "-o degraded,ro"])?;
    // By the same steps, so that all addresses are equal.
    write_to(bench, second, 1, 1)?;
    refused([first, second], &["split brain", "set-1.img", "set-2.img", "-o degraded,ro"])?;
    let files = mirrors(bench, "longer")?;
    let [one, two] = &files;
    write_to(bench, one, 1, 1)?;
    write_to(bench, two, 1, 400)?;
    refused([one, two], &["split brain", "longer-1.img"])?;
    // Also when one has gone on for longer; the last commit of the other one is remembered for a few.
    write_to(bench, two, 1, 1)?;
    refused([one, two], &["split brain", "longer-1.img"])?;
    write_to(bench, two, 8, 1)?;
    refused([one, two], &["cannot be decided", "split brain"])?;
    // Copies, and members of other sets.
    let (copy, other) = (bench.scratch.file("copy.img"), mirrors(bench, "other")?);
    Run::new("cp").arg("--sparse=always").arg(first).arg(&copy).ok()?;
    expect_refusal(
        check(&[first, &copy]),
        &["both device 1", "one is a copy of the other", "name one of them"],
    )?;
    expect_refusal(check(&[first, first]), &["named twice"])?;
    expect_refusal(check(&[first, &other[1]]), &["is of filesystem"])?;
    expect_refusal(check(&[first]), &["device missing", "name all of its devices"]).map(drop)
}
