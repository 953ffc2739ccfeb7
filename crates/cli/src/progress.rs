//! How far long work is: on a terminal a line that changes, or a bar, and with `--progress` elsewhere a line on standard error, now and then.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::failure::say;

/// Seconds between two lines: a log is read, and not watched.
const BETWEEN: u64 = 5;
/// What is done sooner needs no word.
const SHORT: Duration = Duration::from_secs(1);

/// The time that is left, behind a bar; nothing where there is no estimate.
pub(crate) fn left(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    let eta = state.eta();
    if !state.is_finished() && eta.as_secs() > 0 {
        let _ = write!(out, "{} left ", HumanDuration(eta));
    }
}

/// Of commands that may take long.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct ProgressArgs {
    /// Say on stderr how far it is, a line every few seconds, and in the end what was done; on a terminal the first is shown anyway.
    #[arg(long)]
    pub(crate) progress: bool,
}

/// See the module.
pub(crate) struct Shown {
    /// Hidden where there is no terminal.
    pub(crate) bar: ProgressBar,
    command: &'static str,
    since: Instant,
    /// Seconds from there to the next line, where lines are wanted.
    next: Option<AtomicU64>,
    /// Whether it is wanted, also where it is shown anyway.
    wanted: bool,
}

impl Shown {
    /// Shows `bar`; lines in its place, where there is no terminal, if they are wanted.
    pub(crate) fn new(command: &'static str, bar: ProgressBar, args: ProgressArgs) -> Self {
        let wanted = args.progress;
        let lines = wanted && !std::io::stderr().is_terminal();
        Self { bar, command, since: Instant::now(), next: lines.then(AtomicU64::default), wanted }
    }

    /// The same for work of which nobody knows how much there is.
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

    /// Says `what` in a line, when it is time for one.
    pub(crate) fn line(&self, what: impl FnOnce() -> String) {
        let Some(next) = &self.next else { return };
        let now = self.since.elapsed().as_secs();
        if now >= next.load(Ordering::Relaxed) {
            next.store(now + BETWEEN, Ordering::Relaxed);
            say(&format!("{}: {}", self.command, what()));
        }
    }

    /// Shows nothing on a terminal, where others write.
    pub(crate) fn hide(&self) {
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }

    /// Takes away what is shown.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// The same, and says what was `done`, where progress is wanted.
    pub(crate) fn end_with(&self, done: impl FnOnce() -> String) {
        self.end();
        if self.wanted {
            say(&format!("{}: {} in {}", self.command, done(), HumanDuration(self.since.elapsed())));
        }
    }
}
