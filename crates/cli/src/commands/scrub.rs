//! `creamery scrub`.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use creamery::attributes::Timespec;
use creamery::check::DamagedFile;
use creamery::check::scrub::{Counts, Damage, Ended, Outcome, Progress, Report, Scrub, What};
use creamery::env::{Env as _, SystemEnv};
use creamery::{Error, ErrorKind};
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt;
use crate::json::text_of;
use crate::output::{Output, writing};
use crate::progress::{ProgressArgs, Shown};
use crate::time::Utc;
use crate::units::UnitArgs;
use crate::view::DeviceArgs;

const COMMAND: &str = "scrub start";
/// Errors are left.
const LEFT: u8 = 3;

/// Read everything that is in use, and mend what is bad.
#[derive(Subcommand, Debug)]
pub(crate) enum ScrubCommand {
    Start(StartArgs),
}

/// Read everything that is in use, and mend what is bad from what is good.
///
/// Each device is read by itself: all data that has checksums, all tree blocks, parity of RAID5 and
/// RAID6, and the superblocks. What is bad is written anew from a good copy, or rebuilt; with -r
/// nothing is written. Data without checksums is compared between copies, and left as it is. The
/// command returns when it is done, with -B or without. An image that is mounted is not scrubbed.
///
/// The exit status is 0 where nothing bad is left, 3 where something is, 1 where nothing could be
/// scrubbed.
///
/// Examples:
///   creamery scrub start disk.img
///   creamery scrub start -r m1.img
///   creamery scrub start m1.img --device m2.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct StartArgs {
    /// The image or device, or a partition of one (disk.raw@2). Of several devices each is named, unless nothing is written (-r).
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// Return when it is done; it does always.
    #[arg(short = 'B')]
    stays: bool,

    /// Print the numbers of each device.
    #[arg(short = 'd')]
    by_device: bool,

    /// Print all numbers as they are.
    #[arg(short = 'R')]
    all_numbers: bool,

    /// Write nothing.
    #[arg(short = 'r', long = "readonly")]
    reads_only: bool,

    /// What `btrfs scrub` does to start another one; nothing keeps one from starting here.
    #[arg(short = 'f', hide = true)]
    force: bool,

    /// One JSON object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    units: UnitArgs,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    set: DeviceArgs,
}

pub(crate) fn run(command: &ScrubCommand) -> Result<(), Failure> {
    match command {
        ScrubCommand::Start(args) => start(args),
    }
}

/// Shows how far it is.
struct Bytes<'s> {
    shown: &'s Shown,
    units: &'s UnitArgs,
}

impl Progress for Bytes<'_> {
    fn scrubbed(&self, bytes: u64) -> bool {
        self.shown.at(|| format!("{} scrubbed", self.units.show(bytes)));
        interrupt::go_on().is_ok()
    }
}

fn start(args: &StartArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    if args.image.is_dir() {
        let what = format!("{} is a directory, and live mounts are not scrubbed", args.image.display());
        let advice = "unmount the image and name it; `btrfs scrub` of btrfs-progs scrubs a mount of Linux";
        return Err(failed(Error::unsupported(what)).advise(advice));
    }
    let scrub = if args.reads_only { Scrub::default().read_only() } else { Scrub::default() };
    let (started, begun) = (SystemEnv.now(), Instant::now());
    interrupt::watch();
    let shown = Shown::unbounded(COMMAND, args.progress);
    let bytes = Bytes { shown: &shown, units: &args.units };
    let report = scrub.run(args.set.of(&args.image), &bytes).map_err(failed)?;
    shown.bar.finish_and_clear();
    let took = begun.elapsed();
    let mut out = Output::new();
    let printed = match args.json {
        true => as_json(&mut out, &report, took),
        false => as_text(&mut out, args, &report, (started, took)),
    };
    printed.map_err(writing).and_then(|()| out.finish()).map_err(failed)?;
    interrupt::go_on().map_err(failed)?;
    let counts = report.counts();
    let left = counts.uncorrectable_errors + counts.unverified_errors;
    if left == 0 {
        return Ok(());
    }
    let what = format!("{}: {left} errors are left", args.image.display());
    let advice = match (args.reads_only, counts.uncorrectable_errors) {
        (true, 0) => "without -r they are mended where something says what is right",
        _ => {
            "restore the files that are named from a backup; `creamery help rescue` says what else is left to try"
        }
    };
    Err(failed(Error::new(ErrorKind::Corrupt, what)).advise(advice).status(LEFT))
}

