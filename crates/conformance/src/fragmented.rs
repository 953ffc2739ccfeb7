//! Free space in pieces of one sector: Linux lists it as bitmaps, and we hand it out.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Random, Run, btrfs_check};
use rustix::fs::OFlags;

use crate::support::{MOUNTED, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("fragmented/every-other-sector-is-free", &MOUNTED, every_other)]
}

const SECTOR: usize = 4096;
/// Sectors of each of two files.
const SECTORS: usize = 6000;

/// Two files whose sectors alternate on the disk, of which the first is kept.
fn make(dir: &Path) -> Result<()> {
    let direct = i32::try_from(OFlags::DIRECT.bits())?;
    let create =
        |name: &str| File::options().write(true).create_new(true).custom_flags(direct).open(dir.join(name));
    let (kept, removed) = (create("kept")?, create("removed")?);
    let mut memory = vec![0; 2 * SECTOR];
    // Direct writes want aligned memory.
    let at = memory.as_ptr().align_offset(SECTOR);
    let sector = &mut memory[at..at + SECTOR];
    for number in 0..SECTORS {
        sector.fill(number as u8);
        for file in [&kept, &removed] {
            file.write_all_at(sector, (number * SECTOR) as u64)?;
        }
    }
    Run::new("sync").arg("-f").arg(dir).ok()?;
    Ok(std::fs::remove_file(dir.join("removed"))?)
}

fn bitmaps(image: &Path) -> Result<usize> {
    let said = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "10"]).arg(image).ok()?;
    Ok(said.stdout_text().matches(" FREE_SPACE_BITMAP ").count())
}

/// Small files that fit into the pieces, and one that takes many of them.
fn write(dir: &Path, name: &str, random: &mut Random) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for number in 0..200 {
        let bytes = random.bytes(SECTOR * (1 + number % 3));
        std::fs::write(dir.join(format!("{name}-{number}")), &bytes)?;
        all.extend(bytes);
    }
    let bytes = random.bytes(24 << 20);
    std::fs::write(dir.join(format!("{name}-large")), &bytes)?;
    all.extend(bytes);
    Ok(all)
}

fn expect(dir: &Path, files: &[(&str, Vec<u8>)]) -> Result<()> {
    let kept: Vec<u8> = (0..SECTORS).flat_map(|number| vec![number as u8; SECTOR]).collect();
    ensure!(std::fs::read(dir.join("kept"))? == kept, "the sectors between have changed");
    for (name, want) in files {
        let mut found = Vec::new();
        for number in 0..200 {
            found.extend(std::fs::read(dir.join(format!("{name}-{number}")))?);
        }
        found.extend(std::fs::read(dir.join(format!("{name}-large")))?);
        ensure!(found == *want, "files {name} have changed");
    }
    Ok(())
}

fn every_other(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let point = bench.scratch.file("mounted");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = LoopMount::mount(&image, &point, "")?;
    make(mount.dir())?;
    mount.unmount()?;
    ensure!(bitmaps(&image)? > 0, "Linux lists no free space as bitmaps");
    let mut random = Random::new(11);
    let fuse = bench.scratch.file("fuse");
    let mount = FuseMount::mount(bench.creamery(), &image, &fuse, "")?;
    let ours = write(mount.dir(), "ours", &mut random)?;
    mount.unmount()?;
    btrfs_check(&image)?;
    let mount = LoopMount::mount(&image, &point, "")?;
    expect(mount.dir(), &[("ours", ours.clone())])?;
    let theirs = write(mount.dir(), "theirs", &mut random)?;
    std::fs::remove_file(mount.dir().join("ours-7"))?;
    std::fs::write(mount.dir().join("ours-7"), &ours[SECTOR * 13..SECTOR * 15])?;
    mount.unmount()?;
    btrfs_check(&image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &fuse, "")?;
    expect(mount.dir(), &[("ours", ours), ("theirs", theirs)])?;
    Run::new("find").arg(mount.dir()).args(["-type", "f", "-delete"]).ok()?;
    mount.unmount()?;
    btrfs_check(&image)
}
