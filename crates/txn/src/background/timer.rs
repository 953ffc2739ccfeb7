//! The timer of automatic commits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::micros;

/// Time between commits.
#[derive(Default)]
pub(crate) struct CommitTimer {
    /// Microseconds between two commits; 0 for never.
    interval: AtomicU64,
    /// When the last commit began, microseconds.
    last: AtomicU64,
}

impl CommitTimer {
    /// Sets the time between commits, from `now` on; `None` turns commits by time off.
    pub(crate) fn set(&self, interval: Option<Duration>, now: Duration) {
        let interval = interval.map_or(0, |interval| micros(interval).max(1));
        self.begin(now);
        self.interval.store(interval, Ordering::Relaxed);
    }

    /// Restarts the time: a commit begins.
    pub(crate) fn begin(&self, now: Duration) {
        self.last.store(micros(now), Ordering::Relaxed);
    }

    /// Time between two commits; `None` when commits by time are off.
    pub(crate) fn interval(&self) -> Option<Duration> {
        let interval = self.interval.load(Ordering::Relaxed);
        (interval > 0).then(|| Duration::from_micros(interval))
    }

    /// Time left to the next commit; `None` when commits by time are off.
    pub(crate) fn left(&self, now: Duration) -> Option<Duration> {
        let interval = self.interval.load(Ordering::Relaxed);
        let due = Duration::from_micros(self.last.load(Ordering::Relaxed).saturating_add(interval));
        (interval > 0).then(|| due.saturating_sub(now))
    }
}
