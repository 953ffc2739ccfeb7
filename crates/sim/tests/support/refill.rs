//! Space that comes back: on a full device, removed files make room for new ones.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use creamery_base::ErrorKind;
use creamery_fs::FileType;
use creamery_mkfs::Profile;
use creamery_sim::{Driver, MadeBy, Operation, ROOT, SimDevice, check_image, fresh_image};
use creamery_testkit::{Judge, Judges, Scratch};
use creamery_txn::Engine;

/// The smallest device with two copies of metadata.
pub(crate) const DUP: MadeBy = MadeBy {
    len: 110 << 20,
    node_size: 16384,
    data: Profile::Single,
    metadata: Profile::Dup,
    mixed: false,
    no_holes: true,
};
/// A small device with one copy of everything.
pub(crate) const SINGLE: MadeBy = MadeBy { len: 48 << 20, node_size: 4096, metadata: Profile::Single, ..DUP };

/// Fills the device, removes half of the files while they are open, closes them - and at once writes as much to an open file. The files are
/// large or in many pieces. `plant` may set a failpoint first.
pub(crate) fn refill(made_by: MadeBy, size: usize, piece: usize, plant: fn(&Engine)) -> Result<()> {
    let device = Arc::new(SimDevice::new(fresh_image(&made_by)?));
    let mut driver = Driver::open_fresh_undelayed(&device)?;
    plant(driver.filesystem().engine());
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
    // The files are older and younger than the removed ones: a write that asks for room has its own inode locked while the room is made.
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

/// Makes files of `size`, each of extents of `piece`, until the device is full.
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

pub(crate) fn judge(device: &SimDevice) -> Result<()> {
    match Judges::here().missing(Judge::BtrfsProgs) {
        Some(_) => Ok(()),
        None => check_image(&device.image(), &Scratch::new("sim-space")?),
    }
}
