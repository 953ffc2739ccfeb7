//! Keeps the number of workers that wait for requests as small as possible.
//!
//! A request wakes one of the threads that wait in `read`, the one that has waited longest. If all
//! workers wait, each request of a single client wakes another cold thread, and the one that has just answered goes to
//! sleep a moment before the next request comes. A single worker finds that request in the queue and does not sleep at
//! all; so one worker serves one client twice as fast as four.
//!
//! But the first operation that blocks stops a single worker. So the workers are a crew: some are on duty (they read,
//! run and answer), the others are parked. One of the parked, the watch, checks the work twice in a millisecond. It goes on
//! duty itself, and the next of the parked becomes the watch, if
//! - no worker reads, and no request was taken since the last check: all on duty are in operations that take long; or
//! - requests waited in the queue at several checks in a row: there is more work than those on duty manage.
//!
//! A worker that finds another one reading after each of many requests in a row is not needed and parks. If no request
//! comes for a while, the watch sleeps without a timer, and the next request taken wakes it: an idle mount
//! costs nothing.
//!
//! # Invariants
//! - CREW-1: while a worker is parked, another one reads, or the watch is on a timer, or is about to be woken. So a request
//!   waits for a worker that is not on duty for two checks at most.
//!   Shown by `a_request_after_a_long_rest_wakes_the_watch_when_it_blocks`, `operations_that_wait_for_each_other_find_a_worker_each`.
//! - CREW-2: a worker parks only when another one reads.
//! - CREW-3: when the mount is gone, all parked workers end. Shown by `all_workers_end_when_the_mount_is_gone`.
//!
//! For CREW-1 the watch announces its sleep before it checks `reading` a last time, and a worker that takes a request
//! leaves `reading` before it checks whether the watch sleeps; both sequentially consistent, so one of them sees the other.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use creamery_base::lock::{RankedCondvar, RankedGuard, RankedMutex, rank};

/// Time between two checks of the watch.
const LOOK: Duration = Duration::from_micros(500);
/// Checks in a row that find requests waiting before one more worker goes on duty: a single check may just see a request on its way.
const BACKLOG_LOOKS: u32 = 8;
/// Checks in a row that find no progress before the watch sleeps.
const IDLE_LOOKS: u32 = 20;
/// Requests in a row, each with another worker reading already, after which a worker parks.
const SURPLUS_REQUESTS: u32 = 32;

/// The workers of one session.
pub(super) struct WorkerPool {
    /// Workers in `read`.
    reading: AtomicUsize,
    /// Requests taken so far.
    taken: AtomicU64,
    /// Whether the watch sleeps without a timer and must be woken.
    asleep: AtomicBool,
    parked: RankedMutex<Parked, { rank::LEAF }>,
    /// Signals that the watch is needed, or the mount is gone.
    watch: RankedCondvar,
    /// Signals that there is no watch, or the mount is gone.
    unwatched: RankedCondvar,
}

#[derive(Default)]
struct Parked {
    watched: bool,
    gone: bool,
    /// The sleeping watch is needed.
    wanted: bool,
}

type Guard<'a> = RankedGuard<'a, Parked, { rank::LEAF }>;

/// The next action of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Read a request.
    Duty,
    /// End: the mount is gone.
    End,
}

/// A worker's record of whether it is needed.
#[derive(Default)]
pub(super) struct Need {
    surplus: u32,
}

impl WorkerPool {
    pub(super) fn new() -> Self {
        Self {
            reading: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            parked: RankedMutex::default(),
            watch: RankedCondvar::new(),
            unwatched: RankedCondvar::new(),
        }
    }

    /// Runs `read`, which may wait for a request, and counts one request as taken, whatever it returns.
    pub(super) fn read<T, E>(&self, read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.reading.fetch_add(1, Ordering::SeqCst);
        let result = read();
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.reading.fetch_sub(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            self.parked.lock().wanted = true;
            self.watch.notify_one();
        }
        result
    }

    /// Called after each answer: goes on, or parks as long as this worker is not needed. `backlog` returns whether requests wait.
    pub(super) fn answered(&self, need: &mut Need, backlog: impl Fn() -> bool) -> Next {
        if self.reading.load(Ordering::Relaxed) == 0 {
            need.surplus = 0;
            return Next::Duty;
        }
        need.surplus += 1;
        if need.surplus < SURPLUS_REQUESTS {
            return Next::Duty;
        }
        need.surplus = 0;
        self.park(backlog)
    }

    /// Parks until the worker is needed.
    pub(super) fn park(&self, backlog: impl Fn() -> bool) -> Next {
        let mut parked = self.parked.lock();
        loop {
            if parked.gone {
                return Next::End;
            }
            if !parked.watched {
                parked.watched = true;
                let mut parked = self.watch(parked, &backlog);
                parked.watched = false;
                let next = if parked.gone { Next::End } else { Next::Duty };
                drop(parked);
                self.unwatched.notify_one(); // another worker becomes the watch
                return next;
            }
            parked = self.unwatched.wait_while(parked, |parked| parked.watched && !parked.gone);
        }
    }

