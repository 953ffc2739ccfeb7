//! Snapshots, clones, and creating files while a deleted subvolume is dropped.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use creamery_testkit::{CpuMeter, Random};
use serde_json::{Value, json};

use crate::content::Contents;
use crate::side::{How, Side};
use crate::times::Times;

const WORK: &str = "work";
const FILLED: &str = "filled";
/// Bytes of a small file of `WORK`; every fourth file has extents, the others are inline.
const SMALL: usize = 300;
const LARGE: usize = 12 << 10;
const FILES_OF_A_DIR: usize = 500;
/// Files that are rewritten between two snapshots, in different leaves.
const CHANGED: usize = 16;
/// Names of a directory in which files are created.
const NAMES_OF_A_DIR: usize = 25_000;

/// The kinds of work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SubvolumesWorkload {
    /// Takes `count` snapshots of one subvolume, measures the last ones, and deletes them.
    Snapshots,
    /// Makes `count` clones of one file.
    Clones,
    /// Fills a directory with files.
    Fill,
    /// Copies that directory.
    CopyWithin,
    /// Drops a subvolume with `files` files while others are made.
    Drop,
}

/// The size of the workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubvolumesScale {
    /// Files of the subvolume.
    pub(crate) files: usize,
    /// Snapshots or clones.
    pub(crate) count: usize,
    /// The number of these that are measured.
    pub(crate) measured: usize,
    /// Bytes of the cloned file; `piece` has those of each extent of it.
    pub(crate) bytes: u64,
    pub(crate) piece: usize,
}

impl SubvolumesWorkload {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "snapshots" => Self::Snapshots,
            "clones" => Self::Clones,
            "fill" => Self::Fill,
            "copy-within" => Self::CopyWithin,
            "drop" => Self::Drop,
            _ => return None,
        })
    }

    /// Runs the workload; returns the output.
    pub(crate) fn run(self, side: &dyn Side, scale: SubvolumesScale) -> Result<Value> {
        match self {
            Self::Snapshots => snapshots(side, scale),
            Self::Clones => clones(side, scale),
            Self::Fill => fill(side, scale),
            Self::CopyWithin => {
                let copied = Times::measure(side, 1, &|_| {
                    side.copy_within(FILLED, "copy")?;
                    Ok(scale.files)
                })?;
                compare_copies(side, scale)?;
                Ok(copied.to_json())
            }
            Self::Drop => creates_beside_a_drop(side, scale.files),
        }
    }
}

/// Takes the snapshots, with changes between; measures the last ones, and deleting the same number.
fn snapshots(
    side: &dyn Side,
    SubvolumesScale { files, count, measured, .. }: SubvolumesScale,
) -> Result<Value> {
    ensure!((1..=count).contains(&measured), "of {count} snapshots {measured} cannot be measured");
    let contents = Contents::new(0, false);
    side.make_subvolume(WORK)?;
    for number in 0..files {
        if number % FILES_OF_A_DIR == 0 {
            side.make_dir(&dir_of(number))?;
        }
        let len = if number % 4 == 0 { LARGE } else { SMALL };
        side.open(&file_of(number), How::New)?.write_all_at(contents.at(number, 0, len), 0)?;
    }
    side.sync()?;
    let mut random = Random::new(7);
    let mut work = Duration::ZERO;
    let mut cpu = None;
    for snapshot in 0..count {
        if snapshot + measured == count {
            (work, cpu) = (Duration::ZERO, CpuMeter::start(side.servers()).ok());
        }
        for _ in 0..CHANGED.min(files) {
            let number = random.below(files as u64) as usize;
            let file = side.open(&file_of(number), How::Write)?;
            file.write_all_at(contents.at(number + snapshot, 0, SMALL), 0)?;
        }
        // This writeback does not belong to the cost of the snapshot, on either side.
        side.sync()?;
        let begun = Instant::now();
        side.snapshot(WORK, &snapshot_of(snapshot))?;
        work += begun.elapsed();
    }
    let cpu = cpu.map(|cpu| cpu.elapsed()).transpose()?;
    let created = Times::of(measured, work, Duration::ZERO, cpu);
    let mut all: Vec<usize> = (0..count).collect();
    random.shuffle(&mut all);
    let deleted = Times::measure(side, 1, &|_| {
        for snapshot in &all[..measured] {
            side.delete_subvolume(&snapshot_of(*snapshot))?;
        }
        side.sync_subvolumes()?;
        Ok(measured)
    })?;
    Ok(json!({ "created": created.to_json(), "deleted": deleted.to_json() }))
}

