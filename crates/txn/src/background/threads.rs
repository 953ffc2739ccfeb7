//! The threads that take steps in production.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use creamery_base::panics::Panic;
use creamery_base::{Error, ErrorKind, Result};

use super::Background;

/// More threads than processors, since threads that read ahead or write out wait for a device most of the time, and a long step must not delay
/// the others; no more than there is mostly work for.
const THREADS: std::ops::RangeInclusive<usize> = 4..=6;
/// How long running steps may take when the threads are stopped, before their threads are left behind.
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
    /// Whether it has waited for the threads, which it does once.
    stopped: bool,
}

impl BackgroundThreads {
    /// Starts `threads` threads, 0 for none, which run as long as the engine `lives`. A thread that the host cannot start is left out.
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

    /// The useful number of threads on this machine.
    #[must_use]
    pub fn usual() -> usize {
        available_parallelism().map_or(2, usize::from).clamp(*THREADS.start(), *THREADS.end())
    }

    /// Waits for running steps, and ends the threads. Waiting work is left.
    /// Errors: busy, when a step has not ended for a minute. Its thread is left behind; that alone loses nothing, but
    /// later operations may have to wait for its locks.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    /// Waits for running steps at most `patience`, and ends the threads.
    /// Errors: busy, when a step has not ended after that time.
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
        // A caller that needs the error calls `stop`.
        let _ = self.end();
    }
}

/// Counts a thread until it ends, for any reason.
struct CountedThread<'b>(&'b Background);

impl Drop for CountedThread<'_> {
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
    /// The loop of a thread: it takes steps while any is due, then it sleeps. Each thread begins its search at another work.
    fn run(&self, number: usize, lives: &dyn Fn() -> bool, died: &dyn Fn(&Panic)) {
        let _counted = CountedThread(self);
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

    /// Sleeps until a step is due or another thread wakes it, if nothing is due now (BACKGROUND-3).
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
