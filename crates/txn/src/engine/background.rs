//! Background work of the engine, and the threads that take its steps.

use std::sync::{Arc, Weak};
use std::time::Duration;

use creamery_base::Result;
use creamery_base::panics::Panic;

use super::Engine;
use crate::background::{Background, BackgroundThreads, BackgroundWork, Due};

/// Threads that write a transaction out at once: more wait for the device, not for each other's checksums.
const WRITERS: usize = 4;
/// Threads that read tree blocks ahead at once.
const READERS: usize = 4;

impl Engine {
    /// Starts up to `threads` threads for the background work, 0 for none. A thread that the host cannot start is left out.
    pub fn start_background(self: &Arc<Self>, threads: usize) -> BackgroundThreads {
        let engine = Arc::downgrade(self);
        let lives = {
            let engine = Weak::clone(&engine);
            move || engine.strong_count() > 0
        };
        let died = move |panic: &Panic| {
            if let Some(engine) = engine.upgrade() {
                engine.abort_after_panic(panic);
            }
        };
        if threads > 0 {
            self.begin_read_ahead();
        }
        BackgroundThreads::start(Arc::clone(&self.background), threads, lives, died)
    }

    /// Takes one step of background work on this thread: `choose` gets the number of works that are due, now or after
    /// a while, and returns the index of one. Returns its name, or `None` when none is due. Never call it with a handle.
    pub fn background_step(&self, choose: impl FnOnce(usize) -> usize) -> Option<&'static str> {
        self.begin_read_ahead();
        self.background.step(choose, &|panic| self.abort_after_panic(panic))
    }

    /// The background work, and the threads that take its steps.
    #[must_use]
    pub fn background(&self) -> &Background {
        &self.background
    }

    /// Begins reading tree blocks ahead: from now on some thread takes background steps.
    fn begin_read_ahead(&self) {
        if self.options.read_ahead && !self.store.reads_ahead() {
            let background = Arc::downgrade(&self.background);
            self.store.begin_read_ahead(move || {
                if let Some(background) = background.upgrade() {
                    background.wake();
                }
            });
        }
    }

    /// Sets the time between commits by the background; `None` turns them off. This needs background threads, or a caller of
    /// [`Engine::background_step`].
    pub fn commit_every(&self, interval: Option<Duration>) {
        self.timer.set(interval, self.env().monotonic());
        self.background.wake();
    }

    /// Time between the commits that the background makes; `None` when it makes none by time.
    #[must_use]
    pub fn commit_interval(&self) -> Option<Duration> {
        self.timer.interval()
    }

    /// Registers the background work of every engine: reading ahead, and the work that writing needs.
    pub(super) fn register_own_work(self: &Arc<Self>) {
        self.background.register(Arc::new(ReadingAhead(Arc::downgrade(self))));
        if self.is_opened_for_reading() {
            return;
        }
        let weak = || Arc::downgrade(self);
        self.background.register(Arc::new(WritingOut(weak())));
        self.background.register(Arc::new(RunningRefs(weak())));
        self.background.register(Arc::new(Committing(weak())));
        self.background.register(Arc::new(Discarding(weak())));
        self.background.register(Arc::new(Rescanning(weak())));
    }
}

/// Reads tree blocks before a walk comes to them.
struct ReadingAhead(Weak<Engine>);

impl BackgroundWork for ReadingAhead {
    fn name(&self) -> &'static str {
        "read-ahead"
    }

    fn due(&self) -> Due {
        now_if(self.0.upgrade().is_some_and(|engine| engine.store.has_read_ahead()))
    }

    fn step(&self) -> Result<()> {
        if let Some(engine) = self.0.upgrade() {
            engine.store.read_ahead_step();
        }
        Ok(())
    }

    fn at_once(&self) -> usize {
        READERS
    }
}

/// When a step is due, if the engine exists and can write.
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
        due(&self.0, |engine| now_if(engine.pipeline.write_out.has_batches()))
    }

    fn step(&self) -> Result<()> {
        self.0.upgrade().map_or(Ok(()), |engine| engine.write_a_batch())
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
        due(&self.0, |engine| now_if(engine.commit_due().many_refs_wait()))
    }

    fn step(&self) -> Result<()> {
        self.0.upgrade().map_or(Ok(()), |engine| engine.run_refs())
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
            _ if engine.commit_due().is_due() => Due::Now,
            Some(Duration::ZERO) => Due::Now,
            Some(left) => Due::In(left),
            None => Due::Never,
        })
    }

    fn step(&self) -> Result<()> {
        let Some(engine) = self.0.upgrade() else { return Ok(()) };
        engine.timer.begin(engine.env().monotonic());
        engine.commit()
    }
}

/// Discards the space that commits have freed.
struct Discarding(Weak<Engine>);

impl BackgroundWork for Discarding {
    fn name(&self) -> &'static str {
        "discard"
    }

    fn due(&self) -> Due {
        due(&self.0, |engine| now_if(!engine.discards.is_empty() && engine.has_changes()))
    }

    fn step(&self) -> Result<()> {
        self.0.upgrade().map_or(Ok(()), |engine| engine.discarder().step())
    }
}

/// Counts extents that quotas have not counted yet.
struct Rescanning(Weak<Engine>);

impl BackgroundWork for Rescanning {
    fn name(&self) -> &'static str {
        "quota-rescan"
    }

    fn due(&self) -> Due {
        due(&self.0, |engine| now_if(engine.quotas().is_rescanning() && engine.has_changes()))
    }

    fn step(&self) -> Result<()> {
        self.0.upgrade().map_or(Ok(()), |engine| engine.quotas().rescan_step().map(drop))
    }
}
