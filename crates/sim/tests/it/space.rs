//! Lack of space at every allocation of a workload: small devices are filled, used while they are full, and emptied.

use std::sync::{Arc, Barrier};

use anyhow::{Context, Result, bail, ensure};
use creamery_base::{ErrorKind, InodeId, ObjectId, TreeId};
use creamery_device::BlockDevice;
use creamery_fs::FileType;
use creamery_sim::{Driver, MadeBy, Operation, ROOT, SimDevice, Taste, fresh_image, random_run_on};
use creamery_testkit::share_or_whole;
use creamery_txn::{Engine, Handle, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

use crate::refill::{DUP, SINGLE, judge, refill};
use crate::steps::{PIECES, Took, overwrite_in_steps};

/// An interval of syncs that is never reached.
const NEVER: usize = usize::MAX;

/// Fills the device with files of `size`, and returns their names.
fn fill(driver: &mut Driver, size: usize, sync_every: usize) -> Result<Vec<Vec<u8>>> {
    fill_with(driver, "name", size, sync_every)
}

/// Fills the device with files of `size` whose names begin with `prefix`.
fn fill_with(driver: &mut Driver, prefix: &str, size: usize, sync_every: usize) -> Result<Vec<Vec<u8>>> {
    const FILES_MAX: usize = 200_000;
    let mut names = Vec::new();
    for number in 0..FILES_MAX {
        let name = format!("{prefix}{number:06}").into_bytes();
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

/// Makes a file in many pieces, fills the metadata with names, and removes the file: its space is available then.
fn pieces_among_names(made_by: MadeBy, cut: bool) -> Result<()> {
    const SIZE: usize = 2_000_000;
    let device = Arc::new(SimDevice::new(fresh_image(&made_by)?));
    let mut driver = Driver::open_fresh_undelayed(&device)?;
    let name = b"pieces".to_vec();
    driver.apply(&Operation::Create { dir: ROOT, name: name.clone(), kind: FileType::File, mode: 0o644 })?;
    let inode = driver.model().child(ROOT, &name).context("the file that was made")?;
    for offset in (0..SIZE as u64).step_by(4096) {
        driver.apply(&Operation::Write { inode, offset, len: 4096, seed: offset })?;
    }
    let large = fill_with(&mut driver, "large", 6_000_000, NEVER).context("filling with data")?;
    fill_with(&mut driver, "small", 0, NEVER).context("filling with names")?;
    driver.apply(&Operation::Sync)?;
    if cut {
        driver.apply(&Operation::Truncate { inode, size: 0 }).context("cutting the file")?;
    } else {
        driver.apply(&Operation::Unlink { dir: ROOT, name }).context("removing the file")?;
    }
    let last = driver.model().child(ROOT, &large[0]).context("a file that was made")?;
    let again = Operation::Write { inode: last, offset: 0, len: SIZE / 2, seed: 1 };
    driver.apply(&again).context("writing where the pieces were")?;
    driver.restart(&device)?;
    judge(&device)
}

fn told(result: Result<()>) {
    if let Err(error) = result {
        panic!("{error:#}");
    }
}

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
    told(refill(DUP, 2_000_000, 2_000_000, |_| ()));
    told(refill(SINGLE, 1_000_000, 1_000_000, |_| ()));
    told(refill(SINGLE, 400_000, 4096, |_| ()));
    told(refill(MIXED, 400_000, 4096, |_| ()));
}

#[test]
fn a_file_in_pieces_leaves_a_device_that_is_full_of_names() {
    told(pieces_among_names(SINGLE, false));
    told(pieces_among_names(SINGLE, true));
}

/// Where data shares its block groups with metadata, it must leave some room. The check and the allocation are one step, so two threads do
/// not both take the last of it.
#[test]
fn threads_that_write_leave_metadata_its_room() {
    const PIECE: u64 = 256 << 10;
    const LEFT: usize = 2;
    const THREADS: usize = 6;
    const ROUNDS: usize = 1000;
    let device: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(fresh_image(&MIXED).expect("an image")));
    let volume = Volume::open(vec![device], Mode::ReadWrite).expect("it opens");
    let engine = Engine::open(volume, Options::default()).expect("it opens");
    let mut taken: Vec<_> =
        std::iter::from_fn(|| engine.allocate_data(TreeId::FS, PIECE, PIECE, None).ok()).collect();
    taken.truncate(taken.len() - LEFT);
    for round in 0..ROUNDS {
        let barrier = Barrier::new(THREADS);
        let take = || {
            barrier.wait();
            let extent = engine.allocate_data(TreeId::FS, PIECE, PIECE, None);
            barrier.wait(); // all start at once
            usize::from(extent.is_ok())
        };
        let got: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends well")).sum()
        });
        assert!(got <= LEFT, "round {round}: {got} pieces were handed out of room for {LEFT}");
    }
}

