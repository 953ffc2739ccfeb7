//! How many devices there are is the chunk tree's word, not the superblock's.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Run, btrfs_check};

use crate::support::{JUDGED, crc32c, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("devices/the-superblock-counts-too-many", &JUDGED, too_many)]
}

const SUPERBLOCKS: [u64; 2] = [64 << 10, 64 << 20];
const SUPERBLOCK_LEN: usize = 4096;
/// Offset of the number of devices in a superblock.
const NUMBER: usize = 136;

fn set_number(image: &Path, number: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(image)?;
    let mut bytes = [0; SUPERBLOCK_LEN];
    for at in SUPERBLOCKS {
        file.read_exact_at(&mut bytes, at)?;
        bytes[NUMBER..NUMBER + 8].copy_from_slice(&number.to_le_bytes());
        let sum = crc32c(&bytes[32..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&bytes, at)?;
    }
    Ok(())
}

fn number(image: &Path) -> Result<String> {
    let said = Run::new("btrfs").args(["inspect-internal", "dump-super"]).arg(image).ok()?.stdout_text();
    let line = said.lines().find_map(|line| line.strip_prefix("num_devices"));
    Ok(line.unwrap_or_default().trim().to_owned())
}

fn too_many(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["--csum", "crc32c"], "256M", &image)?;
    set_number(&image, 8)?;
    let theirs = Run::new("btrfs").arg("check").arg(&image).output()?;
    ensure!(theirs.code != Some(0), "btrfs check does not mind: {theirs}");
    let ours = bench.creamery().run(["check"]).arg(&image).output()?;
    let said = ours.stdout_text() + &ours.stderr_text();
    ensure!(ours.code == Some(4) && said.contains("107"), "check: {ours}");
    bench.creamery().run(["inspect-internal", "dump-tree"]).arg(&image).ok()?;
    bench.creamery().run(["inspect-internal", "dump-super"]).arg(&image).ok()?;
    let listed = bench.creamery().run(["ls"]).arg(inside(&image, "/")).ok()?;
    let said = listed.stderr_text();
    ensure!(said.contains("number of devices is wrong, expected 1, found 8"), "ls says {said:?}");
    ensure!(number(&image)? == "8", "reading has written");
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/made")).ok()?;
    ensure!(number(&image)? == "1", "after a commit the superblock counts {}", number(&image)?);
    bench.creamery().run(["check"]).arg(&image).ok()?;
    btrfs_check(&image)
}
