//! How far long work is: a bar on a terminal, and with `--progress` elsewhere a line on standard error, now and then.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::ProgressBar;

use crate::failure::say;

/// Seconds between two lines: a log is read, and not watched.
const BETWEEN: u64 = 5;

/// See the module.
pub(crate) struct Shown {
    /// Hidden where there is no terminal.
    pub(crate) bar: ProgressBar,
    command: &'static str,
    since: Instant,
    /// Seconds from there to the next line, where lines are wanted.
    next: Option<AtomicU64>,
}

impl Shown {
    /// Shows `bar`; lines in its place, where there is no terminal, if they are wanted.
    pub(crate) fn new(command: &'static str, bar: ProgressBar, lines: bool) -> Self {
        let lines = lines && !std::io::stderr().is_terminal();
        Self { bar, command, since: Instant::now(), next: lines.then(AtomicU64::default) }
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

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