/// Allocating a chunk may wait for a commit, which waits for all handles.
#[test]
#[should_panic(expected = "RESERVE-2")]
fn who_holds_a_handle_allocates_no_data() {
    let device: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(fresh_image(&SINGLE).expect("an image")));
    let volume = Volume::open(vec![device], Mode::ReadWrite).expect("it opens");
    let engine = Engine::open(volume, Options::default()).expect("it opens");
    let _handle = engine.start(ReserveItems::items(1)).expect("room");
    drop(engine.allocate_data(TreeId::FS, 4096, 4096, None));
}

/// Metadata can use groups that data has left, also before a commit records that.
#[test]
fn what_data_leaves_is_there_for_metadata() {
    const PIECE: u64 = 1 << 20;
    const ROOM: u32 = 300;
    let owner = InodeId { subvolume: TreeId::FS, ino: ObjectId::new(1000) };
    let made_by = MadeBy { len: 256 << 20, ..SINGLE };
    let device: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(fresh_image(&made_by).expect("an image")));
    let volume = Volume::open(vec![device], Mode::ReadWrite).expect("it opens");
    let engine = Engine::open(volume, Options::default()).expect("it opens");
    let taken: Vec<_> =
        std::iter::from_fn(|| engine.allocate_data(TreeId::FS, PIECE, 4096, None).ok()).collect();
    let places: Vec<_> = taken.iter().map(|extent| (extent.start(), extent.len())).collect();
    for extent in taken {
        let handle = engine.start(ReserveItems::items(2)).expect("room");
        let at = extent.start().get();
        let written = engine.volume().nothing_written();
        handle.complete_data(extent, written, owner, at, None).expect("room");
        handle.end();
    }
    engine.commit().expect("a commit");
    let refused = engine.start(ReserveItems::items(ROOM)).map(Handle::end).expect_err("all is full of data");
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    for (at, len) in places {
        let handle = engine.start(ReserveItems::freeing(1)).expect("room");
        handle.drop_data_ref(at, len, owner, at.get());
        handle.end();
    }
    engine.start(ReserveItems::items(ROOM)).map(Handle::end).expect("data left its room");
    engine.commit().expect("a commit");
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
            root_is_subvolume: true,
            rights: false,
            directories: 0,
        };
        match random_run_on(number as u64, share_or_whole(1500, 6000), &made_by, taste) {
            Ok((_, refused)) => assert!(refused > 50, "{made_by:?}: {refused} operations found no space"),
            Err(error) => panic!("{made_by:?}: {error:#}"),
        }
    }
}

/// Heads that ran before a commit have copied the blocks that the commit would copy. No second reservation is made for them, so a small
/// filesystem needs no chunk for it.
#[test]
fn what_was_copied_already_needs_no_room() {
    let took = overwrite_in_steps(PIECES, |_| ());
    assert_eq!(took, Took { commits: 0, new_metadata: 0 });
}
