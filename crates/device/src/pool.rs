//! Threads that run the requests of a device whose submitters do not wait.
//!
//! A request is a job in a queue, first come, first served. A thread starts when a job comes and no thread is free, up to [`THREADS`] of
//! them; they end when the pool is closed. A device without submitted requests has no threads.
//!
//! # Invariants
//! - POOL-1: each job runs once, whatever other jobs do: a job that panics ends no thread, and a closed pool first runs the jobs that it has
//!   taken. Shown by `what_was_taken_runs_before_the_end` and `a_job_that_panics_ends_no_thread`.
//! - POOL-2: handing a job in never waits. If the queue is full, the pool closed, or no thread available, the job comes
//!   back. Shown by `a_full_queue_gives_the_job_back`.
//! - POOL-3: when [`ThreadPool::close`] returns, no job runs. A job that closes its pool waits for all jobs except those that close it as well. Shown by
//!   `a_job_may_close_its_pool` and `whoever_closes_it_from_outside_waits_for_jobs_that_close_it`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use creamery_base::lock::{ProcessCondvar, ProcessMutex, rank};
use creamery_base::panics;

/// Threads of a pool.
const THREADS: usize = 4;
/// The longest queue for submitters that may run a job themselves.
const QUEUE: usize = 64;
/// The longest queue for submitters that must not run a job themselves. Their filesystem bounds the bytes of their requests.
const QUEUE_OF_OTHERS: usize = 1024;

/// The work of a request.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The threads of one device, see the [module](self). Dropping it closes it.
#[derive(Default)]
pub(crate) struct ThreadPool {
    shared: Arc<SharedQueue>,
}

#[derive(Default)]
struct SharedQueue {
    state: ProcessMutex<QueueState, { rank::LEAF }>,
    /// Signalled when the queue gets a job, or the pool is closed.
    work: ProcessCondvar,
    /// Signalled when a job has ended.
    ended: ProcessCondvar,
}

#[derive(Default)]
struct QueueState {
    queue: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    free: usize,
    running: usize,
    /// Threads of the pool that close it themselves, and wait for the others.
    closers: usize,
    is_closed: bool,
}

thread_local! {
    /// The pool that this thread belongs to.
    static MINE: Cell<*const SharedQueue> = const { Cell::new(std::ptr::null()) };
}

impl ThreadPool {
    /// Queues `job` for a thread, or gives it back (POOL-2).
    pub(crate) fn run(&self, job: Job) -> Result<(), Job> {
        let mut state = self.shared.state.lock();
        if state.queue.len() >= QUEUE {
            return Err(job);
        }
        self.push(&mut state, job)
    }

    /// Queues a job like [`run`](Self::run), however many jobs wait: for a caller that must not run it, and has asked before whether there
    /// [is room](Self::has_room).
    pub(crate) fn take(&self, job: Job) -> Result<(), Job> {
        self.push(&mut self.shared.state.lock(), job)
    }

    /// Whether a thread of the pool would run a new job.
    pub(crate) fn has_room(&self) -> bool {
        let mut state = self.shared.state.lock();
        if state.is_closed || state.queue.len() >= QUEUE_OF_OTHERS {
            return false;
        }
        self.add_thread(&mut state);
        state.threads > 0
    }

