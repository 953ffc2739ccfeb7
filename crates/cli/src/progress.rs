//! Progress of long work. A terminal shows a bar or a line that changes; elsewhere `--progress` prints a line on standard error every few
//! seconds.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::failure::say;

/// Seconds between two lines in a log.
const BETWEEN: u64 = 5;
/// Work that takes less shows no progress.
const SHORT: Duration = Duration::from_secs(1);

/// Writes the estimated time left behind a bar, or nothing without an estimate.
pub(crate) fn left(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    let eta = state.eta();
    if !state.is_finished() && eta.as_secs() > 0 {
        let _ = write!(out, "{} left ", HumanDuration(eta));
    }
}

/// Of commands that may take long.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ProgressArgs {
    /// Print progress on stderr every few seconds, and a summary at the end; a terminal shows progress anyway.
    #[arg(long)]
    pub(crate) progress: bool,
}

/// The progress of one command.
pub(crate) struct ShownProgress {
    /// The bar; hidden if there is no terminal.
    pub(crate) bar: ProgressBar,
    command: &'static str,
    since: Instant,
    /// Seconds until the next line, if lines are printed.
    next: Option<AtomicU64>,
    /// Whether the user asked for progress, also if a terminal shows it anyway.
    wanted: bool,
}

impl ShownProgress {
    /// Shows `bar` on a terminal; elsewhere prints lines if the user asked for them.
    pub(crate) fn new(command: &'static str, bar: ProgressBar, args: ProgressArgs) -> Self {
        let wanted = args.progress;
        let lines = wanted && !std::io::stderr().is_terminal();
        Self { bar, command, since: Instant::now(), next: lines.then(AtomicU64::default), wanted }
    }

    /// Shows progress of work whose amount is unknown.
    pub(crate) fn unbounded(command: &'static str, args: ProgressArgs) -> Self {
        let style = ProgressStyle::with_template("{spinner} {wide_msg}").expect("a valid template");
        Self::new(command, ProgressBar::new_spinner().with_style(style), args)
    }

    /// Shows `what`, unless the work has just begun.
    pub(crate) fn at(&self, what: impl Fn() -> String) {
        if self.bar.is_hidden() && self.next.is_none() || self.since.elapsed() < SHORT {
            return;
        }
        self.bar.set_message(format!("{}, {}", what(), HumanDuration(self.since.elapsed())));
        self.line(what);
    }

    /// Prints `what` as a line when the next one is due.
    pub(crate) fn line(&self, what: impl FnOnce() -> String) {
        let Some(next) = &self.next else { return };
        let now = self.since.elapsed().as_secs();
        if now >= next.load(Ordering::Relaxed) {
            next.store(now + BETWEEN, Ordering::Relaxed);
            say(&format!("{}: {}", self.command, what()));
        }
    }

    /// Hides the bar on a terminal while other output goes there.
    pub(crate) fn hide(&self) {
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Removes the bar, and prints what was `done` if the user asked for progress.
    pub(crate) fn end_with(&self, done: impl FnOnce() -> String) {
        self.end();
        if self.wanted {
            say(&format!("{}: {} in {}", self.command, done(), HumanDuration(self.since.elapsed())));
        }
    }
}
