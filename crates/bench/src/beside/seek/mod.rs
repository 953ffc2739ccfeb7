//! `bench seek`: finds data and holes of a sparse file in turn, through the library and through the mount, beside the kernel's Btrfs on a
//! loop device and beside a server of ours that keeps no data. All are on one tmpfs and run in turn; figures are medians. One program
//! (`creamery-bench`) does the work on every side, and checks that it saw every extent.
//!
//! Back of the envelope: a call that goes on where the last one ended, in the leaf and among the dirty ranges, compares some keys and takes
//! three or four uncontended locks, 0.1 to 0.2 us; with a search of the tree for each call it is 0.5 us. The kernel has a search and a
//! system call, 0.5 to 1 us, and looks through all dirty ranges for each hole. Through the mount a round trip of 10 to 30 us is nearly all
//! of it.

mod cold;
mod stage;
mod table;

use anyhow::{Result, bail};
use creamery_testkit::{Judge, Judges};

use super::options::{BesideOptions, options};
use super::report::publish;
use stage::{SIDES, STATES, STEP, ScannedState, SeekSide, SeekStage};
use table::{Firsts, SeekRow};

/// Sizes of files, as multiples of the first one.
const SIZES: [u64; 3] = [1, 4, 8];
const BYTES: u64 = 128 << 20;
const QUICK_BYTES: u64 = 1 << 20;
/// Dirty extents behind the first one.
const BEHIND: [u64; 2] = [1_000, 1_000_000];
const QUICK_BEHIND: [u64; 2] = [100, 1_000];
const FIRST_CALLS: u64 = 200_000;

/// `cargo xtask bench seek`. With `--quick` everything runs once at a size that takes seconds, and nothing is published.
pub(crate) fn seek(words: &[&str]) -> Result<()> {
    let mut words = words.to_vec();
    let quick = words.iter().position(|word| *word == "--quick").map(|at| words.remove(at)).is_some();
    let (bytes, runs) = if quick { (QUICK_BYTES, 1) } else { (BYTES, 3) };
    let mut options = options(BesideOptions { files: 20_000, bytes, runs, dry: false }, &words)?;
    options.dry |= quick;
    let needed = [Judge::Root, Judge::Fuse, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    if let Some(missing) = needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
        bail!("bench seek stands beside the kernel: {missing} is missing");
    }
    let stage = SeekStage::new(quick)?;
    let mut rows = Vec::new();
    for times in SIZES {
        rows.extend(scans(&stage, options.bytes * times, times, options.runs, quick)?);
    }
    let copies = copies(&stage, options.bytes, options.runs)?;
    let firsts = firsts(&stage, if quick { QUICK_BEHIND } else { BEHIND }, options.runs)?;
    let cold = cold::walks(&stage, options.bytes, options.files, options.runs, quick)?;
    let text = format!(
        "{}\n`cargo xtask bench seek --bytes {} --runs {}`: files with 4 KiB of data and a hole of 4 KiB in turn, asked in turn where data and where a hole begins, from answer to answer, by one thread with one open file; CPU time with that of the server and the kernel's threads. Dirty: written, nothing synced, the first scan. The library has all of it in memory to the end, which the bench insists on; the kernel writes back what was dirty for 30 s, and with a *>* it had done so before the scan ended, which took less time by that; larger files than the first are dirty on the kernel in one run only; the mount writes back from 32 MiB on. Flushed: synced. Cold: opened or mounted anew. The null server answers at once, and the same. `-m single`, the kernel's with `-o ssd` on a loop device, all on one tmpfs, sides in turn, medians of {}; `btrfs check` accepted each image of ours.",
        table::tables(&rows, &copies, &firsts, &cold),
        options.bytes,
        options.runs,
        options.runs,
    );
    publish("bench seek", &text, options.dry)
}

/// Scans a file of `bytes` bytes, `times` as many as the first one, in each state on each side.
fn scans(stage: &SeekStage, bytes: u64, times: u64, runs: usize, quick: bool) -> Result<[SeekRow; 3]> {
    let mut rows = STATES.map(|state| SeekRow::new(bytes, state));
    for round in 1..=runs {
        let mut sides: Vec<(usize, SeekSide)> = SIDES.into_iter().enumerate().collect();
        // A later side finds memory that an earlier one warmed, so the sides take turns in coming first.
        sides.rotate_left(round % SIDES.len());
        for (index, side) in sides {
            let states = states(side, times, round, quick);
            let taken = stage.play(side, bytes, &states)?;
            for row in &mut rows {
                // The null server does equal work in each state.
                let at = states.iter().position(|state| *state == row.state || side == SeekSide::Null);
                row.taken[index].extend(at.map(|at| taken[at]));
            }
        }
        println!("  run {round} of {runs}: {bytes} bytes");
    }
    Ok(rows)
}

/// The states in which a side scans a file `times` as large as the first one.
fn states(side: SeekSide, times: u64, round: usize, quick: bool) -> Vec<ScannedState> {
    // The kernel's cost of a call grows with the dirty ranges.
    let is_long = side == SeekSide::Kernel && times > 1;
    if is_long && quick {
        println!("  skipped: what is dirty in a file {times} times as large, on the kernel");
    }
    let skips = |state| match state {
        ScannedState::Dirty => is_long && (quick || round > 1),
        ScannedState::Flushed | ScannedState::Cold => side == SeekSide::Null,
    };
    STATES.into_iter().filter(|state| !skips(*state)).collect()
}

/// Seconds of copies by the kernel and by the mount, run by run.
fn copies(stage: &SeekStage, bytes: u64, runs: usize) -> Result<[Vec<[f64; 3]>; 2]> {
    let mut taken = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        taken[0].push(stage.copies(SeekSide::Kernel, bytes)?);
        taken[1].push(stage.copies(SeekSide::Mount, bytes)?);
    }
    println!("  copies");
    Ok(taken)
}

/// The cost of a call that asks for the first data or hole, with `behind` dirty extents behind it.
fn firsts(stage: &SeekStage, behind: [u64; 2], runs: usize) -> Result<Vec<Firsts>> {
    let mut all = Vec::new();
    for extents in behind {
        let mut nanos = [Vec::new(), Vec::new()];
        for _ in 0..runs {
            for (nanos, cursors) in nanos.iter_mut().zip(["on", "off"]) {
                stage.empty()?;
                let words = vec![
                    ("--bytes", ((extents + 1) * STEP).to_string()),
                    ("--state", "dirty".to_owned()),
                    ("--count", FIRST_CALLS.to_string()),
                    ("--seek-cursors", cursors.to_owned()),
                ];
                let said = stage.library("seek-first", words)?;
                nanos.push(said.number("work_seconds")? * 1e9 / said.number("operations")?);
            }
        }
        println!("  the first of {extents}");
        all.push(Firsts { extents, nanos });
    }
    Ok(all)
}
