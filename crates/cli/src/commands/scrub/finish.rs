//! The end of a scrub in the foreground: its findings, and the exit status.

use std::io::{self, Write};
use std::time::Duration;

use creamery::attributes::Timespec;
use creamery::check::scrub::{Ended, Finding, FindingKind, Mode, Outcome};
use creamery::{Error, ErrorKind};

use super::run_args::{RunArgs, Which};
use super::text::{self, Numbers};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{Output, writing};

/// The exit status if errors are left.
pub(super) const LEFT: u8 = 3;

/// Prints the findings. Errors: errors are left; a signal came.
pub(super) fn finish(
    args: &RunArgs,
    which: Which,
    shown: &text::ShownScrub,
    (started, took): (Timespec, Duration),
) -> Result<(), Failure> {
    let failed = |error| Failure::new(which.name(), error);
    let mut out = Output::new();
    let printed = match args.json {
        true => text::as_json(&mut out, shown, took),
        false if args.quiet => Ok(()),
        false => as_text(&mut out, args, shown, (started, took)),
    };
    printed.map_err(writing).and_then(|()| out.finish()).map_err(failed)?;
    interrupt::go_on().map_err(failed)?;
    if shown.ended() != Some(Ended::Whole) && left(args, shown).is_none() {
        let what = format!("{}: the scrub is incomplete", args.image.display());
        let advice = "`creamery scrub resume` continues it";
        return Err(failed(Error::new(ErrorKind::Interrupted, what)).plain().advise(advice));
    }
    match left(args, shown) {
        Some(failure) => Err(failed(failure).status(LEFT)),
        None => Ok(()),
    }
}

/// The message about errors that are left, if there are any.
fn left(args: &RunArgs, shown: &text::ShownScrub) -> Option<Error> {
    let counts = shown.counts();
    let left = counts.uncorrectable_errors.saturating_add(counts.unverified_errors);
    if left == 0 {
        return None;
    }
    let what = format!("{}: {left} errors are left", args.image.display());
    let what = Error::new(ErrorKind::Corrupt, what);
    if let Some(advice) = of_superblocks(shown) {
        return Some(what.advise(advice));
    }
    let is_unwritten = shown.findings.iter().any(|found| found.finding.outcome == Outcome::Unwritten);
    let is_unsummed = shown.findings.iter().any(|found| found.finding.what == FindingKind::UnsummedParity);
    if let Some(hindrance) = shown.hindrance.as_ref().filter(|_| counts.unverified_errors > 0) {
        return Some(what.advise(format!("no repair is possible at the moment ({hindrance})")));
    }
    let advice = match (shown.mode, counts.uncorrectable_errors) {
        _ if is_unwritten => {
            "good copies exist but could not be written: fix the reason above and scrub again; restore the files listed as lost from a backup"
        }
        _ if is_unsummed => {
            "compare the listed files with a backup; a scrub with --rewrite-parity accepts them as they are"
        }
        (Mode::ReadsOnly, 0) if !args.reads_only => {
            "the scrub was begun with -r: `creamery scrub start` repairs them where a checksum or a copy allows it"
        }
        (Mode::ReadsOnly, 0) => {
            "`creamery scrub start` without -r repairs them where a checksum or a copy allows it"
        }
        (Mode::ReadsOnly, _) if counts.unverified_errors > 0 => {
            "a new `creamery scrub start` without -r repairs some; restore the other listed files from a backup"
        }
        _ => "restore the listed files from a backup; `creamery help rescue` says what else is left to try",
    };
    Some(what.advise(advice))
}

/// The advice if a scrub cannot decide which superblock is right.
fn of_superblocks(shown: &text::ShownScrub) -> Option<String> {
    let is_left = |finding: &&Finding| matches!(finding.outcome, Outcome::Lost | Outcome::Undecided);
    let mut left = shown.findings.iter().map(|found| &found.finding).filter(is_left);
    let its = left.clone().find(|finding| finding.what == FindingKind::Superblock)?;
    let path = &shown.devices.iter().find(|device| device.id == its.at.dev)?.path;
    let mut advice = format!(
        "repair its superblocks with `creamery rescue super-recover {}`, then scrub it again",
        path.display()
    );
    if left.any(|finding| finding.what != FindingKind::Superblock) {
        advice.push_str(", and restore the listed files from a backup");
    }
    Some(advice)
}

fn as_text(
    out: &mut Output,
    args: &RunArgs,
    shown: &text::ShownScrub,
    (started, took): (Timespec, Duration),
) -> io::Result<()> {
    let numbers = |counts, ended| Numbers {
        counts,
        started,
        resumed: None,
        status: text::status(ended),
        seconds: took.as_secs(),
        is_running: false,
        limit: None,
    };
    if !args.announce {
        shown.devices.iter().try_for_each(|device| writeln!(out, "Starting scrub on devid {}", device.id))?;
    }
    if args.by_device {
        for device in &shown.devices {
            write!(out, "\nScrub device ")?;
            out.path(&device.path)?;
            writeln!(out, " (id {}) done", device.id)?;
            numbers(device.counts, device.ended).print(out, &args.units, args.all_numbers)?;
        }
    } else {
        writeln!(out, "scrub done for {}", shown.uuid)?;
        numbers(shown.counts(), shown.ended()).print(out, &args.units, args.all_numbers)?;
    }
    text::damages(out, shown)
}
