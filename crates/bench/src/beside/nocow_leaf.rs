//! `bench nocow-leaf`: creates beside a look for checksums that takes long, with the file's leaf let go of and with it kept.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::measure::median;
use super::options::{BesideOptions, options};
use super::report::publish;
use creamery_workspace::{cargo, run, target};

/// `cargo xtask bench nocow-leaf`.
pub(crate) fn nocow_leaf(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 0, bytes: 0, runs: 3, dry: false }, words)?;
    let package = ["build", "--release", "--locked", "--package", "creamery-sim"];
    run(cargo(&package).args(["--features", "faults", "--example", "creates_beside_nocow"]))?;
    let mut text = String::from(
        "| the leaf is | creates | median, us | 99 of 100 in, us | worst, us |\n|---|---|---|---|---|\n",
    );
    for (name, word) in [("let go of", "let-go"), ("kept", "kept")] {
        let runs: Vec<[f64; 4]> = (0..options.runs).map(|_| one(word)).collect::<Result<_>>()?;
        let middle = |at: usize| median(&runs.iter().map(|run| run[at]).collect::<Vec<_>>());
        let micros = [1, 2, 3].map(|at| format!("{:.0}", middle(at) * 1e6));
        text += &format!("| {name} | {:.0} | {} |\n", middle(0), micros.join(" | "));
    }
    text += &format!(
        "\n`cargo xtask bench nocow-leaf --runs {}`: every 2 ms for 5 s one thread makes and removes a file, while another one overwrites sectors of a file in the same leaf in place, and each look for checksums takes 50 ms. A time is from when the create was due. On a device in memory, medians of {}.",
        options.runs, options.runs
    );
    publish("bench nocow-leaf", &text, options.dry)
}

fn one(word: &str) -> Result<[f64; 4]> {
    let program = target().join("release/examples/creates_beside_nocow");
    let output = Command::new(program).arg(word).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let said = String::from_utf8_lossy(&output.stdout);
    let numbers = said.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    numbers.try_into().ok().context("it prints four numbers")
}
