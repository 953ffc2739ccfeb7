//! Background work: work that no caller waits for, cut into steps.
//!
//! Deleting files and subvolumes without a name, running delayed refs, writing a closed transaction out, committing every so often: each
//! is a [`BackgroundWork`] that says whether a step of it is due. In production a few threads take the steps
//! ([`Engine::start_background`](crate::Engine::start_background)); a simulator takes them one at a time, in an order
//! from its seed ([`Engine::background_step`](crate::Engine::background_step)). Nothing depends on either: working threads take
//! a bounded share themselves, so an engine without threads does it all, only later.
//!
//! # Invariants
//! - BACKGROUND-1: no more threads take steps of one work than its `at_once` allows. Shown by
//!   `no_more_threads_than_a_work_says_take_its_steps`.
//! - BACKGROUND-2: a step that fails rests its work for [`REST`]. A step that panics aborts the engine; so does a work that
//!   panics in `due`, which is then never called again. Neither ends its thread. No other
//!   work waits for it, nor for a step that does not end. Shown by
//!   `a_step_that_fails_is_told_and_keeps_nobody` and its neighbours.
//! - BACKGROUND-3: a thread sleeps only when nothing was due after it counted itself as a sleeper. So a thread that makes a step due and then
//!   finds no sleeper needs to wake none. Shown by `who_has_something_due_wakes_who_sleeps`.

mod report;
mod threads;
mod timer;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use creamery_base::lock::{RankedCondvar, RankedMutex, RankedRwLock, rank};
use creamery_base::panics::{self, Panic};
use creamery_base::{Env, Result};

pub use report::BackgroundReport;
pub use threads::BackgroundThreads;
pub(crate) use timer::CommitTimer;

/// How long a work rests after a failed step.
const REST: Duration = Duration::from_secs(1);

/// When a step is due.
///
/// ```
/// use creamery_txn::Due;
/// assert_ne!(Due::Now, Due::Never);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// As soon as a thread has time.
    Now,
    /// After this time, if nothing changes until then.
    In(Duration),
    /// Not before an event for which the pool is woken ([`Background::wake`]).
    Never,
}

/// Work that is cut into steps.
///
/// ```
/// use creamery_txn::{BackgroundWork, Due};
/// struct Nothing;
/// impl BackgroundWork for Nothing {
///     fn name(&self) -> &'static str {
///         "nothing"
///     }
///     fn due(&self) -> Due {
///         Due::Never
///     }
///     fn step(&self) -> creamery_base::Result<()> {
///         Ok(())
///     }
/// }
/// ```
pub trait BackgroundWork: Send + Sync {
    /// The name to show.
    fn name(&self) -> &'static str;

    /// Whether a step is due. It waits for nothing.
    fn due(&self) -> Due;

    /// Takes one bounded step, which may do nothing when another thread was faster.
    /// Errors: the reason that it cannot go on for now. It is tried again after a rest.
    fn step(&self) -> Result<()>;

    /// Takes a step that is due only after a while, if there is one: for a caller with its own clock.
    /// Errors: those of [`BackgroundWork::step`].
    fn step_early(&self) -> Result<()> {
        self.step()
    }

    /// How many threads may take steps of it at once.
    fn at_once(&self) -> usize {
        1
    }

    /// Called when the last thread that takes steps has ended. It waits for nothing.
    fn left(&self) {}
}

/// A work, and its state.
struct Slot {
    work: Arc<dyn BackgroundWork>,
    /// Threads that take a step of it now.
    at_it: AtomicUsize,
    /// When the latest of their steps began, microseconds.
    begun: AtomicU64,
    /// Until when it rests, microseconds.
    rests_until: AtomicU64,
    /// Its `due` panicked, and is never called again.
    dead: AtomicBool,
    steps: AtomicU64,
    failures: AtomicU64,
    last_failure: RankedMutex<Option<String>, { rank::LEAF }>,
}

/// The right to take a step.
struct Step<'s>(&'s Slot);

impl Slot {
    fn new(work: Arc<dyn BackgroundWork>) -> Self {
        Self {
            work,
            at_it: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            rests_until: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            last_failure: RankedMutex::new(None),
        }
    }

    /// When a step is due that no thread takes yet. Calls `died` when the work panics in `due`.
    fn due(&self, now: Duration, died: &dyn Fn(&Panic)) -> Due {
        if self.dead.load(Ordering::Relaxed) || self.at_it.load(Ordering::Relaxed) >= self.work.at_once() {
            return Due::Never; // a thread that takes a step looks again after it
        }
        let rests = Duration::from_micros(self.rests_until.load(Ordering::Relaxed)).saturating_sub(now);
        let due = panics::catch(|| self.work.due()).unwrap_or_else(|panic| {
            self.dead.store(true, Ordering::Relaxed);
            died(&panic);
            self.failed(now, &panic);
            Due::Never
        });
        match due {
            Due::Now if !rests.is_zero() => Due::In(rests),
            Due::In(wait) => Due::In(wait.max(rests)),
            due => due,
        }
    }

