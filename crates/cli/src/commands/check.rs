//! `creamery check`.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use creamery::NamedSet;
use creamery::check::{CheckOptions, Problem, Progress, Report, check_set, exit_status};
use indicatif::ProgressBar;

use crate::failure::{Failure, is_broken_pipe, say};
use crate::images::warn_of_table;
use crate::output::{Output, writing};
use crate::view::DeviceArgs;

/// The exit status of fsck(8) for an operational error.
const COULD_NOT_CHECK: u8 = 8;
const WRONG_CALL: u8 = 16;

/// Verify a filesystem without writing to it.
///
/// Every finding has a permanent number; --explain says what it means. The exit
/// status is that of fsck(8): 0 without errors, 4 with errors, 8 when it could not check.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct CheckArgs {
    /// The image or device, or a partition of one (disk.raw@2); its other devices are found beside it, unless you name them.
    #[arg(value_name = "IMAGE", required_unless_present = "explain")]
    images: Vec<PathBuf>,

    /// Print what the finding with this number means, and check nothing.
    #[arg(long, value_name = "NUMBER", exclusive = true, value_parser = numbered)]
    explain: Option<Problem>,

    /// Not supported: `btrfs check` has it.
    #[arg(long, hide = true)]
    repair: bool,

    /// Ignored: check never writes.
    #[arg(long, hide = true)]
    readonly: bool,

    /// Ignored: check always saves memory.
    #[arg(long, hide = true, value_name = "MODE", value_parser = ["original", "lowmem"])]
    mode: Option<String>,

    /// Read all data, each copy, and compare it with its checksums; read each copy of the tree blocks, too.
    #[arg(long)]
    check_data_csum: bool,

    /// Read all parity of RAID5 and RAID6, too, and compare it with the data.
    #[arg(long)]
    check_parity: bool,

    /// One JSON object: findings and counts, or an error when nothing could be checked.
    #[arg(long)]
    json: bool,

    /// Print progress on stderr, a line for each part; a terminal shows it anyway.
    #[arg(short, long)]
    progress: bool,

    /// Number of threads [default: one for each core, at most 8].
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    #[command(flatten)]
    set: DeviceArgs,
}

impl CheckArgs {
    fn set(&self) -> NamedSet {
        let (first, others) = self.images.split_first().expect("one is required");
        self.set.of(first).devices(others)
    }
}

fn numbered(word: &str) -> Result<Problem, String> {
    let found = word.parse().ok().and_then(Problem::from_number);
    found.ok_or_else(|| "unknown finding; `creamery help findings` lists all".to_owned())
}

fn explain(problem: Problem) -> Result<(), Failure> {
    let mut out = Output::new();
    let (number, severity) = (problem.number(), problem.severity());
    let printed = writeln!(out, "{severity} {number}: {problem}\n\n{}", problem.meaning());
    printed.map_err(writing).and_then(|()| out.finish()).map_err(|error| Failure::new("check", error))
}

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    if let Some(problem) = args.explain {
        return explain(problem);
    }
    if args.repair {
        let what = Failure::usage("check", "--repair is not supported: check never writes");
        return Err(what.status(WRONG_CALL));
    }
    let mut options = CheckOptions {
        check_data_csum: args.check_data_csum,
        check_parity: args.check_parity,
        ..CheckOptions::default()
    };
    options.threads = args.threads.map_or(options.threads, NonZeroUsize::get);
    args.images.iter().for_each(|image| warn_of_table(image));
    let outcome = if args.progress {
        check_set(args.set(), &options, &Lines)
    } else {
        let spinner = Spinner(ProgressBar::new_spinner());
        spinner.0.enable_steady_tick(Duration::from_millis(200));
        let outcome = check_set(args.set(), &options, &spinner);
        spinner.0.finish_and_clear();
        outcome
    };
    let status = exit_status(&outcome);
    let told = |error| Failure::new("check", error).status(status);
    let mut out = Output::new();
    let report = match outcome {
        Ok(report) => report,
        Err(error) => {
            if args.json {
                let printed = error_as_json(&mut out, &error).map_err(writing);
                printed.and_then(|()| out.finish()).map_err(told)?;
            }
            return Err(told(error));
        }
    };
    let print = if args.json { as_json } else { as_text };
    print(&mut out, &report)
        .map_err(writing)
        .and_then(|()| out.finish())
        .map_err(|error| unread(error, status))?;
    if report.is_clean() {
        return Ok(());
    }
    let images: Vec<String> = args.images.iter().map(|image| image.display().to_string()).collect();
    let what = format!("{}: {} errors", images.join(", "), report.counts.errors);
    let error = creamery::Error::new(creamery::ErrorKind::Corrupt, what);
    Err(Failure::new("check", error)
        .advise("`creamery check --explain NUMBER` says what a finding means")
        .status(status))
}

/// A verdict that could not be printed is a failure, unless the reader closed the pipe (`| head`).
fn unread(error: creamery::Error, status: u8) -> Failure {
    let status = if is_broken_pipe(&error) { status } else { COULD_NOT_CHECK };
    Failure::new("check", error).status(status)
}

fn as_json(out: &mut Output, report: &Report) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

/// Prints why nothing could be checked.
fn error_as_json(out: &mut Output, error: &creamery::Error) -> std::io::Result<()> {
    let kind = format!("{:?}", error.kind());
    let document = serde_json::json!({ "error": { "kind": kind, "message": error.to_string() } });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn as_text(out: &mut Output, report: &Report) -> std::io::Result<()> {
    for finding in &report.findings {
        writeln!(out, "{finding}")?;
    }
    let counts = &report.counts;
    let left_out = (counts.errors + counts.warnings).saturating_sub(report.findings.len() as u64);
    if left_out > 0 {
        writeln!(out, "and {left_out} findings more")?;
    }
    writeln!(
        out,
        "{} trees, {} tree blocks, {} inodes, {} data extents: {} errors, {} warnings",
        counts.trees, counts.tree_blocks, counts.inodes, counts.data_extents, counts.errors, counts.warnings
    )
}

/// Prints the phases in lines.
struct Lines;

impl Progress for Lines {
    fn phase(&self, name: &'static str) {
        say(&format!("checking {name}"));
    }
}

/// Shows the phases on a terminal.
struct Spinner(ProgressBar);

impl Progress for Spinner {
    fn phase(&self, name: &'static str) {
        self.0.set_message(format!("checking {name}"));
    }
}
