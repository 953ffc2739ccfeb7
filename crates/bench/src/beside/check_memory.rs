//! `bench check-memory`: the peak of `creamery check` on an image of ten million files.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use creamery_testkit::{Program, Run};
use serde_json::Value;

use super::measure::measure;
use super::options::{BesideOptions, options};
use super::report::{mebibytes, publish};
use creamery_workspace::{build_program, cargo, run, target};

const PEAK_MAX: u64 = 512 << 20;
const LIMIT: Duration = Duration::from_secs(600);

/// `cargo xtask bench check-memory`.
pub(crate) fn check_memory(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 10_000_000, bytes: 0, runs: 1, dry: false }, words)?;
    build_program()?;
    let creamery = Program::find()?;
    // On disk: in memory it would compete with what is measured.
    let folder = target().join("bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let image = folder.join("many-files.img");
    let _ = std::fs::remove_file(&image);
    let outcome = look(&creamery, &image, options.files);
    let _ = std::fs::remove_file(&image);
    let (text, over) = outcome?;
    let command = format!("`cargo xtask bench check-memory --files {}`", options.files);
    publish("bench check-memory", &format!("{text}\n{command}"), options.dry)?;
    if !over.is_empty() {
        bail!("more than {}: {}", mebibytes(PEAK_MAX), over.join(", "));
    }
    Ok(())
}

/// The table, and the rows of it that are over the limit.
fn look(creamery: &Program, image: &Path, files: u64) -> Result<(String, Vec<String>)> {
    let package = ["run", "--release", "--locked", "--package", "creamery-sim", "--example", "many_files"];
    run(cargo(&package).arg("--").arg(image).arg(files.to_string()))?;
    let counted = Run::new(creamery.path()).args(["check", "--json"]).arg(image).limit(LIMIT).ok()?;
    let counted: Value = serde_json::from_str(&counted.stdout_text())?;
    let inodes = counted["counts"]["inodes"].as_u64().unwrap_or(0);
    if inodes <= files {
        bail!("{inodes} inodes were checked of {files} files and their folders");
    }
    let mut text = String::from("| data | files | time | peak memory |\n|---|---|---|---|\n");
    let mut over = Vec::new();
    for (shown, flags) in [("no", &["check"][..]), ("verified", &["check", "--check-data-csum"])] {
        let taken = measure(Command::new(creamery.path()).args(flags).arg(image))?;
        let peak = mebibytes(taken.peak_bytes);
        text += &format!("| {shown} | {files} | {:.2} s | {peak} |\n", taken.time.as_secs_f64());
        if taken.peak_bytes > PEAK_MAX {
            over.push(format!("{}: {peak}", flags.join(" ")));
        }
    }
    Ok((text, over))
}
