//! `bench flat`: whether creating goes on as fast when there are very many files, with so much memory and no more.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use creamery_testkit::{Program, Run, Scratch};

use super::library::{bench, build, empty_filesystem};
use super::measure::median;
use super::options::{BesideOptions, options};
use super::report::{mebibytes, publish};

const FEW: u64 = 100_000;
/// Directories that the many files lie in.
const DIRECTORIES: u64 = 4;
const CACHE_MIB: u64 = 2048;
const DIRTY_MIB: u64 = 512;
const LIMIT: Duration = Duration::from_secs(600);

struct FlatTaken {
    work: Duration,
    peak_bytes: u64,
}

/// `cargo xtask bench flat`.
pub(crate) fn flat(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 10_000_000, bytes: 0, runs: 3, dry: false }, words)?;
    build()?;
    let (scratch, creamery) = (Scratch::new("bench-flat")?, Program::find()?);
    let image = scratch.file("flat.img");
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for round in 1..=options.runs {
        few.push(create(&creamery, &image, FEW, 1)?);
        many.push(create(&creamery, &image, options.files / DIRECTORIES, DIRECTORIES)?);
        println!("  run {round} of {}", options.runs);
    }
    let mut text = String::from("| files | created a second | peak memory |\n|---|---|---|\n");
    let mut rates = Vec::new();
    for (files, taken) in [(FEW, few), (options.files, many)] {
        let time = median(&taken.iter().map(|taken| taken.work).collect::<Vec<_>>());
        rates.push(files as f64 / time.as_secs_f64());
        let peak = taken.iter().map(|taken| taken.peak_bytes).max().unwrap_or(0);
        text += &format!("| {files} | {:.0} | {} |\n", files as f64 / time.as_secs_f64(), mebibytes(peak));
    }
    text += &format!(
        "\n`cargo xtask bench flat --files {} --runs {}`: one thread, a cache of {CACHE_MIB} MiB, at most {DIRTY_MIB} MiB dirty, `-m single`; medians, the final sync in them, and the highest peak.",
        options.files, options.runs
    );
    publish("bench flat", &text, options.dry)?;
    println!("ratio {:.2}", rates[1] / rates[0]);
    Ok(())
}

fn create(creamery: &Program, image: &Path, files: u64, rounds: u64) -> Result<FlatTaken> {
    // A tree of so many files takes half a kilobyte each, and the space that a commit frees comes back after it.
    let bytes = (files * rounds * 1024).max(2 << 30);
    empty_filesystem(creamery, image, bytes)?;
    let setting =
        [("--files", files), ("--rounds", rounds), ("--cache-mib", CACHE_MIB), ("--dirty-mib", DIRTY_MIB)];
    let said =
        bench("create", "--image", image, &setting.map(|(option, value)| (option, value.to_string())))?;
    Run::new(creamery.path()).arg("check").arg(image).limit(LIMIT).ok()?;
    Ok(FlatTaken { work: said.durable_time()?, peak_bytes: said.number("peak_bytes")? as u64 })
}
