//! Scrub beside work: a block that is freed, written anew or being written never looks bad, and a full filesystem has the room that it has without.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use creamery_fs::FileType;
use creamery_sim::{
    Driver, MadeBy, Operation, ROOT, Scrubbing, SimDevice, crash, fresh_image, record_beside, stored_seeds,
};
use creamery_testkit::rounds;
use creamery_txn::BackgroundWork;

/// One scrub after another in the midst of operations, commits, discards and each other's steps.
#[test]
fn a_scrub_in_the_midst_of_work_finds_nothing_bad() {
    let (mut seeds, mut all_rounds, mut all) = (0, 0, 0);
    for seed in (1..=rounds(4, 100)).chain(stored_seeds("scrub")) {
        let made_by = MadeBy { node_size: if seed % 2 == 0 { 4096 } else { 16384 }, ..MadeBy::default() };
        let mut scrubbing = None;
        let base = fresh_image(&made_by).expect("an image");
        let history = record_beside(&base, seed, |fs| scrubbing = Some(Scrubbing::begin(fs.engine())));
        let history = history.unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
        let scrubbing = scrubbing.expect("it was begun");
        let (rounds, bytes) = scrubbing.done();
        assert!(rounds > 0 && bytes > 0, "seed {seed}: {rounds} rounds, {bytes} bytes");
        (seeds, all_rounds, all) = (seeds + 1, all_rounds + rounds, all + bytes);
        assert_eq!(scrubbing.findings(), Vec::<String>::new(), "seed {seed}");
        // Power cuts in between: a scrub has written nothing.
        if let Err(error) = crash(&history, seed, 20, &mut |_| Ok(())) {
            panic!("seed {seed}: {error:#}");
        }
    }
    // How many rounds a seed makes, and how much a round finds to scrub, also depend on what else runs in the process.
    assert!(all_rounds > 2 * seeds, "{all_rounds} rounds in {seeds} runs");
    assert!(all > seeds << 20, "{all} bytes in {seeds} runs");
}

/// Fills the filesystem, deletes every second file and fills it again. Gives how many files went in each time.
fn fill_twice(driver: &mut Driver) -> Result<Vec<usize>> {
    const SIZE: usize = 100_000;
    let mut accepted = Vec::new();
    for round in 0..3 {
        let mut names = Vec::new();
        for number in 0..100_000_u64 {
            let name = format!("{round}-{number:06}").into_bytes();
            let make = Operation::Create { dir: ROOT, name: name.clone(), kind: FileType::File, mode: 0o644 };
            if let Some(error) = driver.try_apply(&make)? {
                ensure!(error.kind() == creamery_base::ErrorKind::NoSpace, "{error}");
                break;
            }
            let inode = driver.model().child(ROOT, &name).context("the file that was made")?;
            names.push(name);
            let write = Operation::Write { inode, offset: 0, len: SIZE, seed: number };
            if let Some(error) = driver.try_apply(&write)? {
                ensure!(error.kind() == creamery_base::ErrorKind::NoSpace, "{error}");
                break;
            }
        }
        accepted.push(names.len());
        for name in names.into_iter().step_by(2) {
            driver.apply(&Operation::Unlink { dir: ROOT, name })?;
        }
        driver.apply(&Operation::Sync)?;
    }
    Ok(accepted)
}

/// What a guard of a scrub keeps is given back before a writer is refused for lack of room.
#[test]
fn a_full_filesystem_takes_as_much_beside_a_scrub() -> Result<()> {
    let fill = |is_scrubbed: bool| -> Result<(Vec<usize>, u64)> {
        let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default())?));
        let mut driver = Driver::open_fresh(&device)?;
        let engine = Arc::clone(driver.filesystem().engine());
        let ends = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let scrub = is_scrubbed.then(|| {
                let scrubbing = Scrubbing::begin(&engine);
                let ends = &ends;
                threads.spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        scrubbing.step()?;
                    }
                    ensure!(scrubbing.findings().is_empty(), "{:?}", scrubbing.findings());
                    Ok(scrubbing.done().0)
                })
            });
            let accepted = fill_twice(&mut driver);
            ends.store(true, Ordering::Relaxed);
            let rounds = scrub.map_or(Ok(0), |scrub| scrub.join().expect("the scrub"))?;
            Ok((accepted?, rounds))
        })
    };
    let (alone, _) = fill(false)?;
    let (beside, _rounds) = fill(true)?;
    ensure!(alone == beside, "alone {alone:?}, beside a scrub {beside:?}");
    Ok(())
}
