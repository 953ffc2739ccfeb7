//! No space, at every allocation of a workload: small devices are filled, worked on while they are full, and emptied.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use creamery_base::ErrorKind;
use creamery_fs::FileType;
use creamery_mkfs::Profile;
use creamery_sim::{
    Driver, MadeBy, Operation, ROOT, SimDevice, Taste, check_image, fresh_image, random_run_on,
};
use creamery_testkit::{Judge, Judges, Scratch};

/// Fills the device with files of `size` until nothing more goes in, and says how many there are.
fn fill(driver: &mut Driver, size: usize, sync_every: usize) -> Result<Vec<Vec<u8>>> {
    const FILES_MAX: usize = 200_000;
    let mut names = Vec::new();
    for number in 0..FILES_MAX {
        let name = format!("name{number:06}").into_bytes();
        let make = Operation::Create { dir: ROOT, name: name.clone(), kind: FileType::File, mode: 0o644 };
        if let Some(error) = driver.try_apply(&make)? {
            ensure!(error.kind() == ErrorKind::NoSpace, "{error}");
            return Ok(names);
        }
        let inode = driver.model().child(ROOT, &name).context("the file that was made")?;
        names.push(name);
        let write = Operation::Write { inode, offset: 0, len: size, seed: number as u64 };
        if size > 0
            && let Some(error) = driver.try_apply(&write)?
        {
            ensure!(error.kind() == ErrorKind::NoSpace, "{error}");
            return Ok(names);
        }
        if number % sync_every == sync_every - 1 {
            driver.apply(&Operation::Sync)?;
        }
    }
    bail!("the device does not fill up");
}

fn fill_and_empty(made_by: MadeBy, size: usize, sync_every: usize) -> Result<()> {
    let device = Arc::new(SimDevice::new(fresh_image(&made_by)?));
    let mut driver = Driver::open_fresh(&device)?;
    let names = fill(&mut driver, size, sync_every).context("filling")?;
    driver.apply(&Operation::Sync).context("committing what is full")?;
    driver.compare().context("comparing what is full")?;
    let mut driver = driver.restart(&device).context("opening what is full")?;
    judge(&device).context("what is full")?;
    for name in &names {
        driver
            .apply(&Operation::Unlink { dir: ROOT, name: name.clone() })
            .context("emptying what is full")?;
    }
    driver.apply(&Operation::Sync)?;
    let again = fill(&mut driver, size, sync_every).context("filling again")?;
    ensure!(again.len() * 10 >= names.len() * 8, "{} files at first, then {}", names.len(), again.len());
    driver.restart(&device).context("opening what was filled again")?;
    judge(&device).context("what was filled again")
}

/// Fills the device, takes names away from half of what fills it while it is open, closes that - and at once writes as much to
/// an open file. The files are large or in many pieces.
fn refill(made_by: MadeBy, size: usize, piece: usize) -> Result<()> {
    let device = Arc::new(SimDevice::new(fresh_image(&made_by)?));
    let mut driver = Driver::open_fresh(&device)?;
    let make = Operation::Create { dir: ROOT, name: b"kept".to_vec(), kind: FileType::File, mode: 0o644 };
    driver.apply(&make)?;
    let kept = driver.model().child(ROOT, b"kept").context("the file that was made")?;
    driver.apply(&Operation::Open { inode: kept })?;
    let names = fill_in_pieces(&mut driver, size, piece).context("filling")?;
    driver.apply(&Operation::Sync)?;
    let go = &names[..names.len() / 2];
    let mut inodes = Vec::new();
    for name in go {
        let inode = driver.model().child(ROOT, name).context("a file that was made")?;
        driver.apply(&Operation::Open { inode })?;
        driver.apply(&Operation::Unlink { dir: ROOT, name: name.clone() })?;
        inodes.push(inode);
    }
    for inode in inodes {
        driver.apply(&Operation::Close { inode })?;
    }
    // Older and younger than those that go: whoever asks for room has its own inode locked while it is made.
    let last = names.last().and_then(|name| driver.model().child(ROOT, name)).context("the last one")?;
    driver.apply(&Operation::Open { inode: last })?;
    for number in 0..go.len() * 9 / 10 {
        let offset = (number * size) as u64;
        let inode = [kept, last][number % 2];
        let write = Operation::Write { inode, offset, len: size, seed: number as u64 };
        driver.apply(&write).with_context(|| format!("{number} of {} files' room", go.len()))?;
    }
    driver.restart(&device)?;
    judge(&device)
}

