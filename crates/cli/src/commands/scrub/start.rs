//! `creamery scrub start` and `resume`.

use std::cell::OnceCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use creamery::attributes::Timespec;
use creamery::check::scrub::{Progress, Scrub};
use creamery::env::{Env as _, SystemEnv};
use creamery::{Error, ErrorKind};
use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Uuid};

use super::text::{self, Numbers};
use super::{background, live};
use crate::failure::{Failure, warn};
use crate::interrupt;
use crate::output::{Output, writing};
use crate::progress::{ProgressArgs, Shown};
use crate::size::Size;
use crate::state;
use crate::units::UnitArgs;
use crate::view::DeviceArgs;

/// Nothing is there to resume.
pub(super) const NOTHING: u8 = 2;
/// Errors are left.
const LEFT: u8 = 3;

/// Read everything that is in use, and mend what is bad from what is good.
///
/// Each device is read by itself: all data that has checksums, all tree blocks, parity of RAID5 and
/// RAID6, and the superblocks. What is bad is written anew from a good copy, or rebuilt; with -r
/// nothing is written. Data without checksums is compared between copies, and left as it is. On a mount
/// of an image its server scrubs, beside all that goes on there.
///
/// Without -B the scrub goes on in the background: `creamery scrub status` shows how far it is,
/// `creamery scrub cancel` ends it, and `creamery scrub resume` goes on where one ended too early.
/// What is known of it is kept in $XDG_STATE_HOME/creamery, else in /var/lib/creamery for root and
/// in ~/.local/state/creamery for others.
///
/// The exit status is 0 where nothing bad is left, 3 where something is (with -B), 1 where nothing
/// could be scrubbed.
///
/// Examples:
///   creamery scrub start -B disk.img
///   creamery scrub start -Br m1.img
///   creamery scrub start --limit 50M m1.img --device m2.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,

    /// Begin also where the status of the last scrub cannot be read.
    #[arg(short = 'f', long)]
    force: bool,
}

/// Go on where a scrub was cancelled, or died.
///
/// Devices that it has been through are not read again. What it counted counts as well.
///
/// The exit status is that of `scrub start`, and 2 where there is nothing to resume.
///
/// Example:
///   creamery scrub resume -B disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
}

/// How to scrub.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each option")]
pub(super) struct RunArgs {
    /// The image or device, or a partition of one (disk.raw@2), or a directory of a mount of one. Of several devices each is named, unless nothing is written (-r).
    #[arg(value_name = "IMAGE|DIR")]
    pub(super) image: PathBuf,

    /// Stay in the foreground, and print what was found.
    #[arg(short = 'B')]
    pub(super) stays: bool,

    /// Print the numbers of each device.
    #[arg(short = 'd')]
    pub(super) by_device: bool,

    /// Print all numbers as they are.
    #[arg(short = 'R')]
    pub(super) all_numbers: bool,

    /// Write nothing.
    #[arg(short = 'r', long = "readonly")]
    pub(super) reads_only: bool,

    /// Rewrite parity also where data has no checksum, which is then taken as it stands.
    #[arg(long, conflicts_with = "reads_only")]
    pub(super) rewrite_parity: bool,

    /// Read each device no faster than so many bytes a second.
    #[arg(long, value_name = "SIZE")]
    pub(super) limit: Option<Size>,

    /// Class of I/O priority, as ionice(1) has it.
    #[arg(short = 'c', value_name = "CLASS")]
    pub(super) io_class: Option<u8>,

    /// Level within that class.
    #[arg(short = 'n', value_name = "LEVEL")]
    pub(super) io_level: Option<u8>,

    /// One JSON object.
    #[arg(long, requires = "stays")]
    pub(super) json: bool,

    /// Say so on standard output when the scrub has begun, then let go of the terminal.
    #[arg(long, hide = true)]
    pub(super) announce: bool,

    #[command(flatten)]
    pub(super) units: UnitArgs,

    #[command(flatten)]
    pub(super) progress: ProgressArgs,

    #[command(flatten)]
    pub(super) set: DeviceArgs,
}

/// Which of the two commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    Start,
    Resume,
}

impl Which {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Start => "scrub start",
            Self::Resume => "scrub resume",
        }
    }
}

pub(super) fn start(args: &StartArgs) -> Result<(), Failure> {
    let StartArgs { run, force } = args;
    if let Some(mount) =
        live::mount_at(&run.image).map_err(|error| Failure::new(Which::Start.name(), error))?
    {
        return live::begin(&mount, run, Which::Start);
    }
    let failed = |error| Failure::new(Which::Start.name(), error);
    if !force && let Ok(dir) = state::dir() {
        // A status that lies is no reason to lose it in silence.
        let file = Scrub::status_file(run.set.of(&run.image), &dir).map_err(failed)?;
        file.read().map_err(|error| failed(error).advise("remove the file, or begin with -f"))?;
    }
    begin(run, Which::Start)
}