fn dir_of(number: usize) -> String {
    format!("{WORK}/dir-{}", number / FILES_OF_A_DIR)
}

fn file_of(number: usize) -> String {
    format!("{}/file-{number}", dir_of(number))
}

fn snapshot_of(number: usize) -> String {
    format!("snapshot-{number}")
}

/// Clones a file whose every piece is an extent.
fn clones(side: &dyn Side, SubvolumesScale { count, bytes, piece, .. }: SubvolumesScale) -> Result<Value> {
    const SOURCE: &str = "source";
    let contents = Contents::new(0, false);
    let file = side.open(SOURCE, How::New)?;
    // Neighbours that are written back together become one extent.
    for odd in [0, 1] {
        for offset in (0..bytes).step_by(piece).skip(odd).step_by(2) {
            file.write_all_at(contents.at(0, offset, piece), offset)?;
        }
        file.sync()?;
    }
    side.sync()?;
    side.make_dir("clones")?;
    let times = Times::measure(side, 1, &|_| {
        for number in 0..count {
            side.clone_file(SOURCE, &format!("clones/{number}"))?;
        }
        Ok(count)
    })?;
    let last = side.open(&format!("clones/{}", count - 1), How::Read)?;
    let mut found = vec![0; piece];
    last.read_exact_at(&mut found, bytes - piece as u64)?;
    contents.compare(0, bytes - piece as u64, &found)?;
    Ok(times.to_json())
}

/// Makes files for measuring their copies.
fn fill(side: &dyn Side, SubvolumesScale { files, bytes, .. }: SubvolumesScale) -> Result<Value> {
    let contents = Contents::new(0, false);
    side.make_dir(FILLED)?;
    let times = Times::measure(side, 1, &|_| {
        for number in 0..files {
            let file = side.open(&format!("{FILLED}/{number}"), How::New)?;
            file.write_all_at(contents.at(number, 0, usize::try_from(bytes)?), 0)?;
        }
        Ok(files)
    })?;
    Ok(times.to_json())
}

fn compare_copies(side: &dyn Side, SubvolumesScale { files, bytes, .. }: SubvolumesScale) -> Result<()> {
    let contents = Contents::new(0, false);
    let mut found = vec![0; usize::try_from(bytes)?];
    for number in 0..files {
        side.open(&format!("copy/{number}"), How::Read)?.read_exact_at(&mut found, 0)?;
        contents.compare(number, 0, &found)?;
    }
    Ok(())
}

/// Creates files without other work, and then while a subvolume is dropped.
fn creates_beside_a_drop(side: &dyn Side, files: usize) -> Result<Value> {
    side.make_subvolume(WORK)?;
    for dir in 0..files.div_ceil(NAMES_OF_A_DIR) {
        let dir = format!("{WORK}/{dir}");
        side.make_dir(&dir)?;
        (0..NAMES_OF_A_DIR.min(files)).try_for_each(|name| side.create(&format!("{dir}/{name}")))?;
    }
    side.sync()?;
    let mut made = 0;
    let alone = creates(side, &mut made, &|made| Ok(made < files / 4))?;
    side.sync()?;
    side.delete_subvolume(WORK)?;
    side.begin_dropping()?;
    let beside = creates(side, &mut made, &|_| side.is_dropping())?;
    Ok(json!({ "alone": alone, "beside": beside }))
}

/// Creates files in steps while `goes_on` returns true for the number made; returns the number and the time.
fn creates(side: &dyn Side, made: &mut usize, goes_on: &dyn Fn(usize) -> Result<bool>) -> Result<Value> {
    /// The number of files between two calls of `goes_on`.
    const STEP: usize = 500;
    let (begun, before) = (Instant::now(), *made);
    while goes_on(*made - before)? {
        let dir = format!("new-{}", *made / NAMES_OF_A_DIR);
        if made.is_multiple_of(NAMES_OF_A_DIR) {
            side.make_dir(&dir)?;
        }
        for name in *made..*made + STEP {
            side.create(&format!("{dir}/{name}"))?;
        }
        *made += STEP;
    }
    Ok(json!({ "operations": *made - before, "seconds": begun.elapsed().as_secs_f64() }))
}
