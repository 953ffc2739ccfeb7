//! The threads that take steps in production.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use creamery_base::panics::Panic;
use creamery_base::{Error, ErrorKind, Result};

use super::Background;

/// More than processors, since who reads ahead or writes out waits for a device most of the time, and a step that takes long is to keep
/// no others; no more than there is mostly work for.
const THREADS: std::ops::RangeInclusive<usize> = 4..=6;
/// How long a step that was begun may take when the threads are stopped, before they are left behind.
const PATIENCE: Duration = Duration::from_secs(60);

/// Threads that take steps of background work until they are stopped, or this is dropped.
///
/// ```no_run
/// # fn example(engine: std::sync::Arc<creamery_txn::Engine>) -> creamery_base::Result<()> {
/// let background = engine.start_background(creamery_txn::BackgroundThreads::usual());
/// // ... work ...
/// background.stop()?;
/// engine.shut_down()
/// # }
/// ```
#[must_use = "dropping it stops the threads"]
pub struct BackgroundThreads {
    background: Arc<Background>,
    patience: Duration,
    /// Whether it has waited for them: nobody does twice.
    stopped: bool,
}

impl BackgroundThreads {
    /// Starts so many, 0 for none, as long as the engine `lives`. Those that cannot be had are done without.
    pub(crate) fn start(
        background: Arc<Background>,
        threads: usize,
        lives: impl Fn() -> bool + Clone + Send + 'static,
        died: impl Fn(&Panic) + Clone + Send + 'static,
    ) -> Self {
        for number in 0..threads {
            let mine = Arc::clone(&background);
            let (lives, died) = (lives.clone(), died.clone());
            background.threads.fetch_add(1, Ordering::Relaxed);
            let run = move || mine.run(number, &lives, &died);
            if thread::Builder::new().name("background".to_owned()).spawn(run).is_err() {
                background.threads.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Self { background, patience: PATIENCE, stopped: false }
    }

    /// How many are of use on this machine.
    #[must_use]
    pub fn usual() -> usize {
        available_parallelism().map_or(2, usize::from).clamp(*THREADS.start(), *THREADS.end())
    }

    /// Waits for the steps that were begun, and ends the threads. What waits is left.
    /// Errors: busy, when a step has not ended for a minute. Its thread is left behind; that alone is no loss of anything, but
    /// what comes next may have to wait for what it holds.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    /// As [`stop`](Self::stop), with another patience.
    /// Errors: as there, after that time.
    pub fn stop_within(mut self, patience: Duration) -> Result<()> {
        self.patience = patience;
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.stopped, true) {
            return Ok(());
        }
        let Background { wakes, woken, threads, stop, .. } = &*self.background;
        stop.store(true, Ordering::SeqCst);
        let mut guard = wakes.lock();
        *guard += 1;
        woken.notify_all();
        drop(woken.wait_while_for(guard, self.patience, |_| threads.load(Ordering::SeqCst) > 0));
        if threads.load(Ordering::SeqCst) == 0 {
            stop.store(false, Ordering::SeqCst);
            return Ok(());
        }
        let running: Vec<_> =
            self.background.report().into_iter().filter(|work| work.running.is_some()).collect();
        let told: Vec<String> = running.iter().map(ToString::to_string).collect();
        let what = format!("background work that does not end was left behind: {}", told.join("; "));
        Err(Error::new(ErrorKind::Busy, what))
    }
}

impl Drop for BackgroundThreads {
    fn drop(&mut self) {
        // Who wants to know calls `stop`.
        let _ = self.end();
    }
}

/// Counts a thread that is there, whatever it ends of.
struct Counted<'b>(&'b Background);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let guard = self.0.wakes.lock();
        let before = self.0.threads.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
        if before == 1 {
            self.0.tell_that_all_have_ended();
        }
        self.0.woken.notify_all();
    }
}

/// A thread that sleeps, or is about to.
struct Asleep<'b>(&'b AtomicUsize);

impl<'b> Asleep<'b> {
    fn fall(sleepers: &'b AtomicUsize) -> Self {
        sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Self(sleepers)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Background {
    /// What a thread does: steps while any is due, then it sleeps. Each begins its search at another work.
    fn run(&self, number: usize, lives: &dyn Fn() -> bool, died: &dyn Fn(&Panic)) {
        let _counted = Counted(self);
        let mut turn = number;
        while !self.stop.load(Ordering::SeqCst) && lives() {
            let (works, _) = self.all_due(false, died);
            if works.is_empty() {
                self.sleep(died);
                continue;
            }
            turn = turn.wrapping_add(1);
            self.take_step(&works[turn % works.len()], |work| work.step(), died);
        }
    }

    /// Sleeps until a step is due or somebody wakes it, if nothing is due now (BACKGROUND-3).
    fn sleep(&self, died: &dyn Fn(&Panic)) {
        let seen = *self.wakes.lock();
        let _asleep = Asleep::fall(&self.sleepers);
        let (works, next) = self.all_due(false, died);
        if !works.is_empty() {
            return;
        }
        let guard = self.wakes.lock();
        let waits = |wakes: &mut u64| *wakes == seen && !self.stop.load(Ordering::SeqCst);
        drop(match next {
            Some(wait) => self.woken.wait_while_for(guard, wait, waits),
            None => self.woken.wait_while(guard, waits),
        });
    }
}