/// Files of `size`, each of extents of `piece`, until nothing more goes in.
fn fill_in_pieces(driver: &mut Driver, size: usize, piece: usize) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    loop {
        let name = format!("name{:06}", names.len()).into_bytes();
        let make = Operation::Create { dir: ROOT, name: name.clone(), kind: FileType::File, mode: 0o644 };
        driver.apply(&make)?;
        let inode = driver.model().child(ROOT, &name).context("the file that was made")?;
        for number in 0..size / piece {
            let offset = (number * piece) as u64;
            let write = Operation::Write { inode, offset, len: piece, seed: number as u64 };
            if let Some(error) = driver.try_apply(&write)? {
                ensure!(error.kind() == ErrorKind::NoSpace, "{error}");
                return Ok(names);
            }
        }
        names.push(name);
    }
}

fn judge(device: &SimDevice) -> Result<()> {
    match Judges::here().missing(Judge::BtrfsProgs) {
        Some(_) => Ok(()),
        None => check_image(&device.image(), &Scratch::new("sim-space")?),
    }
}

fn told(result: Result<()>) {
    if let Err(error) = result {
        panic!("{error:#}");
    }
}

/// The smallest device with two copies of metadata.
const DUP: MadeBy =
    MadeBy { len: 110 << 20, node_size: 16384, data: Profile::Single, metadata: Profile::Dup, mixed: false };
/// A small device with one copy of everything.
const SINGLE: MadeBy = MadeBy { len: 48 << 20, node_size: 4096, metadata: Profile::Single, ..DUP };
/// A very small device on which data and metadata share their chunks.
const MIXED: MadeBy = MadeBy { len: 20 << 20, mixed: true, ..SINGLE };

#[test]
fn a_device_full_of_data_can_be_emptied() {
    told(fill_and_empty(DUP, 500_000, 20));
    told(fill_and_empty(SINGLE, 100_000, 20));
    told(fill_and_empty(MIXED, 50_000, 20));
}

#[test]
fn a_device_full_of_data_that_was_never_committed_can_be_emptied() {
    told(fill_and_empty(SINGLE, 70_000, 100_000));
    told(fill_and_empty(MIXED, 20_000, 100_000));
}

#[test]
fn a_device_full_of_small_files_can_be_emptied() {
    told(fill_and_empty(SINGLE, 1500, 500));
    told(fill_and_empty(MIXED, 1500, 500));
}

#[test]
fn what_was_removed_makes_room_at_once() {
    told(refill(DUP, 2_000_000, 2_000_000));
    told(refill(SINGLE, 1_000_000, 1_000_000));
    told(refill(SINGLE, 400_000, 4096));
    told(refill(MIXED, 400_000, 4096));
}

#[test]
fn random_work_on_a_full_device_agrees_with_the_model() {
    for (number, made_by) in [DUP, SINGLE, MIXED, MIXED].into_iter().enumerate() {
        let size = made_by.len / 16;
        let taste = Taste {
            write_max: size / 4,
            size_max: size,
            names: 200,
            mistakes: 2,
            times: false,
            subvolumes: true,
            directories: 0,
        };
        match random_run_on(number as u64, 3000, &made_by, taste) {
            Ok((_, refused)) => assert!(refused > 50, "{made_by:?}: {refused} operations found no space"),
            Err(error) => panic!("{made_by:?}: {error:#}"),
        }
    }
}