    /// Watches; returns when one more worker is needed, or the mount is gone.
    fn watch<'a>(&self, mut parked: Guard<'a>, backlog: &dyn Fn() -> bool) -> Guard<'a> {
        let (mut seen, mut idle, mut behind) = (self.taken.load(Ordering::Relaxed), 0, 0);
        while !parked.gone {
            parked = self.watch.wait_while_for(parked, LOOK, |parked| !parked.gone);
            let taken = self.taken.load(Ordering::Relaxed);
            let (quiet, unread) = (taken == seen, self.reading.load(Ordering::SeqCst) == 0);
            seen = taken;
            behind = if backlog() { behind + 1 } else { 0 };
            if quiet && unread || behind >= BACKLOG_LOOKS {
                break;
            }
            idle = if quiet { idle + 1 } else { 0 };
            if idle >= IDLE_LOOKS {
                parked = self.sleep(parked);
                (seen, idle, behind) = (self.taken.load(Ordering::Relaxed), 0, 0);
            }
        }
        parked
    }

    /// Sleeps without a timer, until a request is taken (CREW-1).
    fn sleep<'a>(&self, mut parked: Guard<'a>) -> Guard<'a> {
        parked.wanted = false;
        self.asleep.store(true, Ordering::SeqCst);
        parked = self.watch.wait_while(parked, |parked| {
            self.reading.load(Ordering::SeqCst) > 0 && !parked.wanted && !parked.gone
        });
        self.asleep.store(false, Ordering::SeqCst);
        parked
    }

    /// The mount is gone: ends all parked workers.
    pub(super) fn dismiss(&self) {
        self.parked.lock().gone = true;
        self.watch.notify_all();
        self.unwatched.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Condvar, Mutex, mpsc};

    /// Workers that take numbers from a channel in place of the kernel, and run `work` on each.
    fn serve(workers: usize, requests: Vec<u32>, work: impl Fn(u32) + Sync) -> usize {
        let (crew, served) = (WorkerPool::new(), AtomicUsize::new(0));
        let (send, receive) = mpsc::channel();
        let queued = AtomicUsize::new(requests.len());
        requests.into_iter().for_each(|request| send.send(request).expect("it is kept"));
        drop(send); // the end of the channel stands for an unmount
        let receive = Mutex::new(receive);
        let backlog = || queued.load(Ordering::Relaxed) > 0;
        std::thread::scope(|scope| {
            for worker in 0..workers {
                let (crew, receive, served, queued, work) = (&crew, &receive, &served, &queued, &work);
                scope.spawn(move || {
                    let mut need = Need::default();
                    let mut next = if worker == 0 { Next::Duty } else { crew.park(backlog) };
                    while next == Next::Duty {
                        let Ok(request) = crew.read(|| receive.lock().expect("no panic").recv()) else {
                            crew.dismiss();
                            return;
                        };
                        queued.fetch_sub(1, Ordering::Relaxed);
                        work(request);
                        served.fetch_add(1, Ordering::Relaxed);
                        next = crew.answered(&mut need, backlog);
                    }
                });
            }
        });
        served.into_inner()
    }

    #[test]
    fn all_workers_end_when_the_mount_is_gone() {
        for workers in [1, 2, 5] {
            assert_eq!(serve(workers, (0..10_000).collect(), |_| ()), 10_000, "{workers} workers");
        }
    }

    #[test]
    fn operations_that_wait_for_each_other_find_a_worker_each() {
        // The first three wait until the fourth is run: one after the other they would wait for ever.
        let (done, changed) = (Mutex::new(false), Condvar::new());
        let served = serve(4, (0..4).collect(), |request| {
            let mut done = done.lock().expect("no panic");
            if request == 3 {
                *done = true;
                changed.notify_all();
            }
            while !*done {
                done = changed.wait(done).expect("no panic");
            }
        });
        assert_eq!(served, 4);
    }

    #[test]
    fn a_request_after_a_long_rest_wakes_the_watch_when_it_blocks() {
        let crew = WorkerPool::new();
        let (send, receive) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let crew = &crew;
            let worker = scope.spawn(move || crew.read(|| receive.recv()));
            while crew.reading.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now(); // otherwise the watch would find no reader
            }
            let watch = scope.spawn(|| crew.park(|| false));
            while !crew.asleep.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            // From here on no worker reads, as if the operation took for ever.
            send.send(()).expect("the worker waits");
            worker.join().expect("no panic").expect("a request");
            assert_eq!(watch.join().expect("no panic"), Next::Duty);
        });
    }
}
