//! Quotas of filesystems of which not everything can be counted.

use std::fs;

use anyhow::{Result, ensure};
use creamery_testkit::FuseMount;
use creamery_testkit::harness::{Bench, Case};

use crate::hostile::Victim;
use crate::item_types::{DIR_INDEX, QGROUP_STATUS};
use crate::support::{MOUNTED, expect_refusal, inside, mkfs_empty, mkfs_from};

const TOP_LEVEL: u64 = 5;
/// Where the flags of a status are, and the one that says that the numbers are wrong.
const STATUS_FLAGS: usize = 16;
const INCONSISTENT: u8 = 4;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("quotas/that-cannot-be-counted", &MOUNTED, that_cannot_be_counted),
        Case::new("quotas/enabled-while-inconsistent", &MOUNTED, enabled_while_inconsistent),
    ]
}

/// A rescan ends at a block that cannot be read: the command says so, and the status tells no rescan that nobody goes on with.
fn that_cannot_be_counted(bench: &Bench) -> Result<()> {
    let (image, source) = (bench.scratch.file("disk.img"), bench.scratch.dir("source")?);
    fs::create_dir(source.join("dir"))?;
    for number in 0..900 {
        fs::write(source.join(format!("dir/file {number}")), format!("of file {number}"))?;
    }
    mkfs_from(bench.creamery(), &["-b", "256M"], &source, &image)?;
    // Whose the leaves are that both share only their blocks tell.
    bench
        .creamery()
        .run(["subvolume", "snapshot"])
        .args([inside(&image, "/"), inside(&image, "/snapshot")])
        .ok()?;
    let mut victim = Victim::new(image.clone())?;
    victim.keep_blocks_of(TOP_LEVEL)?;
    let edited = victim.edit(DIR_INDEX, &mut |key, _| {
        let is_in_the_middle = key[9..17] == 450_u64.to_le_bytes();
        if is_in_the_middle {
            key[8] = 0;
        }
        is_in_the_middle
    })?;
    ensure!(edited >= 1, "no entry is damaged");
    drop(victim);
    let status = |place: &std::path::Path| -> Result<()> {
        let said = bench.creamery().run(["quota", "status"]).arg(place).ok()?.stdout_text();
        let is_honest = said.contains("Inconsistent:  yes") && said.contains("Rescan:        not running");
        ensure!(is_honest, "{said}");
        Ok(())
    };
    let why = ["the rescan is incomplete", "keys out of order"];
    for command in ["enable", "rescan"] {
        expect_refusal(bench.creamery().run(["quota", command]).arg(&image), &why)?;
        status(&image)?;
    }
    bench.creamery().run(["quota", "disable"]).arg(&image).ok()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    for words in [&["quota", "enable"][..], &["quota", "rescan", "-w"]] {
        expect_refusal(bench.creamery().run(words).arg(mount.dir()), &why)?;
        status(mount.dir())?;
    }
    // What is written meanwhile is not held up.
    fs::write(mount.dir().join("new"), "new")?;
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    mount.unmount()?;
    status(&image)
}

/// Quotas that are on stay as they are.
fn enabled_while_inconsistent(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-O", "quota"], "256M", &image)?;
    let edited = Victim::new(image.clone())?.edit(QGROUP_STATUS, &mut |_, data| {
        data[STATUS_FLAGS] |= INCONSISTENT;
        true
    })?;
    ensure!(edited >= 1, "there is no status");
    let enabled = bench.creamery().run(["quota", "enable"]).arg(&image).ok()?;
    ensure!(enabled.stderr_text().contains("quota rescan"), "{enabled}");
    bench.creamery().run(["quota", "rescan"]).arg(&image).ok()?;
    let enabled = bench.creamery().run(["quota", "enable"]).arg(&image).ok()?;
    ensure!(enabled.stderr_text().is_empty(), "{enabled}");
    creamery_testkit::btrfs_check(&image)?;
    Ok(())
}