fn as_text(
    out: &mut Output,
    args: &StartArgs,
    report: &Report,
    (started, took): (Timespec, Duration),
) -> io::Result<()> {
    let numbers = |out: &mut Output, counts: &Counts, ended: Ended| -> io::Result<()> {
        writeln!(out, "Scrub started:    {}", Utc(started))?;
        writeln!(out, "Status:           {}", status(ended))?;
        let seconds = took.as_secs();
        writeln!(out, "Duration:         {}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        if args.all_numbers { raw(out, counts) } else { summary(out, args, counts, seconds) }
    };
    for device in &report.devices {
        writeln!(out, "Starting scrub on devid {}", device.id)?;
    }
    if args.by_device {
        for device in &report.devices {
            write!(out, "\nScrub device ")?;
            out.path(&device.path)?;
            writeln!(out, " (id {}) done", device.id)?;
            numbers(out, &device.counts, device.ended)?;
        }
    } else {
        writeln!(out, "scrub done for {}", report.uuid)?;
        numbers(out, &report.counts(), report.ended())?;
    }
    damages(out, report)
}

/// What is bad and was not mended, with the files that have it.
fn damages(out: &mut Output, report: &Report) -> io::Result<()> {
    report.damages.iter().filter(|damage| damage.finding.outcome != Outcome::Mended).try_for_each(
        |damage| {
            let (what, outcome) = words(damage);
            let at = damage.finding.at;
            write!(out, "{what} at {at}")?;
            if let Some(logical) = damage.finding.logical {
                write!(out, ", logical {logical}")?;
            }
            writeln!(out, ", {outcome}: {}", damage.finding.why)?;
            damage.files.iter().try_for_each(|file| {
                write!(out, "  ")?;
                match &file.path {
                    Some(path) => out.path(path.as_ref())?,
                    None => write!(out, "inode {} of subvolume {}", file.inode, file.subvolume)?,
                }
                writeln!(out, ", byte {}", file.offset)
            })
        },
    )?;
    match report.left_out {
        0 => Ok(()),
        more => writeln!(out, "and {more} findings more"),
    }
}

/// Errors that there are, as btrfs-progs prints them.
fn summary(out: &mut Output, args: &StartArgs, counts: &Counts, seconds: u64) -> io::Result<()> {
    let bytes = counts.data_bytes_scrubbed + counts.tree_bytes_scrubbed;
    writeln!(out, "Total to scrub:   {}", args.units.show(bytes))?;
    writeln!(out, "Rate:             {}/s", args.units.show(bytes / seconds.max(1)))?;
    if counts.errors() == 0 {
        return writeln!(out, "Error summary:    no errors found");
    }
    write!(out, "Error summary:   ")?;
    for (name, number) in [
        ("read", counts.read_errors),
        ("super", counts.super_errors),
        ("verify", counts.verify_errors),
        ("csum", counts.csum_errors),
        ("differing", counts.differing),
    ] {
        if number > 0 {
            write!(out, " {name}={number}")?;
        }
    }
    writeln!(out)?;
    writeln!(out, "  Corrected:      {}", counts.corrected_errors)?;
    writeln!(out, "  Uncorrectable:  {}", counts.uncorrectable_errors)?;
    writeln!(out, "  Unverified:     {}", counts.unverified_errors)
}

fn raw(out: &mut Output, counts: &Counts) -> io::Result<()> {
    named(counts).into_iter().try_for_each(|(name, number)| writeln!(out, "\t{name}: {number}"))
}

/// The numbers by their names, in the order of btrfs-progs; those behind are our own.
const fn named(counts: &Counts) -> [(&'static str, u64); 17] {
    [
        ("data_extents_scrubbed", counts.data_extents_scrubbed),
        ("tree_extents_scrubbed", counts.tree_extents_scrubbed),
        ("data_bytes_scrubbed", counts.data_bytes_scrubbed),
        ("tree_bytes_scrubbed", counts.tree_bytes_scrubbed),
        ("read_errors", counts.read_errors),
        ("csum_errors", counts.csum_errors),
        ("verify_errors", counts.verify_errors),
        ("no_csum", counts.no_csum),
        ("csum_discards", 0),
        ("super_errors", counts.super_errors),
        ("malloc_errors", 0),
        ("uncorrectable_errors", counts.uncorrectable_errors),
        ("unverified_errors", counts.unverified_errors),
        ("corrected_errors", counts.corrected_errors),
        ("last_physical", counts.last_physical),
        ("parity_bytes_scrubbed", counts.parity_bytes_scrubbed),
        ("differing", counts.differing),
    ]
}

const fn status(ended: Ended) -> &'static str {
    match ended {
        Ended::Whole => "finished",
        Ended::Cancelled => "aborted",
        Ended::Failed => "failed",
    }
}

/// What is bad, and what became of it.
const fn words(damage: &Damage) -> (&'static str, &'static str) {
    let what = match damage.finding.what {
        What::Superblock => "superblock",
        What::Tree => "tree block",
        What::Data => "data",
        What::Parity => "parity",
        What::Differing => "data without checksum",
        What::NotScrubbed => "block group",
    };
    let outcome = match damage.finding.outcome {
        Outcome::Mended => "mended",
        Outcome::Mendable => "mendable",
        Outcome::Lost => "lost",
        Outcome::Undecided => "undecided",
    };
    (what, outcome)
}

#[derive(Serialize)]
struct ReportJson {
    uuid: String,
    seconds: f64,
    devices: Vec<DeviceJson>,
    findings: Vec<FindingJson>,
}

#[derive(Serialize)]
struct DeviceJson {
    id: u64,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    status: &'static str,
    #[serde(flatten)]
    counts: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct FindingJson {
    what: &'static str,
    outcome: &'static str,
    device: u64,
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    logical: Option<u64>,
    why: String,
    files: Vec<DamagedFile>,
}

fn as_json(out: &mut Output, report: &Report, took: Duration) -> io::Result<()> {
    let device = |device: &creamery::check::scrub::DeviceReport| {
        let (path, path_bytes) = text_of(device.path.as_os_str().as_bytes());
        let counts = named(&device.counts).into_iter();
        let counts = counts.map(|(name, number)| (name.to_owned(), number.into())).collect();
        let status = status(device.ended);
        DeviceJson { id: device.id.get(), path, path_bytes, status, counts }
    };
    let finding = |damage: &Damage| {
        let (what, outcome) = words(damage);
        let finding = &damage.finding;
        FindingJson {
            what,
            outcome,
            device: finding.at.dev.get(),
            offset: finding.at.offset,
            logical: finding.logical.map(|at| at.get()),
            why: finding.why.clone(),
            files: damage.files.clone(),
        }
    };
    let shown = ReportJson {
        uuid: report.uuid.to_string(),
        seconds: took.as_secs_f64(),
        devices: report.devices.iter().map(device).collect(),
        findings: report.damages.iter().map(finding).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &shown)?;
    writeln!(out)
}
