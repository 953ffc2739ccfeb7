//! Whole benches at sizes that take seconds: they end well, and their tables have all rows.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use creamery_testkit::Judge;
use creamery_testkit::harness::{self, Bench, Case};

fn main() -> ExitCode {
    let needs =
        [Judge::Program, Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs, Judge::Fuse];
    harness::main(vec![Case::new("benches/data-quick", &needs, data_quick)])
}

fn data_quick(bench: &Bench) -> Result<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["bench", "data", "--quick"])
        .env("CREAMERY_BIN", bench.creamery().path())
        .output()
        .context("starting xtask")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
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
