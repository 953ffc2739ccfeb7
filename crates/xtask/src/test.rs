//! Installs missing tools and runs all tests; the last line counts skipped ones.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install::install_missing;
use crate::watched::{SILENCE, watched};
use creamery_workspace::{build_tested, cargo, run, with_faults};

/// `cargo xtask test`. A filter with a slash names cases of the conformance tests: then only these tests are built.
pub(crate) fn test(filters: &[&str]) -> Result<()> {
    if !filters.is_empty() && filters.iter().all(|filter| filter.contains('/')) && has_cases(filters)? {
        install_missing().context("installing what the tests need")?;
        return run_all(&[&[&CONFORMANCE[..], &["--"]].concat()], filters, &[]);
    }
    run_tests(filters, &[])
}

/// The tests that run the built program. They need no crate of the engine.
const CONFORMANCE: [&str; 6] =
    ["test", "--locked", "--package", "creamery-conformance", "--test", "conformance"];

/// Whether `filters` match any of them.
fn has_cases(filters: &[&str]) -> Result<bool> {
    let listed =
        cargo(&CONFORMANCE).args(["--", "--list"]).args(filters).output().context("starting cargo")?;
    Ok(String::from_utf8_lossy(&listed.stdout).lines().any(|line| line.ends_with(": test")))
}

/// The tests under a scheduler: its locks replace the real ones in the whole build.
const SCHEDULES: [&str; 13] = [
    "test",
    "--locked",
    "--no-fail-fast",
    "--package",
    "creamery-tree",
    "--package",
    "creamery-txn",
    "--package",
    "creamery-sim",
    "--features",
    "shuttle",
    "--test",
    "schedules",
];

/// Maximum number of output lines of failed tests that are repeated at the end.
const FAILURE_LINES: usize = 150;

/// Installs missing tools and runs all tests, with `variables` added to the environment. The tested program is built separately, without
/// failpoints.
pub(crate) fn run_tests(filters: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    install_missing().context("installing what the tests need")?;
    let all = [&with_faults(&["test", "--no-fail-fast"])[..], &["--", "--show-output"]].concat();
    let scheduled = [&SCHEDULES[..], &["--", "--show-output"]].concat();
    run_all(&[&all, &scheduled], filters, variables)
}

/// A part of all tests that the proof runs separately. Together the parts are all tests but those under a scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// The crates of the engine and the program, and the simulation.
    Rooms,
    /// `check`, compared with the kernel and `btrfs check`.
    Verifier,
    /// The program, compared with the kernel, coreutils and btrfs-progs.
    Conformance,
    /// Filesystems of several devices, compared with the kernel, and scrubs of failing ones.
    Sets,
}

/// Runs a part of the tests, with `variables` added to the environment.
pub(crate) fn run_part(part: Part, variables: &[(&str, &str)]) -> Result<()> {
    let package = |package| vec!["test", "--locked", "--no-fail-fast", "--package", package];
    let words = match part {
        Part::Rooms => {
            let rest = [
                "test",
                "--no-fail-fast",
                "--exclude",
                "creamery-check",
                "--exclude",
                "creamery-conformance",
            ];
            with_faults(&rest)
        }
        Part::Verifier => package("creamery-check"),
        Part::Conformance => package("creamery-conformance"),
        Part::Sets => [&package("libcreamery")[..], &["--test", "sets", "--test", "scrub"]].concat(),
    };
    // They are cases in tests of one of the crates.
    let skipped: &[&str] = match part {
        Part::Rooms => &["--skip", "set-matrix/", "--skip", "scrub-matrix/"],
        _ => &[],
    };
    run_all(&[&[&words[..], &["--", "--show-output"], skipped].concat()], &[], variables)
}

/// Runs only the tests under a scheduler.
pub(crate) fn run_schedules(variables: &[(&str, &str)]) -> Result<()> {
    run_all(&[&[&SCHEDULES[..], &["--"]].concat()], &[], variables)
}