    fn push(&self, state: &mut QueueState, job: Job) -> Result<(), Job> {
        if state.is_closed {
            return Err(job);
        }
        self.add_thread(state);
        if state.threads == 0 {
            return Err(job);
        }
        state.queue.push_back(job);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Starts a thread if one more job would wait for the existing ones.
    fn add_thread(&self, state: &mut QueueState) {
        if state.queue.len() >= state.free && state.threads < THREADS && self.begin_thread() {
            state.threads += 1;
        }
    }

    /// Starts a thread. Returns false if the system gives none.
    fn begin_thread(&self) -> bool {
        let shared = Arc::clone(&self.shared);
        thread::Builder::new().name("device".to_owned()).spawn(move || shared.serve()).is_ok()
    }

    /// Stops taking jobs, and waits for those that it has (POOL-3).
    pub(crate) fn close(&self) {
        let own = usize::from(MINE.get() == Arc::as_ptr(&self.shared));
        let mut state = self.shared.state.lock();
        state.is_closed = true;
        state.closers += own;
        self.shared.work.notify_all();
        self.shared.ended.notify_all();
        // If all existing threads are closing the pool, none is left to run the queued jobs.
        while state.threads == state.closers
            && let Some(job) = state.queue.pop_front()
        {
            drop(state);
            let _ = panics::catch(job);
            state = self.shared.state.lock();
        }
        let goes_on = |state: &mut QueueState| {
            let waited_for = if own > 0 { state.running - state.closers } else { state.running };
            !state.queue.is_empty() || waited_for > 0
        };
        self.shared.ended.wait_while(state, goes_on).closers -= own;
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.close();
    }
}

impl SharedQueue {
    /// Runs jobs until the pool is closed: the main function of a thread.
    fn serve(self: Arc<Self>) {
        MINE.set(Arc::as_ptr(&self));
        let mut state = self.state.lock();
        loop {
            let Some(job) = state.queue.pop_front() else {
                if state.is_closed {
                    return;
                }
                state.free += 1;
                state = self.work.wait_while(state, |state| state.queue.is_empty() && !state.is_closed);
                state.free -= 1;
                continue;
            };
            state.running += 1;
            drop(state);
            // The panic was reported when it happened, and a waiter for the outcome gets none.
            let _ = panics::catch(job);
            state = self.state.lock();
            state.running -= 1;
            self.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    /// A job that reports that it runs, and then waits until it may go on.
    fn held(began: &std::sync::mpsc::Sender<()>, go: &Arc<Barrier>) -> Job {
        let (began, go) = (began.clone(), Arc::clone(go));
        Box::new(move || {
            began.send(()).unwrap();
            go.wait();
        })
    }

    fn taken(pool: &ThreadPool, job: Job) {
        assert!(pool.run(job).is_ok(), "there is room");
    }

    #[test]
    fn jobs_run_beside_each_other_up_to_the_number_of_threads() {
        let (pool, (began, begun), go) =
            (ThreadPool::default(), channel(), Arc::new(Barrier::new(THREADS + 1)));
        (0..THREADS).for_each(|_| taken(&pool, held(&began, &go)));
        (0..THREADS).for_each(|_| begun.recv().unwrap());
        taken(&pool, Box::new(move || began.send(()).unwrap()));
        assert!(begun.try_recv().is_err(), "all threads are busy");
        go.wait();
        begun.recv().unwrap();
        assert_eq!(pool.shared.state.lock().threads, THREADS);
    }

    #[test]
    fn a_job_that_closes_its_pool_runs_what_no_other_thread_is_left_for() {
        let pool = Arc::new(ThreadPool::default());
        let (began, begun) = channel();
        let (own, go) = (Arc::clone(&pool), Arc::new(Barrier::new(2)));
        let wait = Arc::clone(&go);
        taken(
            &pool,
            Box::new(move || {
                wait.wait();
                own.close();
            }),
        );
        // Like a system that gives no second thread.
        pool.shared.state.lock().queue.push_back(Box::new(move || began.send(()).unwrap()));
        go.wait();
        begun.recv().expect("POOL-1: it runs");
        pool.close();
    }

    #[test]
    fn a_full_queue_gives_the_job_back() {
        let (pool, (began, begun), go) =
            (ThreadPool::default(), channel(), Arc::new(Barrier::new(THREADS + 1)));
        (0..THREADS).for_each(|_| taken(&pool, held(&began, &go)));
        (0..THREADS).for_each(|_| begun.recv().unwrap());
        (0..QUEUE).for_each(|_| taken(&pool, Box::new(|| ())));
        assert!(pool.run(Box::new(|| ())).is_err());
        go.wait();
    }

    #[test]
    fn a_full_queue_takes_the_job_of_who_must_not_run_it() {
        let (pool, (began, begun), go) =
            (ThreadPool::default(), channel(), Arc::new(Barrier::new(THREADS + 1)));
        assert!(pool.has_room());
        (0..THREADS).for_each(|_| taken(&pool, held(&began, &go)));
        (0..THREADS).for_each(|_| begun.recv().unwrap());
        (0..QUEUE).for_each(|_| taken(&pool, Box::new(|| ())));
        assert!(pool.has_room() && pool.run(Box::new(|| ())).is_err());
        (QUEUE..QUEUE_OF_OTHERS).for_each(|_| assert!(pool.take(Box::new(|| ())).is_ok()));
        assert!(!pool.has_room());
        let (send, receive) = channel();
        assert!(pool.take(Box::new(move || send.send(7).unwrap())).is_ok());
        go.wait();
        assert_eq!(receive.recv(), Ok(7));
        pool.close();
        assert!(!pool.has_room() && pool.take(Box::new(|| ())).is_err());
    }

    #[test]
    fn what_was_taken_runs_before_the_end() {
        let (pool, count) = (ThreadPool::default(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..QUEUE {
            let count = Arc::clone(&count);
            taken(
                &pool,
                Box::new(move || {
                    count.fetch_add(1, Ordering::Relaxed);
                }),
            );
        }
        pool.close();
        assert_eq!(count.load(Ordering::Relaxed), QUEUE);
        assert!(pool.run(Box::new(|| ())).is_err(), "it is closed");
    }

    #[test]
    fn a_job_that_panics_ends_no_thread() {
        let (pool, (send, receive)) = (ThreadPool::default(), channel());
        for number in 0..2 * THREADS {
            taken(&pool, Box::new(move || panic!("as planned, {number}")));
        }
        taken(&pool, Box::new(move || send.send(7).unwrap()));
        assert_eq!(receive.recv(), Ok(7));
    }

    #[test]
    fn whoever_closes_it_from_outside_waits_for_jobs_that_close_it() {
        let (pool, ended) = (Arc::new(ThreadPool::default()), Arc::new(AtomicUsize::new(0)));
        let both = Arc::new(Barrier::new(3));
        for _ in 0..2 {
            let (own, ended, both) = (Arc::clone(&pool), Arc::clone(&ended), Arc::clone(&both));
            taken(
                &pool,
                Box::new(move || {
                    both.wait();
                    own.close();
                    ended.fetch_add(1, Ordering::Relaxed);
                }),
            );
        }
        both.wait();
        pool.close();
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_job_may_close_its_pool() {
        let (pool, (send, receive)) = (Arc::new(ThreadPool::default()), channel());
        let own = Arc::clone(&pool);
        taken(
            &pool,
            Box::new(move || {
                own.close();
                send.send(()).unwrap();
            }),
        );
        receive.recv().unwrap();
    }
}
