//! `bench memory`: peak memory must not grow with the tree.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use creamery_testkit::{Program, Scratch, btrfs_check};

use super::measure::measure;
use super::options::{BesideOptions, options};
use super::report::{mebibytes, publish};
use creamery_workspace::build_program;

const PEAK_MAX: u64 = 256 << 20;
const FILES_PER_DIR: u64 = 100;

type Plant = fn(&Path, u64) -> Result<()>;

/// `cargo xtask bench memory`.
pub(crate) fn memory(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 1_000_000, bytes: 0, runs: 1, dry: false }, words)?;
    build_program()?;
    let creamery = Program::find()?;
    let trees: [(&str, Plant); 2] =
        [("a tree of small files", small_files), ("one folder of empty files", one_folder)];
    let mut text = String::from("| tree | files | time | peak memory |\n|---|---|---|---|\n");
    let mut over = Vec::new();
    for (name, plant) in trees {
        let scratch = Scratch::new("bench-memory")?;
        let (source, image) = (scratch.dir("source")?, scratch.file("disk.img"));
        plant(&source, options.files).context(name)?;
        let taken =
            measure(Command::new(creamery.path()).args(["mkfs", "--rootdir"]).arg(&source).arg(&image))?;
        btrfs_check(&image)?;
        let peak = mebibytes(taken.peak_bytes);
        text += &format!("| {name} | {} | {:.2} s | {peak} |\n", options.files, taken.time.as_secs_f64());
        if taken.peak_bytes > PEAK_MAX {
            over.push(format!("{name}: {peak}"));
        }
    }
    publish(
        "bench memory",
        &format!("{text}\n`cargo xtask bench memory --files {}`", options.files),
        options.dry,
    )?;
    if !over.is_empty() {
        bail!("more than {}: {}", mebibytes(PEAK_MAX), over.join(", "));
    }
    Ok(())
}

fn small_files(root: &Path, files: u64) -> Result<()> {
    for index in 0..files {
        let dir =
            root.join((index / FILES_PER_DIR / 100).to_string()).join((index / FILES_PER_DIR).to_string());
        if index % FILES_PER_DIR == 0 {
            std::fs::create_dir_all(&dir)?;
        }
        std::fs::write(dir.join(format!("file-{index}")), format!("content of {index}"))?;
    }
    Ok(())
}

fn one_folder(root: &Path, files: u64) -> Result<()> {
    for index in 0..files {
        File::create_new(root.join(format!("name-{index}")))?;
    }
    Ok(())
}