/// Runs cargo with the words of each of `runs`, and `filters`; the last line counts all of them together. Everything is built first,
/// unwatched: a build takes long on a busy machine and prints nothing in between.
fn run_all(runs: &[&[&str]], filters: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let program = build_tested()?;
    for words in runs {
        let building = words.iter().copied().take_while(|word| *word != "--");
        run(cargo(&building.collect::<Vec<_>>()).arg("--no-run"))?;
    }
    let mut counts = Counts::default();
    let mut well = true;
    for words in runs {
        let mut command = cargo(words);
        command.args(filters).envs(variables.iter().copied()).env("CREAMERY_BIN", &program);
        well &= run_counted(&mut command, &mut counts)?;
    }
    println!("{}", counts.summary());
    if !well || counts.failed > 0 {
        bail!("tests failed\n{}", counts.failures.join("\n"));
    }
    if counts.skipped > 0 && variables.contains(&("CREAMERY_REQUIRE_JUDGES", "1")) {
        bail!("{} tests were skipped, and here none may be", counts.skipped);
    }
    if counts.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

/// Runs tests, prints and counts their results; returns whether they succeeded.
fn run_counted(command: &mut Command, counts: &mut Counts) -> Result<bool> {
    // If a test of the standard runner lacks a tool, it returns early and prints "skipped: " and the reason; with its output shown these
    // lines can be counted.
    let status = watched(command, SILENCE, |line| {
        let text = String::from_utf8_lossy(line);
        counts.add(&text);
        if counts.is_worth_showing(&text) {
            let mut out = std::io::stdout().lock();
            out.write_all(line)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    })?;
    Ok(status.success())
}

/// Whether this is a line of a backtrace; the failure itself is printed above it.
fn is_stack_frame(line: &str) -> bool {
    let line = line.trim_start();
    let numbered = line.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    numbered || line.starts_with("at ")
}

#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Tests of the current binary that printed that they were skipped, and count as passed there.
    returned_early: u64,
    reasons: BTreeMap<String, u64>,
    /// The current section of a binary's report.
    section: Section,
    /// Output and names of failed tests: they are repeated at the end, where a reader of a long log begins.
    failures: Vec<String>,
}

/// The sections of the report with which a test binary ends.
#[derive(Default, PartialEq)]
enum Section {
    #[default]
    Results,
    Successes,
    Failures,
}

impl Counts {
    /// Parses a line of a test run.
    fn add(&mut self, line: &str) {
        self.keep_failure(line);
        if let Some((_, reason)) = line.split_once(" ... skipped: ") {
            *self.reasons.entry(reason.to_owned()).or_default() += 1;
        }
        if let Some(reason) = line.strip_prefix("skipped: ") {
            *self.reasons.entry(reason.to_owned()).or_default() += 1;
            self.returned_early += 1;
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let words: Vec<&str> = result.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
        let number = |name: &str| {
            let at = words.iter().position(|word| *word == name).unwrap_or(0);
            words.get(at.wrapping_sub(1)).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
        };
        self.passed += number("passed");
        self.failed += number("failed");
        let early = std::mem::take(&mut self.returned_early);
        self.passed -= early.min(self.passed);
        self.skipped += number("ignored") + early;
    }

    /// Whether the log shows this line. Output of a passed test is left out, except for missing tools: a canary that must be caught fails
    /// on purpose, with a backtrace of a hundred lines.
    fn is_worth_showing(&self, line: &str) -> bool {
        self.section != Section::Successes || line.starts_with("skipped: ")
    }

    fn keep_failure(&mut self, line: &str) {
        match line {
            "successes:" => self.section = Section::Successes,
            "failures:" => self.section = Section::Failures,
            _ if line.starts_with("test result: ") => self.section = Section::Results,
            _ if self.section == Section::Failures
                && !line.trim().is_empty()
                && !is_stack_frame(line)
                && self.failures.len() < FAILURE_LINES =>
            {
                self.failures.push(line.to_owned());
            }
            _ => {}
        }
    }

    fn summary(&self) -> String {
        let mut text =
            format!("tests: {} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        for (reason, count) in &self.reasons {
            text.push_str(&format!("\n  {count} skipped: {reason}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn results_of_several_runs_are_added() {
        let mut counts = Counts::default();
        let mut shown = Vec::new();
        for line in [
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s",
            "test image/default ... skipped: root missing (run as root)",
            "skipped: mkfs.btrfs missing",
            "successes:",
            "---- well stdout ----",
            "panicked on purpose",
            "skipped: fio missing",
            "failures:",
            "",
            "---- ill stdout ----",
            "left: 1, right: 2",
            "  10: core::panicking::panic_fmt",
            "             at ./tests/it.rs:12:3",
            "failures:",
            "    ill",
            "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.10s",
        ] {
            counts.add(line);
            if counts.is_worth_showing(line) {
                shown.push(line);
            }
        }
        assert!(shown.contains(&"left: 1, right: 2") && shown.contains(&"skipped: fio missing"));
        assert!(!shown.contains(&"panicked on purpose"));
        let wanted = "tests: 13 passed, 2 failed, 4 skipped\n  1 skipped: fio missing\n  1 skipped: mkfs.btrfs missing\n  1 skipped: root missing (run as root)";
        assert_eq!(counts.summary(), wanted);
        assert_eq!(counts.failures, ["---- ill stdout ----", "left: 1, right: 2", "    ill"]);
    }
}
