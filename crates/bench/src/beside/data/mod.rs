//! `bench data`: the content of files, and a tree of them, through the library and through the mount, beside the kernel's Btrfs on a loop
//! device and beside a server of ours that keeps no data. All are on one tmpfs and run in turn; figures are medians. One program
//! (`creamery-bench`) does the work on every side, and afterwards reads back the expected content.
//!
//! Back of the envelope, for 1 MiB: one copy takes 100 to 200 us in cold memory, its checksums 100 us on one core, and finding and clearing
//! new pages of a tmpfs 100 us more. The kernel copies twice, into its cache and into the image, and has workers for the second copy; a
//! library that copies once and computes checksums on the way has 300 us of one core. The mount copies once more, through `/dev/fuse`, and
//! waits for a round trip of 30 us: nothing for 1 MiB, and most of it for 4 KiB.

mod scenes;
mod stage;
mod table;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{Judge, Judges};

use super::options::{BesideOptions, options};
use super::report::publish;
use scenes::SCENES;
use stage::{DataSide, DataStage, SIDES};
use table::{StepRow, tables};

/// Average bytes of a file of the tree.
const MEAN_BYTES: u64 = 13_333;
const QUICK_FILES: u64 = 200;

/// `cargo xtask bench data`. With `--quick` everything runs once at a size that takes seconds, and nothing is published.
/// With `--only WORD`, only scenes and steps whose name contains the word run, and nothing is published.
pub(crate) fn data(words: &[&str]) -> Result<()> {
    let mut words = words.to_vec();
    let quick = words.iter().position(|word| *word == "--quick").map(|at| words.remove(at)).is_some();
    let mut only = "";
    if let Some(at) = words.iter().position(|word| *word == "--only") {
        only = words.get(at + 1).context("--only needs a word")?;
        words.drain(at..at + 2);
    }
    let (files, runs) = if quick { (QUICK_FILES, 1) } else { (50_000, 3) };
    let mut options = options(BesideOptions { files, bytes: 0, runs, dry: false }, &words)?;
    options.dry |= quick || !only.is_empty();
    let needed = [Judge::Root, Judge::Fuse, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    if let Some(missing) = needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
        bail!("bench data stands beside the kernel: {missing} is missing");
    }
    let bytes = options.files * MEAN_BYTES;
    let stage = DataStage::new(options.files, bytes, quick)?;
    let mut rows = Vec::new();
    for scene in SCENES.iter().filter(|scene| scene.name.contains(only)) {
        let mut played: Vec<StepRow> = StepRow::of(scene).collect();
        for round in 1..=options.runs {
            let mut sides: Vec<(usize, DataSide)> = SIDES.into_iter().enumerate().collect();
            // A later side finds memory that an earlier one warmed, so the sides take turns in coming first.
            sides.rotate_left(round % SIDES.len());
            for (index, side) in sides.into_iter().filter(|(_, side)| scene.null || *side != DataSide::Null) {
                for (row, taken) in played.iter_mut().zip(stage.play(side, scene)?) {
                    row.taken[index].push(taken);
                }
            }
            println!("  run {round}: {}", scene.name);
        }
        rows.extend(played);
    }
    ensure!(!rows.is_empty(), "there is no scene with {only} in its name");
    let text = format!(
        "{}\n`cargo xtask bench data --files {} --runs {}`: files of 64 to 512 MiB, and a tree of {} files with {bytes} bytes, content that does not compress; the final sync is in the time; `-m single`, the kernel's with `-o ssd` on a loop device, all on one tmpfs, sides alternating, medians of {}. Everything was read back, and `btrfs check` accepted each image of ours.",
        tables(&rows),
        options.files,
        options.runs,
        options.files,
        options.runs
    );
    publish("bench data", &text, options.dry)?;
    let ratios = rows.iter().filter_map(|row| Some((row.over(DataSide::Library, DataSide::Kernel)?, row)));
    if let Some((ratio, row)) = ratios.min_by(|(one, _), (other, _)| one.total_cmp(other)) {
        println!("least ratio {ratio:.2}, {}: {}", row.scene, row.step.name);
    }
    Ok(())
}