    /// Records a failure: a step failed, or `due` panicked.
    fn failed(&self, now: Duration, failure: &dyn fmt::Display) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.rests_until.store(micros(now + REST), Ordering::Relaxed);
        *self.last_failure.lock() = Some(failure.to_string());
    }

    fn begin(&self, now: Duration) -> Option<Step<'_>> {
        let at_once = self.work.at_once();
        let more = |at_it: usize| (at_it < at_once).then_some(at_it + 1);
        self.at_it.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).ok()?;
        self.begun.store(micros(now), Ordering::Relaxed);
        Some(Step(self))
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.0.at_it.fetch_sub(1, Ordering::AcqRel);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// All background work of an engine, and the threads that take its steps.
///
/// ```no_run
/// # fn show(engine: &creamery_txn::Engine) {
/// for work in engine.background().report() {
///     println!("{}: {} steps", work.name, work.steps);
/// }
/// # }
/// ```
pub struct Background {
    env: Arc<dyn Env>,
    works: RankedRwLock<Vec<Arc<Slot>>, { rank::LEAF }>,
    /// Grows with every wake.
    wakes: RankedMutex<u64, { rank::LEAF }>,
    woken: RankedCondvar,
    /// Threads that sleep, or are about to.
    sleepers: AtomicUsize,
    threads: AtomicUsize,
    stop: AtomicBool,
}

impl Background {
    pub(crate) fn new(env: Arc<dyn Env>) -> Self {
        Self {
            env,
            works: RankedRwLock::default(),
            wakes: RankedMutex::new(0),
            woken: RankedCondvar::new(),
            sleepers: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Takes steps of `work` in the background from now on.
    pub fn register(&self, work: Arc<dyn BackgroundWork>) {
        self.works.write().push(Arc::new(Slot::new(work)));
        self.wake();
    }

    /// Whether threads take steps, so that other threads need not. The works learn when the last of these has ended
    /// ([`BackgroundWork::left`]).
    #[must_use]
    pub fn has_threads(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > 0
    }

    /// Calls `left` of all works: the last thread has ended. A panic in it has no thread left to report it.
    fn tell_that_all_have_ended(&self) {
        let works = self.works.read().clone();
        works.iter().for_each(|slot| drop(panics::catch(|| slot.work.left())));
    }

    /// Wakes the sleeping threads: a step of some work may be due (BACKGROUND-3). It costs next to nothing while no thread sleeps, and
    /// waits for nothing.
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            *self.wakes.lock() += 1;
            self.woken.notify_all();
        }
    }

    /// The works of which a step is due now, and the time until the next one is due if nothing happens. `ever` includes works that are
    /// due after a while: for a caller with its own clock.
    fn all_due(&self, ever: bool, died: &dyn Fn(&Panic)) -> (Vec<Arc<Slot>>, Option<Duration>) {
        let now = self.env.monotonic();
        let mut works = self.works.read().clone();
        let mut next: Option<Duration> = None;
        works.retain(|slot| match slot.due(now, died) {
            Due::Now => true,
            Due::In(_) if ever => true,
            Due::In(wait) => {
                next = Some(next.map_or(wait, |next| next.min(wait)));
                false
            }
            Due::Never => false,
        });
        (works, next)
    }

    /// Takes one step on this thread, of a work that is due, now or after a while: `choose` gets their number and returns the index of one.
    /// Returns its name, or `None` when no work is due. Calls `died` when the step panics.
    pub(crate) fn step(
        &self,
        choose: impl FnOnce(usize) -> usize,
        died: &dyn Fn(&Panic),
    ) -> Option<&'static str> {
        let (works, _) = self.all_due(true, died);
        if works.is_empty() {
            return None;
        }
        let slot = &works[choose(works.len())];
        self.take_step(slot, |work| work.step_early(), died);
        Some(slot.work.name())
    }

    /// Takes a step of `slot` on this thread, by calling `step`, unless enough threads do already.
    fn take_step(
        &self,
        slot: &Slot,
        step: impl FnOnce(&dyn BackgroundWork) -> Result<()>,
        died: &dyn Fn(&Panic),
    ) {
        let Some(_step) = slot.begin(self.env.monotonic()) else { return };
        slot.steps.fetch_add(1, Ordering::Relaxed);
        match panics::catch(|| step(&*slot.work)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => slot.failed(self.env.monotonic(), &error),
            Err(panic) => {
                died(&panic);
                slot.failed(self.env.monotonic(), &panic);
            }
        }
    }
}