pub(super) fn resume(args: &ResumeArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(Which::Resume.name(), error);
    match live::mount_at(&args.run.image).map_err(failed)? {
        Some(mount) => live::begin(&mount, &args.run, Which::Resume),
        None => begin(&args.run, Which::Resume),
    }
}

fn begin(args: &RunArgs, which: Which) -> Result<(), Failure> {
    let failed = |error| Failure::new(which.name(), error);
    if args.stays {
        return scrub(args, which);
    }
    background::begin(args, which).map_err(failed)
}

/// Shows how far it is.
struct Terminal<'s> {
    args: &'s RunArgs,
    shown: &'s Shown,
    /// Why the program could not let go of the terminal.
    failure: RankedMutex<OnceCell<Error>, { rank::LEAF }>,
}

impl Progress for Terminal<'_> {
    fn begins(&self, filesystem: Uuid, devices: &[DevId]) {
        if self.args.announce
            && let Err(error) = background::announce(self.args, filesystem, devices)
        {
            let _ = self.failure.lock().set(error);
        }
    }

    fn scrubbed(&self, bytes: u64) -> bool {
        self.shown.at(|| format!("{} scrubbed", self.args.units.show(bytes)));
        interrupt::go_on().is_ok() && self.failure.lock().get().is_none()
    }
}

/// How a scrub is made as the options say.
fn wanted(args: &RunArgs, which: Which) -> Result<Scrub, Failure> {
    let mut scrub = Scrub::default();
    if args.reads_only {
        scrub = scrub.read_only();
    }
    if args.rewrite_parity {
        scrub = scrub.rewriting_parity();
    }
    if let Some(Size(limit)) = args.limit.filter(|limit| limit.0 > 0) {
        scrub = scrub.limit(limit);
    }
    match (state::dir(), which) {
        (Ok(dir), Which::Start) => Ok(scrub.kept_in(dir)),
        (Ok(dir), Which::Resume) => Ok(scrub.resuming(dir)),
        (Err(error), Which::Start) if args.stays && !args.announce => {
            warn(&error.to_string());
            Ok(scrub)
        }
        (Err(error), _) => Err(Failure::new(which.name(), error)),
    }
}

fn scrub(args: &RunArgs, which: Which) -> Result<(), Failure> {
    let failed = |error: Error| {
        let is_nothing = which == Which::Resume && error.kind() == ErrorKind::NotFound;
        let failure = Failure::new(which.name(), error);
        if is_nothing { failure.plain().status(NOTHING) } else { failure }
    };
    let scrub = wanted(args, which)?;
    if let Some(class) = args.io_class.or(args.io_level.map(|_| 3)) {
        background::set_io_priority(class, args.io_level).map_err(failed)?;
    }
    let (started, begun) = (SystemEnv.now(), Instant::now());
    interrupt::watch();
    let shown = Shown::unbounded(which.name(), args.progress);
    let terminal = Terminal { args, shown: &shown, failure: RankedMutex::default() };
    let report = scrub.run(args.set.of(&args.image), &terminal).map_err(failed)?;
    shown.bar.finish_and_clear();
    if let Some(why) = &report.not_kept {
        warn(why);
    }
    finish(args, which, &report.into(), (started, begun.elapsed()))
}

/// Prints what was found. Errors: errors are left; a signal came.
pub(super) fn finish(
    args: &RunArgs,
    which: Which,
    shown: &text::Shown,
    (started, took): (Timespec, Duration),
) -> Result<(), Failure> {
    let failed = |error| Failure::new(which.name(), error);
    let mut out = Output::new();
    let printed = match args.json {
        true => text::as_json(&mut out, shown, took),
        false => as_text(&mut out, args, shown, (started, took)),
    };
    printed.map_err(writing).and_then(|()| out.finish()).map_err(failed)?;
    interrupt::go_on().map_err(failed)?;
    match left(args, shown) {
        Some(failure) => Err(failed(failure).status(LEFT)),
        None => Ok(()),
    }
}

/// What is said of errors that are left, if some are.
fn left(args: &RunArgs, shown: &text::Shown) -> Option<Error> {
    let counts = shown.counts();
    let left = counts.uncorrectable_errors + counts.unverified_errors;
    if left == 0 {
        return None;
    }
    let what = format!("{}: {left} errors are left", args.image.display());
    let advice = match (args.reads_only, counts.uncorrectable_errors) {
        (true, 0) => "without -r they are mended where something says what is right",
        _ => {
            "restore the files that are named from a backup; `creamery help rescue` says what else is left to try"
        }
    };
    Some(Error::new(ErrorKind::Corrupt, what).advise(advice))
}

fn as_text(
    out: &mut Output,
    args: &RunArgs,
    shown: &text::Shown,
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
