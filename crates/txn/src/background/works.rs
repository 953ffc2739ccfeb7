//! The engine's own background work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use creamery_base::Result;

use super::{BackgroundWork, Due, micros};
use crate::engine::Engine;

/// Threads that write a transaction out at once: more wait for the device, not for each other's checksums.
const WRITERS: usize = 4;

/// When to commit if nobody asks.
#[derive(Default)]
pub(crate) struct CommitTimer {
    /// Microseconds between two commits; 0 for never.
    interval: AtomicU64,
    /// When the last one began, microseconds.
    last: AtomicU64,
}

impl CommitTimer {
    fn left(&self, now: Duration) -> Option<Duration> {
        let interval = self.interval.load(Ordering::Relaxed);
        let due = Duration::from_micros(self.last.load(Ordering::Relaxed).saturating_add(interval));
        (interval > 0).then(|| due.saturating_sub(now))
    }
}

impl Engine {
    /// Has the background commit every so often; none, never. Without threads for it, or somebody who takes its steps, that
    /// does not happen.
    pub fn commit_every(&self, interval: Option<Duration>) {
        let interval = interval.map_or(0, |interval| micros(interval).max(1));
        self.timer.last.store(micros(self.env().monotonic()), Ordering::Relaxed);
        self.timer.interval.store(interval, Ordering::Relaxed);
        self.wake_background();
    }
}

/// Has the pool know of what every engine has to do.
pub(crate) fn register_own(engine: &Arc<Engine>) {
    let weak = || Arc::downgrade(engine);
    engine.register_background(Arc::new(WritingOut(weak())));
    engine.register_background(Arc::new(RunningRefs(weak())));
    engine.register_background(Arc::new(Committing(weak())));
}

/// What is due, if the engine is there and can write.
fn due(engine: &Weak<Engine>, due: impl FnOnce(&Engine) -> Due) -> Due {
    match engine.upgrade() {
        Some(engine) if engine.read_only().is_none() => due(&engine),
        _ => Due::Never,
    }
}

fn now_if(is_due: bool) -> Due {
    if is_due { Due::Now } else { Due::Never }
}

/// Writes batches of a closed transaction, and after the last one makes it durable.
struct WritingOut(Weak<Engine>);

impl BackgroundWork for WritingOut {
    fn name(&self) -> &'static str {
        "write-out"
    }

    fn due(&self) -> Due {
        due(&self.0, |engine| now_if(engine.has_batches()))
    }

    fn step(&self) -> Result<()> {
        self.0.upgrade().map_or(Ok(()), |engine| engine.write_a_batch(false).map(drop))
    }

    fn at_once(&self) -> usize {
        WRITERS
    }
}

/// Runs delayed refs while very many wait.
struct RunningRefs(Weak<Engine>);

impl BackgroundWork for RunningRefs {
    fn name(&self) -> &'static str {
        "delayed-refs"
    }

    fn due(&self) -> Due {
        due(&self.0, |engine| now_if(engine.many_refs_wait()))
    }

    fn step(&self) -> Result<()> {
        self.0.upgrade().map_or(Ok(()), |engine| engine.share_run_refs())
    }
}

/// Commits when memory asks for it, and every so often.
struct Committing(Weak<Engine>);

impl BackgroundWork for Committing {
    fn name(&self) -> &'static str {
        "commit"
    }

    fn due(&self) -> Due {
        due(&self.0, |engine| match engine.timer.left(engine.env().monotonic()) {
            _ if engine.is_a_commit_due() => Due::Now,
            Some(Duration::ZERO) => Due::Now,
            Some(left) => Due::In(left),
            None => Due::Never,
        })
    }

    fn step(&self) -> Result<()> {
        let Some(engine) = self.0.upgrade() else { return Ok(()) };
        engine.timer.last.store(micros(engine.env().monotonic()), Ordering::Relaxed);
        engine.commit()
    }
}
