//! A full filesystem whose leaves a snapshot shares: a removal takes space there, because changed leaves are copied, and the copies refer
//! to everything that the leaf names. The snapshot can be deleted nevertheless.

use creamery::env::Tuning;
use creamery::extents::Fallocate;
use creamery::{ErrorKind, Filesystem, Image, OpenOptions, Result};

const BLOCK: u64 = 4096;

/// Every write is an extent, and deleted files are only dropped on request.
fn tuning() -> Tuning {
    let mut tuning = Tuning::default();
    tuning.delayed_bytes = 0;
    tuning.background_threads = Some(0);
    tuning
}

/// Each block of the file is an extent, and neighbours in the file are not neighbours on the volume.
fn scatter(fs: &Filesystem, path: &str, blocks: u64) -> Result<()> {
    let file = OpenOptions::new().write(true).create(true).open(fs, path)?;
    for step in 0..blocks {
        let block = step * 7919 % blocks;
        file.write_at(&[step as u8; BLOCK as usize], block * BLOCK)?;
    }
    Ok(())
}

/// Uses all metadata space.
fn fill(fs: &Filesystem) -> Result<()> {
    fs.create_dir("/fill")?;
    for number in 0.. {
        match fs.write(format!("/fill/{number}"), [7; 1800]) {
            Err(error) if error.kind() == ErrorKind::NoSpace => break,
            other => other?,
        }
    }
    Ok(())
}

fn punch_until_full(size: u64, blocks: u64) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(size).run()?;
    let fs = Image::options().write().tuning(tuning()).open(&image)?;
    fs.subvolumes().create("/project")?;
    scatter(&fs, "/project/file", blocks)?;
    fs.subvolumes().snapshot("/project", "/before").read_only().run()?;
    fill(&fs)?;
    let file = OpenOptions::new().write(true).open(&fs, "/project/file")?;
    let mut refused = 0;
    for step in 0..2000 {
        let block = step * 10_007 % blocks;
        match file.fallocate(Fallocate::PunchHole, block * BLOCK, BLOCK) {
            Err(error) if error.kind() == ErrorKind::NoSpace => refused += 1,
            other => other?,
        }
    }
    assert!(refused < 2000, "nothing could be removed of what is shared");
    fs.sync()?;
    fs.subvolumes().delete("/before")?;
    fs.subvolumes().sync_deleted(|_| Ok(()))?;
    file.fallocate(Fallocate::PunchHole, 0, blocks * BLOCK)?;
    fs.write("/there is room", [7; 1 << 20])?;
    fs.close()
}

#[test]
fn a_snapshot_can_be_deleted_after_all_that_copies_of_its_leaves_took() -> Result<()> {
    punch_until_full(256 << 20, 20_000)
}

#[test]
fn the_same_where_each_reference_is_in_another_leaf() -> Result<()> {
    punch_until_full(1500 << 20, 200_000)
}
