//! Whole benches at sizes that take seconds: they end well, and their tables have all rows.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use creamery_testkit::Judge;
use creamery_testkit::harness::{Bench, Case};

pub(crate) fn cases() -> Vec<Case> {
    let needs =
        [Judge::Program, Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs, Judge::Fuse];
    vec![
        Case::new("benches/data-quick", &needs, data_quick).prepared_by(build),
        Case::new("benches/gate-quick", &needs[..5], gate_quick).prepared_by(build),
    ]
}

/// Builds what a quick run of a bench builds, as that does.
fn build() -> Result<()> {
    for part in [["--bin", "creamery-bench"], ["--example", "null"]] {
        let words = ["build", "--quiet", "--workspace", "--features", "creamery-sim/faults", "--locked"];
        let status = Command::new(env!("CARGO")).args(words).args(part).status().context("starting cargo")?;
        ensure!(status.success(), "cargo build {} {}: {status}", part[0], part[1]);
    }
    Ok(())
}

/// What a quick run of a bench prints.
fn quick(bench: &Bench, name: &str) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_creamery-bench-beside"))
        .args([name, "--quick"])
        .env("CREAMERY_BIN", bench.creamery().path())
        .output()
        .context("starting creamery-bench-beside")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(said)
}

fn gate_quick(bench: &Bench) -> Result<()> {
    let said = quick(bench, "gate")?;
    let rows: Vec<Vec<&str>> = said
        .lines()
        .filter(|line| line.starts_with('|') && !line.contains("---"))
        .map(|line| line.split('|').map(str::trim).collect())
        .skip(1)
        .collect();
    ensure!(rows.len() == 14, "{} rows in\n{said}", rows.len());
    // In so little nothing need wait when it is asked.
    for cells in rows.iter().filter(|cells| !cells[1].contains("references that wait")) {
        let ours_alone = ["gate closed", "commits"].iter().any(|word| cells[1].starts_with(word));
        let sides = if ours_alone { &cells[2..3] } else { &cells[2..4] };
        let figure = |cell: &&str| cell.split(',').next().is_some_and(|cell| cell.parse::<f64>().is_ok());
        ensure!(sides.iter().all(figure), "a hole in {cells:?}");
    }
    Ok(())
}

fn data_quick(bench: &Bench) -> Result<()> {
    let said = quick(bench, "data")?;
    // Work, unit, three sides with two ratios, and the null server with one where it plays.
    let rates = |line: &&str| line.matches('|').count() == 10 && !line.contains("---");
    let rows: Vec<&str> = said.lines().filter(rates).skip(1).collect();
    ensure!(rows.len() == 24, "{} rows in\n{said}", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let figures =
            |cells: &[&str]| cells.iter().all(|cell| cell.parse::<f64>().is_ok_and(|rate| rate > 0.0));
        let null = ["pieces", "appended"].iter().any(|word| cells[1].contains(word));
        let plays_null = null && !cells[1].contains("fragmented");
        ensure!(figures(&cells[3..8]) && (!plays_null || figures(&cells[8..10])), "a hole in {row}");
    }
    Ok(())
}
