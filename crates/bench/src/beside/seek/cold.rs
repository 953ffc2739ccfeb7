//! Walks through an image that nothing is cached of, on a device that takes its time, with blocks read ahead and without.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::stage::{STEP, SeekStage};
use creamery_workspace::{cargo, run, target};

/// What a read takes, in microseconds.
const MICROS: [u64; 2] = [100, 5000];

/// One walk with a device of one sort: each run, with blocks read ahead and without.
pub(super) struct Walk {
    pub(super) name: String,
    pub(super) micros: u64,
    pub(super) on: Vec<Walked>,
    pub(super) off: Vec<Walked>,
}

/// What it took, and what became of blocks that were read ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walked {
    pub(super) seconds: f64,
    pub(super) issued: f64,
    pub(super) hit: f64,
    pub(super) wasted: f64,
}

/// A scan of a file that is on the image, and a listing of a directory.
pub(super) fn walks(
    stage: &SeekStage,
    bytes: u64,
    files: u64,
    runs: usize,
    quick: bool,
) -> Result<Vec<Walk>> {
    let profile: &[&str] = if quick { &[] } else { &["--release"] };
    let package = ["build", "--locked", "--package", "creamery-sim", "--example", "cold_walk"];
    run(cargo(&package).args(profile))?;
    let program = target().join(if quick { "debug" } else { "release" }).join("examples/cold_walk");
    stage.empty()?;
    stage.library("sparse", vec![("--bytes", bytes.to_string())])?;
    stage.library("create", vec![("--files", files.to_string())])?;
    let mut all = Vec::new();
    for micros in MICROS {
        for (word, file, count, name) in [
            ("seek", "sparse-flushed", bytes / STEP, format!("file of {bytes} bytes gone through")),
            ("list", "thread-0-round-0", files, format!("directory of {files} names listed")),
        ] {
            let one = |ahead| {
                let mut command = Command::new(&program);
                command.arg(word).arg(stage.image()).args([file, &micros.to_string(), ahead]);
                walked(&mut command, count)
            };
            let mut walk = Walk { name, micros, on: Vec::new(), off: Vec::new() };
            for _ in 0..runs {
                walk.on.push(one("on")?);
                walk.off.push(one("off")?);
            }
            all.push(walk);
        }
    }
    println!("  walks on slow devices");
    Ok(all)
}

fn walked(command: &mut Command, count: u64) -> Result<Walked> {
    let output = command.output().context("starting cold_walk")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let said = String::from_utf8_lossy(&output.stdout);
    let numbers = said.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    let [found, seconds, issued, hit, wasted] = numbers[..] else { anyhow::bail!("cold_walk says {said}") };
    ensure!(found == count as f64, "{found} were found, and there are {count}");
    Ok(Walked { seconds, issued, hit, wasted })
}
