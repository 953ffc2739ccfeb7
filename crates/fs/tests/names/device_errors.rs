//! The errors that are counted of a device: what we write Linux shows, and what it leaves we read and reset.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_base::DevId;
use creamery_fs::DeviceErrors;
use creamery_testkit::Judge::{BtrfsProgs, KernelBtrfs, LoopDevices, Root};
use creamery_testkit::Run;
use creamery_testkit::harness::{Bench, Case};

use crate::support::ImageFixture;

const FIRST: DevId = DevId::new(1);
const SOME: DeviceErrors = DeviceErrors { write: 1, read: 2, flush: 3, corruption: 4, generation: 5 };

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[BtrfsProgs, KernelBtrfs, LoopDevices, Root];
    vec![
        Case::new("device_errors/of_ours_are_shown_and_kept_by_the_kernel", kernel, of_ours),
        Case::new("device_errors/that_the_kernel_kept_are_reset", kernel, reset),
    ]
}

/// What btrfs-progs print of a mount of the kernel.
fn shown(dir: &Path, options: &[&str]) -> Result<DeviceErrors> {
    let said = Run::new("btrfs").args(["device", "stats"]).args(options).arg(dir).ok()?.stdout_text();
    let count = |line: &str| line.split_whitespace().last().and_then(|count| count.parse().ok());
    let counts: Option<Vec<u64>> = said.lines().map(count).collect();
    let counts = counts.filter(|counts| counts.len() == 5);
    Ok(DeviceErrors::of_counts(&counts.with_context(|| format!("five numbers: {said}"))?))
}

/// Has the kernel do some work on a filesystem of which it logs no more than what it finds counted.
fn with_kernel<T>(fs: &mut ImageFixture, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let (result, log) = fs.with_telling_kernel(work)?;
    ensure!(log.iter().all(|line| line.contains(" errs: wr ")), "the kernel logged {log:?}");
    Ok(result)
}

fn of_ours(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    fs.add_device_errors(FIRST, &SOME)?;
    let told = with_kernel(&mut fs, |dir| {
        std::fs::write(dir.join("theirs"), "text")?;
        shown(dir, &[])
    })?;
    ensure!(told == SOME, "{told:?}");
    ensure!(fs.device_errors(FIRST)? == SOME, "the kernel left {:?}", fs.device_errors(FIRST)?);
    fs.add_device_errors(FIRST, &SOME)?;
    let sum = DeviceErrors { write: 2, read: 4, flush: 6, corruption: 8, generation: 10 };
    // The kernel tells them, and writes its own zeros with its next transaction.
    let told = with_kernel(&mut fs, |dir| {
        let told = shown(dir, &["-z"])?;
        std::fs::write(dir.join("later"), "text")?;
        Ok(told)
    })?;
    ensure!(told == sum, "{told:?}");
    ensure!(!fs.device_errors(FIRST)?.any(), "the kernel left {:?}", fs.device_errors(FIRST)?);
    fs.add_device_errors(FIRST, &SOME)?;
    let told = with_kernel(&mut fs, |dir| shown(dir, &[]))?;
    ensure!(told == SOME, "on top of its zeros: {told:?}");
    fs.judge()
}

fn reset(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    fs.add_device_errors(FIRST, &SOME)?;
    with_kernel(&mut fs, |dir| Ok(std::fs::write(dir.join("theirs"), "text")?))?;
    ensure!(fs.reset_device_errors(FIRST)? == SOME, "as they were");
    // It finds nothing to log.
    let told = fs.with_kernel("", |dir| shown(dir, &[]))?;
    ensure!(!told.any(), "{told:?}");
    ensure!(!fs.reset_device_errors(FIRST)?.any(), "they are reset");
    fs.judge()
}
