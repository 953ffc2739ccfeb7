//! Several threads on one filesystem, each below a directory or subvolume of its own: each is held against its own model,
//! as if the others were not there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use anyhow::{Context, Result, ensure};
use creamery_base::{InodeId, Wait};
use creamery_fs::{Filesystem, NewInode};

use crate::device::SimDevice;
use crate::driver::{Driver, open};
use crate::fresh::{MadeBy, fresh_image};
use crate::image::Image;
use crate::operation::{Generator, Operation, Taste};
use crate::room_watch::ensure_room_was_kept;

/// Operations between two commits that a thread asks for, about.
const PER_COMMIT: u64 = 80;
/// Operations between two comparisons of everything below the thread's directory.
const PER_COMPARE: u64 = 200;

/// Runs `count` operations on each of `threads` threads, of which every other one has a subvolume to itself, and the cleaner on
/// one more. Compares all results, what each has now and then, and what is there after a new start. Returns the image.
///
/// # Errors
/// Where engine and model differ, with the seed, the thread and the number of the operation.
pub fn threads_run(seed: u64, threads: u64, count: u64, made_by: &MadeBy) -> Result<Image> {
    let device = Arc::new(SimDevice::new(fresh_image(made_by)?));
    let fs = open(&device)?;
    let mut drivers = Vec::new();
    for number in 0..threads {
        drivers.push(Driver::within(Arc::clone(&fs), home(&fs, number)?));
    }
    let begin = Barrier::new(drivers.len());
    let done = AtomicBool::new(false);
    let results: Vec<Result<Driver>> = std::thread::scope(|scope| {
        let work = |(number, driver): (u64, Driver)| {
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                work(driver, seed.wrapping_add(number), count, is_subvolume(number))
                    .with_context(|| format!("seed {seed}, thread {number} of {threads}"))
            })
        };
        let running: Vec<_> = (0..).zip(drivers).map(work).collect();
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                fs.clean();
                let _ = fs.clean_step();
                std::thread::yield_now();
            }
        });
        let ended: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Release);
        ended.into_iter().map(|thread| thread.expect("a panic is a failure of its own")).collect()
    });
    let models = results.into_iter().map(|driver| Ok(driver?.into_model())).collect::<Result<Vec<_>>>()?;
    fs.sync()?;
    ensure_room_was_kept(&fs)?;
    fs.engine().volume().close()?;
    drop(fs);
    let fs = open(&device)?;
    for (number, model) in (0..).zip(models) {
        let root = fs.root(fs.default_subvolume())?;
        let home = fs.lookup(root, &name(number), Wait::Yes)?;
        let found = crate::snapshot::walk_only(&fs, home)?;
        let difference = model.snapshot().difference(&found);
        ensure!(
            difference.is_none(),
            "seed {seed}, thread {number}, after a new start: {}",
            difference.unwrap_or_default()
        );
    }
    drop(fs);
    Ok(device.image())
}

fn name(number: u64) -> Vec<u8> {
    format!("home{number}").into_bytes()
}

/// Whether a thread's directory is the root of a subvolume.
fn is_subvolume(number: u64) -> bool {
    number.is_multiple_of(2)
}

fn home(fs: &Filesystem, number: u64) -> Result<InodeId> {
    let root = fs.root(fs.default_subvolume())?;
    let new = NewInode::directory(0o755);
    if is_subvolume(number) {
        return Ok(fs.create_subvolume(root, &name(number), &new)?);
    }
    Ok(fs.create(root, &name(number), &new)?.id)
}

fn work(mut driver: Driver, seed: u64, count: u64, root_is_subvolume: bool) -> Result<Driver> {
    let directories = if seed.is_multiple_of(3) { 0 } else { 80 };
    let taste = Taste { size_max: 150_000, times: true, directories, root_is_subvolume, ..Taste::default() };
    let mut generator = Generator::new(seed, taste);
    generator.first().try_for_each(|operation| driver.apply(&operation))?;
    for number in 0..count {
        let place = || format!("operation {number}");
        let operation = match generator.random.below(PER_COMMIT) {
            0 => Operation::Sync,
            _ => generator.next(driver.model()),
        };
        driver.apply(&operation).with_context(place)?;
        if number % PER_COMPARE == PER_COMPARE - 1 {
            driver.compare().with_context(place)?;
        }
    }
    driver.compare()?;
    Ok(driver)
}
