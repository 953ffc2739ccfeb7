//! `bench scaling`: several threads make files in one filesystem, beside as many processes with one thread and a filesystem each, which
//! share only the machine.
//!
//! Back of the envelope: cores share memory, caches and the page allocator, so N processes do not make N times the files of one either.
//! Their total is the machine's capacity; the threads' shortfall from it is what they cost each other.

use std::path::Path;

use anyhow::Result;
use creamery_testkit::btrfs_check;

use super::library::{ImageFolder, ROUNDS};
use super::measure::median;
use super::options::{BesideOptions, options};
use super::report::publish;

const IMAGE_BYTES: u64 = 6 << 30;

/// One row: files made a second, in each run.
struct ScalingRow {
    threads: usize,
    /// One thread.
    one: Vec<f64>,
    /// One thread in each of N processes.
    apart: Vec<f64>,
    /// N threads of one process.
    together: Vec<f64>,
}

/// `cargo xtask bench scaling`.
pub(crate) fn scaling(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 100_000, bytes: 0, runs: 6, dry: false }, words)?;
    let place = ImageFolder::new("scaling", options.files)?;
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let counts = [2, 4, 8, 16].into_iter().filter(|threads| *threads <= cores.max(2));
    let mut rows: Vec<ScalingRow> = counts
        .map(|threads| ScalingRow { threads, one: Vec::new(), apart: Vec::new(), together: Vec::new() })
        .collect();
    for round in 1..=options.runs {
        for row in &mut rows {
            let mut ways =
                [(1, 1, &mut row.one), (row.threads, 1, &mut row.apart), (1, row.threads, &mut row.together)];
            // A later way finds memory that an earlier one warmed, so the ways take turns in coming first.
            ways.rotate_left(round % 3);
            for (processes, threads, rates) in ways {
                rates.push(place.create(processes, threads)?);
            }
        }
        println!("  run {round} of {}", options.runs);
    }
    let mut text = String::from(
        "| threads | one thread, a second | so many processes | so many threads | threads over one | processes over one | threads over processes |\n|---|---|---|---|---|---|---|\n",
    );
    let mut last = 0.0;
    for ScalingRow { threads, one, apart, together } in &rows {
        let (one, apart, together) = (median(one), median(apart), median(together));
        last = together / one;
        text += &format!(
            "| {threads} | {one:.0} | {apart:.0} | {together:.0} | {last:.2} | {:.2} | {:.2} |\n",
            apart / one,
            together / apart
        );
    }
    text += &format!(
        "\n`cargo xtask bench scaling --files {} --runs {}`: {ROUNDS} directories of so many files for each thread, `-m single`, the final sync in the time, ways alternating, medians of {}.",
        options.files, options.runs, options.runs
    );
    publish("bench scaling", &text, options.dry)?;
    println!("ratio {last:.2}");
    Ok(())
}

impl ImageFolder {
    /// Files a second by `processes` processes at once, each on its own filesystem.
    fn create(&self, processes: usize, threads: usize) -> Result<f64> {
        let images = (0..processes)
            .map(|number| self.filesystem(&format!("{number}.img"), IMAGE_BYTES))
            .collect::<Result<Vec<_>>>()?;
        let rate = std::thread::scope(|scope| {
            let running: Vec<_> =
                images.iter().map(|image| scope.spawn(|| self.create_on(image, threads))).collect();
            running.into_iter().map(|process| process.join().expect("measuring does not panic")).sum()
        });
        for image in &images {
            btrfs_check(image)?;
            std::fs::remove_file(image)?;
        }
        rate
    }

    fn create_on(&self, image: &Path, threads: usize) -> Result<f64> {
        let said = self.bench("create", "--image", image, threads)?;
        Ok(said.number("operations")? / said.durable_time()?.as_secs_f64())
    }
}
