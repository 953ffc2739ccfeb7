//! Tables for `docs/internals/benchmarks.md`, with the machine, the date and the command.

use std::process::Command;

use anyhow::{Context, Result};

use creamery_workspace::{read, root};

const FILE: &str = "docs/internals/benchmarks.md";

/// Prints the table, and puts it between its marks in the document unless the run is `dry`.
pub(super) fn publish(name: &str, body: &str, dry: bool) -> Result<()> {
    let text = told(body);
    println!("\n{text}");
    if dry {
        return Ok(());
    }
    let (begin, end) = (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"));
    let old = read(FILE)?;
    let (head, rest) = old.split_once(&begin).with_context(|| format!("{FILE} has no {begin}"))?;
    let (_, tail) = rest.split_once(&end).with_context(|| format!("{FILE} has no {end}"))?;
    std::fs::write(root().join(FILE), format!("{head}{begin}\n\n{text}\n{end}{tail}"))
        .context("writing benchmarks")?;
    println!("written to {FILE}");
    Ok(())
}

/// The table, and on what it was measured.
pub(super) fn told(body: &str) -> String {
    format!("{body}\n{}\n", machine())
}

fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown processor");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = kib.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0);
    format!(
        "{}, {cores} cores, {} GiB of memory, Linux {}, {}, {}; {}.",
        model.trim_start_matches([' ', '\t', ':']),
        (kib + (1 << 19)) >> 20,
        said("uname", &["-r"]),
        said("btrfs", &["--version"]).lines().next().unwrap_or("no btrfs-progs"),
        said("rustc", &["--version"]).split(" (").next().unwrap_or_default(),
        said("date", &["-u", "+%Y-%m-%d"]),
    )
}

fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Bytes as mebibytes.
pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}
