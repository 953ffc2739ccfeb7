//! `creamery scrub start` and `resume`.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use creamery::check::scrub::{Progress, Scrub};
use creamery::env::{Env as _, SystemEnv};
use creamery::{Error, ErrorKind};
use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Uuid};

use super::finish::finish;
use super::run_args::{INTERRUPTED, NOTHING, RunArgs, Which};
use super::{background, live};
use crate::failure::{Failure, warn};
use crate::interrupt;
use crate::progress::ShownProgress;
use crate::state;

/// Read everything in use, and repair errors from good copies.
///
/// Each device is read by itself: all data that has checksums, all tree blocks, parity of RAID5 and
/// RAID6, and the superblocks. Bad blocks are rewritten from a good copy, or rebuilt; with -r
/// nothing is written. Data without checksums is only compared between copies. On a mount
/// of an image its server scrubs, while the mount is in use.
///
/// Without -B the scrub runs in the background: `creamery scrub status` shows its progress,
/// `creamery scrub cancel` stops it, and `creamery scrub resume` continues it. Its status is kept
/// in $XDG_STATE_HOME/creamery, else in /var/lib/creamery for root and in
/// ~/.local/state/creamery for others.
///
/// The exit status is 0 when no errors are left, 3 when some are (with -B), 1 when nothing
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

    /// Begin even if the status of the last scrub cannot be read.
    #[arg(short = 'f', long)]
    force: bool,
}

/// Continue a scrub that was cancelled, or died.
///
/// Finished devices are not read again, and its counts are kept. A scrub that was begun with -r
/// stays read-only: start a new one to repair. With -r the rest of a repairing scrub only reads.
///
/// The exit status is that of `scrub start`, and 2 when there is nothing to resume.
///
/// Example:
///   creamery scrub resume -B disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(super) run: RunArgs,
}

pub(super) fn start(args: &StartArgs) -> Result<(), Failure> {
    let StartArgs { run, force } = args;
    if let Some(mount) =
        live::mount_at(&run.image).map_err(|error| Failure::new(Which::Start.name(), error))?
    {
        // With -f or without: a scrub of a mount begins regardless of the last status.
        return live::begin(&mount, run, Which::Start);
    }
    let failed = |error| Failure::new(Which::Start.name(), error);
    if !force && let Ok(dir) = state::dir() {
        // A status that is wrong is still reported, not lost silently.
        let file = Scrub::status_file(run.set.of(&run.image), &dir).map_err(failed)?;
        match file.read() {
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(failed(error).advise("remove the file, or begin with -f"));
            }
            _ => {}
        }
    }
    begin(run, Which::Start)
}

pub(super) fn resume(args: &ResumeArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(Which::Resume.name(), error);
    match live::mount_at(&args.run.image).map_err(failed)? {
        Some(mount) => live::begin(&mount, &args.run, Which::Resume),
        None => {
            // An image that cannot be opened has no scrub to resume; the error is that of other commands.
            Scrub::status_file(args.run.set.of(&args.run.image), &state::dir().map_err(failed)?)
                .map_err(failed)?;
            begin(&args.run, Which::Resume)
        }
    }
}

fn begin(args: &RunArgs, which: Which) -> Result<(), Failure> {
    let failed = |error| Failure::new(which.name(), error);
    if args.stays {
        return scrub(args, which);
    }
    background::begin(args, which).map_err(failed)
}

/// Shows the progress of a scrub.
struct Terminal<'s> {
    args: &'s RunArgs,
    shown: &'s ShownProgress,
    /// The error that kept the program from detaching from the terminal.
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

    fn names_on(&self) -> bool {
        interrupt::go_on().is_ok()
    }
}

/// The scrub that the options describe.
fn wanted(args: &RunArgs, which: Which) -> Result<Scrub, Failure> {
    let mut scrub = Scrub::default();
    if args.reads_only {
        scrub = scrub.read_only();
    }
    if args.rewrite_parity {
        scrub = scrub.rewriting_parity();
    }
    if let Some(limit) = args.limit() {
        scrub = scrub.limit(limit);
    }
    match (usable(args), which) {
        (Ok(dir), Which::Start) => Ok(scrub.kept_in(dir)),
        (Ok(dir), Which::Resume) => Ok(scrub.resuming(dir)),
        (Err(error), Which::Start) if args.stays && !args.announce => {
            warn(&error.to_string());
            interrupt::leaves("the scrub ended early; repairs so far are kept");
            Ok(scrub)
        }
        (Err(error), _) => Err(Failure::new(which.name(), error)),
    }
}

/// The directory for the status.
/// Errors: no status can be kept there. A running scrub is no error here.
fn usable(args: &RunArgs) -> Result<PathBuf, Error> {
    let dir = state::dir()?;
    // The scrub itself reports why the image cannot be opened.
    let Ok(file) = Scrub::status_file(args.set.of(&args.image), &dir) else { return Ok(dir) };
    match file.begin() {
        Err(error) if error.kind() != ErrorKind::Busy => {
            let advice = "set XDG_STATE_HOME to a writable directory";
            Err(error.context("the status of the scrub is not kept").advise(advice))
        }
        _ => Ok(dir),
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
    interrupt::leaves(INTERRUPTED);
    let shown = ShownProgress::unbounded(which.name(), args.progress);
    let terminal = Terminal { args, shown: &shown, failure: RankedMutex::default() };
    let report = scrub.run(args.set.of(&args.image), &terminal).map_err(failed)?;
    if let Some(error) = terminal.failure.into_inner().into_inner() {
        // The program is still attached to the terminal, so the caller gets the reason.
        return Err(failed(error));
    }
    shown.bar.finish_and_clear();
    if let Some(why) = &report.not_kept {
        warn(why);
    }
    finish(args, which, &report.into(), (started, begun.elapsed()))
}
